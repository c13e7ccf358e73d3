// Pool files under the crash explorer (support/pm_world.h): their states and their growth.
// heap_crash and tx_crash crash lanes and log lines.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/pm_world.h"

namespace tenuto::test {
namespace {

void expect_sound(const CrashResult& r) {
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_TRUE(r.unexplored().empty()) << r.unexplored().front();
  std::printf("%s\n", r.text().c_str());
}

TEST(PmCrash, a_clean_state_promises_all_that_was_written) {
  expect_sound(explore_pool_states(pm_crash_options()));
}
TEST(PmCrash, a_zone_is_formatted_or_not_there) {
  expect_sound(explore_pool_growth(pm_crash_options()));
}

TEST(PmCrash, time_does_not_go_back) {
  expect_sound(explore_pool_times(pm_crash_options()));
  CrashOptions o = pm_crash_options();
  o.mutation = {Mutation::Kind::drop_fence, "times", "lifetimes go by them", 0};
  EXPECT_FALSE(explore_pool_times(o).ok());
}

}  // namespace
}  // namespace tenuto::test
