// The experiments of frame_bench, each on a fresh pool. They check what they do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/frame_engine.h"

namespace bench {

// What one round of one case found.
struct FrameSample {
  double get_ns = 0;  // an operation of one thread, all threads working
  double put_ns = 0;
  std::uint64_t operations = 0;
  double lines_per_op = 0;
  double reflushes_per_op = 0;
  double huge_recovered = 0;   // fragment: share of the polluted huge frames
  double copies_left = 0;      // fragment: compaction cost, share of that before
  double open_clean_ms = 0;    // open
  double open_crashed_ms = 0;  // but for naming the owners
  double keep_ns = 0;          // naming one owner
  std::string wrong;           // empty when all answers were right
};

struct FrameRun {
  FrameEngine& engine;
  unsigned threads;
  unsigned order;
  std::uint64_t seed;
  std::uint64_t repeats;  // case repeat: pairs a thread
  unsigned turns;         // case fragment: renewals
  bool cpu_clock;         // count a thread's processor time instead of the time that passed
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
