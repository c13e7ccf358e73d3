// The experiments of frame_bench. Each runs on a fresh pool and checks its own answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/frame_engine.h"

namespace bench {

// The results of one round of one case.
struct FrameSample {
  double get_ns = 0;  // per operation of one thread while all run; repeat, fragment: per pair
  double put_ns = 0;
  std::uint64_t operations = 0;
  double lines_per_op = 0;
  double reflushes_per_op = 0;
  double huge_recovered = 0;   // fragment: share of the polluted huge frames
  double copies_left = 0;      // fragment: compaction cost, relative to the start
  double open_clean_ms = 0;    // open
  double open_crashed_ms = 0;  // open after a crash, without keep()
  double keep_ns = 0;          // one frame in keep()
  std::string wrong;           // empty: all answers were right
};

struct FrameRun {
  FrameEngine& engine;
  unsigned threads;
  unsigned order;
  std::uint64_t seed;
  std::uint64_t repeats;  // case repeat: pairs per thread
  unsigned turns;         // case fragment: renewals
  bool cpu_clock;         // measure a thread's processor time instead of wall time
};

struct FrameCase {
  const char* name;
  const char* help;
  bool one_order;  // order 0 only
  bool one_thread;
  FrameSample (*run)(const FrameRun&);
};

const std::vector<FrameCase>& frame_cases();

}  // namespace bench
