// alloc_bench --steps: what one malloc and one free execute: instructions, locked ones, fences and
// flushed lines, counted by single steps. So the counts need no counters of the processor, and are
// taken by the same means for every allocator. There are no times: a step costs microseconds.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "bench/alloc/figures.h"

namespace bench {

struct StepsBenchOptions {
  std::string dir;  // an empty directory
  std::vector<unsigned> batches;
};

// Prints a table to `out`, and appends a JSON object for each of its rows. Returns an empty string,
// or what went wrong.
std::string run_steps_bench(const StepsBenchOptions& options,
                            const std::vector<AllocContestant>& contestants, std::FILE* out,
                            std::vector<std::string>& json);

}  // namespace bench
