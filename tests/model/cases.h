// What the tests of this folder's protocols share: the cases of a protocol are explored, and then
// once more for each planted mistake, which one of them must show.
//
// TENUTO_MODEL_SCALE multiplies the number of runs (default 1).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "explorer.h"

namespace tenuto_model {

inline std::size_t scaled(std::size_t n) {
  const char* scale = std::getenv("TENUTO_MODEL_SCALE");
  return scale == nullptr ? n : static_cast<std::size_t>(static_cast<double>(n) * std::atof(scale));
}

template <class Protocol>
struct Case {
  const char* name;
  typename Protocol::Config config;
  ExploreMode mode;
};

inline ExploreMode random_steps(std::size_t operations, std::size_t runs, std::size_t images) {
  return {.steps = true,
          .operations = operations,
          .sessions = 3,
          .runs_max = scaled(runs),
          .images_max = images};
}

template <class Protocol>
void expect_no_failure(const std::vector<Case<Protocol>>& cases, std::uint64_t unique_min) {
  const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
  for (const Case<Protocol>& c : cases) {
    Explorer<Protocol> e(c.config);
    e.explore(c.mode);
    std::printf("%-39s runs %7llu  images %9llu  unique %8llu  recoveries %9llu\n", c.name,
                number(e.runs), number(e.images), number(e.unique), number(e.recoveries));
    std::fflush(stdout);
    EXPECT_EQ(e.failures, 0u) << c.name << ": " << e.first_failure;
    EXPECT_GT(e.unique, unique_min);
  }
}

// A look at the first few runs of each case comes first: most mistakes show soon, but not in every
// case.
template <class Protocol>
void expect_found(const char* plant, const std::vector<Case<Protocol>>& cases, std::size_t few) {
  for (const std::size_t runs_max : {few, ~std::size_t{0}}) {
    for (Case<Protocol> c : cases) {
      c.config.plant = plant;
      c.mode.runs_max = std::min(c.mode.runs_max, runs_max);
      Explorer<Protocol> e(c.config);
      e.explore(c.mode);
      if (e.failures == 0) continue;
      std::printf("%s: %s\n    %s\n", plant, c.name, e.first_failure.c_str());
      return;
    }
  }
  ADD_FAILURE() << plant << " is not found";
}

// For a test suite with a test for each mistake.
template <class Model>
auto every_mistake() {
  return testing::ValuesIn(Model::mistakes());
}
inline std::string name_of_mistake(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}

}  // namespace tenuto_model
