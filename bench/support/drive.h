// Runs the streams of one phase against an open engine. It times each operation and checks each
// answer. sweep() then reads the whole store. Called in the child process of a turn (turn.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "bench/support/engine.h"
#include "bench/support/hardware.h"
#include "bench/support/histogram.h"
#include "bench/support/io_meter.h"
#include "bench/support/workload.h"

namespace bench {

// Plain memory without pointers: a child writes it, its parent reads it through a shared mapping.
struct PhaseResult {
  bool ran = false;
  std::uint64_t ops = 0;
  std::uint64_t scanned = 0;    // records returned by scans
  double seconds = 0;           // from the first thread's start to the last thread's end
  Histogram by_kind[kOpKinds];  // ticks; includes the check of each operation
  EngineCounters counted;       // during the phase; negative: not counted
  JournalCounters journal;
  IoUse io;
  HardwareUse hardware;
  double write_call_bytes = -1;
  double anonymous_bytes = 0;  // the engine's private memory at the end
  double file_bytes = 0;       // blocks on the file system at the end
  std::uint64_t failures = 0;
  char first_failure[240] = {};
};

// `trusting`: answers are read and checked at the same cost, but errors are ignored (null, bare).
// `progress`, if given, always holds the number of acknowledged operations of thread 0.
void drive(Engine& engine, const Records& records, const Phase& phase, bool trusting,
           PhaseResult& result, std::atomic<std::uint64_t>* progress = nullptr);

// Reads the whole store and checks order, every value, every version and the count. Adds failures
// to the result. Scans after it are warm.
void sweep(Engine& engine, const Records& records, const Expected& expected, PhaseResult& result);

// The highest version in the store; 0 when it is empty. Ignores bad values: a sweep reports them.
std::uint32_t latest_version(Engine& engine, const Records& records);

}  // namespace bench
