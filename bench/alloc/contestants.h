// Chooses the contestants: each allocator on each of its media. Tenuto also takes part in each
// combination of settings.
#pragma once

#include <string>
#include <vector>

#include "bench/alloc/figures.h"

namespace bench {

struct ContestantOptions {
  std::vector<std::string> allocators;
  std::vector<std::string> media;
  std::vector<std::vector<double>> ablations;  // one list of values per switch; see ablation.h
  bool delays = false;
};

// Fills `to`. Returns an empty string, or the reason why there are no contestants.
std::string choose_contestants(const ContestantOptions& o, std::vector<AllocContestant>& to);

}  // namespace bench
