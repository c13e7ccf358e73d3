// alloc_bench --steps: what one malloc and one free execute: instructions, locked ones, fences and
// flushed lines, counted by single steps. So the counts need no counters of the processor, and are
// taken by the same means for every allocator. There are no times: a step costs microseconds.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/alloc/figures.h"

namespace bench {

inline constexpr std::size_t kStepsCounted = 512;  // refills of caches are among them
inline constexpr std::size_t kStepsQuick = 16;     // for --quick

struct StepsBenchOptions {
  std::string dir;  // an empty directory
  std::vector<unsigned> batches;
  std::size_t counted = kStepsCounted;  // objects, at most as many
};

// Prints a table to `out`, and appends a JSON object for each of its rows. Returns an empty string,
// or what went wrong.
std::string run_steps_bench(const StepsBenchOptions& options,
                            const std::vector<AllocContestant>& contestants, std::FILE* out,
                            std::vector<std::string>& json);

}  // namespace bench
