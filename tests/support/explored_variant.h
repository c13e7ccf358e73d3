// The scripts of heap_crash.cc on pools of one variant of Consistency: with power cuts on medium
// line, with kills on medium cache.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "support/explored_medium.h"
#include "support/heap_scripts.h"

namespace tenuto::test {

using VariantCase = std::tuple<CrashMode, std::string>;

inline CrashOptions variant_options(const HeapScript& s, CrashMode mode) {
  explored_medium = mode == CrashMode::kill ? Medium::cache : Medium::line;
  CrashOptions o = crash_options(s);
  o.mode = mode;
  return o;
}

inline void explore_variant(const VariantCase& c) {
  const auto& [mode, name] = c;
  const HeapScript& s = heap_script(name);
  const CrashResult r = run(s, variant_options(s, mode));
  EXPECT_TRUE(r.ok()) << r.text();
  std::printf("%s: %llu points, %llu states, %llu in recovery, %.1f s\n", s.name,
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.unique),
              static_cast<unsigned long long>(r.recovery_states), r.seconds);
}

// All scripts but `others` with power cuts. With kills, which lose less, some of each kind.
inline std::vector<VariantCase> variant_cases(const std::set<std::string>& others,
                                              const std::set<std::string>& killed) {
  std::vector<VariantCase> all;
  for (const HeapScript& s : heap_scripts()) {
    if (others.contains(s.name)) continue;
    all.emplace_back(CrashMode::adr, s.name);
    if (killed.contains(s.name)) all.emplace_back(CrashMode::kill, s.name);
  }
  return all;
}

inline std::string variant_case_name(const testing::TestParamInfo<VariantCase>& c) {
  return std::string(crash_mode_name(std::get<0>(c.param))) + "_" + std::get<1>(c.param);
}

// Whether the explorer finds something with power cuts.
inline bool finds_with(const char* script, const Mutation& mutation, const char* plant = nullptr) {
  CrashOptions o = variant_options(heap_script(script), CrashMode::adr);
  o.mutation = mutation;
  if (plant != nullptr) o.plants = {plant};
  return !run(heap_script(script), o).ok();
}

}  // namespace tenuto::test
