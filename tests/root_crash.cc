// The root object grows, under the crash explorer (support/root_world.h): after every crash it is
// the old one or the new one, and nothing leaks. planted_crash.cc plants mistakes.
#include <gtest/gtest.h>

#include <cstdio>
#include <utility>

#include "support/root_world.h"

namespace tenuto::test {
namespace {

TEST(root_crash, the_root_is_the_old_one_or_the_new_one) {
  const CrashResult r = explore_root_growth(root_growth_options());
  EXPECT_TRUE(r.ok()) << r.text();
  const std::pair<const char*, const char*> fences[] = {{"undo entries", "in-place stores"},
                                                        {"modified data", "commit record"},
                                                        {"commit record", "freed bits"},
                                                        {"undone bytes and bits", "lane retired"}};
  for (const auto& [first, then] : fences) {
    EXPECT_TRUE(r.explored(first, then)) << first << " | " << then;
  }
  std::printf("%llu points, %llu states, %llu in recovery, %llu checks, %.1f s\n",
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.unique),
              static_cast<unsigned long long>(r.recovery_states),
              static_cast<unsigned long long>(r.checks), r.seconds);
}

TEST(root_crash, every_dropped_fence_is_found) {
  const std::pair<const char*, const char*> drops[] = {{"undo entries", "in-place stores"},
                                                       {"modified data", "commit record"},
                                                       {"commit record", "freed bits"}};
  for (const auto& [first, then] : drops) {
    CrashOptions o = root_growth_options();
    o.findings_max = 1;
    o.minimise = false;
    o.mutation = {Mutation::Kind::drop_fence, first, then, 0};
    EXPECT_FALSE(explore_root_growth(o).ok()) << first << " | " << then;
  }
}

}  // namespace
}  // namespace tenuto::test
