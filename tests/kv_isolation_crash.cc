// Snapshots and transactions under the crash explorer (support/kv_isolation_world.h). Commits over
// several leaves with active snapshots are there or not, and no old version is left. Threads
// interleaved by the seed leave serialisable histories, cut off at any fence.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/kv_isolation_world.h"

namespace tenuto::test {
namespace {

void expect_sound(const CrashResult& r) {
  EXPECT_TRUE(r.ok()) << r.text();
  std::printf("%llu points, %llu states, %llu checks, %.1f s\n",
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.states),
              static_cast<unsigned long long>(r.checks), r.seconds);
}

TEST(kv_isolation_crash, snapshots_stay_what_they_were_and_nothing_of_them_is_left) {
  CrashOptions o = isolation_crash_options();
  o.points_percent = 20;
  o.samples_max = 4;
  o.product_max = 10;
  o.recovery_states_max = 1;
  expect_sound(explore_snapshots(o));
}

TEST(kv_isolation_crash, interleaved_threads_leave_serialisable_histories) {
  CrashOptions o = isolation_crash_options();
  o.points_percent = 1;
  o.samples_max = 1;
  o.product_max = 2;
  o.recovery_depth = 0;
  o.recover_twice = false;
  const CrashResult r = explore_isolation(o, 5);
  expect_sound(r);
  EXPECT_GT(r.checks, 100u);
}

TEST(kv_isolation_crash, many_schedules_leave_serialisable_histories) {
  const CrashResult r = explore_schedules(schedule_options());
  expect_sound(r);
  EXPECT_GT(r.checks, 100u);
}

}  // namespace
}  // namespace tenuto::test
