// Runs one phase's streams against an open engine, timing each operation and checking each answer,
// and sweeps the whole store afterwards. Called in the child process of a turn (turn.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "bench/support/engine.h"
#include "bench/support/hardware.h"
#include "bench/support/histogram.h"
#include "bench/support/io_meter.h"
#include "bench/support/workload.h"

namespace bench {

// Plain memory without pointers: written by a child, read by its parent through a shared mapping.
struct PhaseResult {
  bool ran = false;
  std::uint64_t ops = 0;
  std::uint64_t scanned = 0;    // records that scans handed out
  double seconds = 0;           // from the first thread's start to the last one's end
  Histogram by_kind[kOpKinds];  // in ticks; an operation's check is part of it
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

// `trusting`: answers are read and checked at the same cost, but not held against the engine
// (null). `progress`, where given, always holds how many operations of thread 0 are acknowledged.
void drive(Engine& engine, const Records& records, const Phase& phase, bool trusting,
           PhaseResult& result, std::atomic<std::uint64_t>* progress = nullptr);

// Reads the store from end to end: order, every value, every version, the count. Counts failures
// into the result.
void sweep(Engine& engine, const Records& records, const Expected& expected, PhaseResult& result);

// The highest version in the store; 0 when it is empty. What is no value is left to a sweep.
std::uint32_t latest_version(Engine& engine, const Records& records);

}  // namespace bench
