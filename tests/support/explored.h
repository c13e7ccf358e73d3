// What a crash test expects of a whole exploration.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "tenuto/crash.h"

namespace tenuto::test {

using Fences = std::vector<std::pair<const char*, const char*>>;

// It found nothing, and crashed at each of these fences. Prints what was explored.
inline void expect_explored(const CrashResult& r, const Fences& fences) {
  EXPECT_TRUE(r.ok()) << r.text();
  for (const auto& [first, then] : fences) {
    EXPECT_TRUE(r.explored(first, then)) << first << " | " << then;
  }
  std::printf("%llu points, %llu states, %llu in recovery, %llu checks, %.1f s\n",
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.unique),
              static_cast<unsigned long long>(r.recovery_states),
              static_cast<unsigned long long>(r.checks), r.seconds);
}

}  // namespace tenuto::test
