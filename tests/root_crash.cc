// The root object grows, under the crash explorer (support/root_world.h): after every crash it is
// the old one or the new one, and nothing leaks. planted_crash.cc plants mistakes.
#include <gtest/gtest.h>

#include <utility>

#include "support/explored.h"
#include "support/root_world.h"

namespace tenuto::test {
namespace {

TEST(root_crash, the_root_is_the_old_one_or_the_new_one) {
  expect_explored(explore_root_growth(root_growth_options()),
                  {{"undo entries", "in-place stores"},
                   {"modified data", "commit record"},
                   {"commit record", "freed bits"},
                   {"undone bytes and bits", "lane retired"}});
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
