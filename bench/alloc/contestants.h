// Who takes part: allocators, each on the media it has, tenuto also in each setting asked for.
#pragma once

#include <string>
#include <vector>

#include "bench/alloc/figures.h"

namespace bench {

struct ContestantOptions {
  std::vector<std::string> allocators;
  std::vector<std::string> media;
  std::vector<std::vector<double>> ablations;  // by switch; see ablation.h
  bool delays = false;
};

// Empty, or why there are none.
std::string choose_contestants(const ContestantOptions& o, std::vector<AllocContestant>& to);

}  // namespace bench
