// Runs a case on an allocator in child processes and returns the measurements. The steps are: open,
// prepare, run against the clock, check and free the live blocks, close. A `reopened` case ends
// with SIGKILL instead. Its pool is then opened twice against the clock: after the SIGKILL, and
// after the clean close that follows.
#pragma once

#include <cstdint>
#include <string>

#include "bench/alloc/allocator.h"
#include "bench/alloc/case.h"
#include "bench/support/child.h"

namespace bench {

struct StageOptions {
  CaseOptions work;
  std::string dir;  // an empty directory
  std::string medium;
  Ablation ablation;    // of tenuto
  bool verify = false;  // fill and check every byte, keep a map of live blocks
  bool timed = false;   // time each operation or group
  bool apart = false;   // give each destination a line of its own
  unsigned seconds_max = 900;
};

// Plain memory: children write it, their parent reads it. Negative: not measured.
struct AllocResult {
  bool ran = false;
  bool finished = false;
  std::uint64_t ops = 0;
  double seconds = 0;  // from the first thread's start to the last thread's end
  EngineCounters counted;
  Histogram latency;             // ticks
  std::uint64_t heap_start = 0;  // bytes, with the destinations and before the first object
  std::uint64_t heap_peak = 0;   // bytes above the start, maximum
  std::uint64_t live_peak = 0;   // requested bytes, maximum
  double file_peak = -1;         // blocks of the file above heap_start, in bytes, maximum
  HeapShape shape;               // after the last operation
  double heap_after = -1;        // bytes above the start, after everything was freed
  double open_ms = -1;           // after a clean close
  double open_killed_ms = -1;
  double recovery_ms = -1;  // the allocator's own part of the open after SIGKILL
  double recovery_clean_ms = -1;
  CaseFindings findings;
  std::uint64_t failures = 0;
  char first_failure[240] = {};
  char medium[16] = {};
  char error[400] = {};  // why the turn did not finish
};

void play(const AllocatorKind& allocator, const CaseKind& kind, const StageOptions& options,
          Shared<AllocResult>& result);

}  // namespace bench
