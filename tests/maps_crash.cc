// The maps of a pool under the crash explorer, by scripts (support/maps_world.cc). planted_crash.cc
// plants mistakes.
#include <gtest/gtest.h>

#include <cstdio>

#include "support/maps_world.h"
#include "tenuto/crash.h"

namespace tenuto::test {
namespace {

void expect_sound(const MapScript& script) {
  const CrashResult r = MapsCrash(script).run(maps_crash_options());
  EXPECT_TRUE(r.ok()) << r.text();
  std::printf("%llu points, %llu states, %llu in recovery, %llu checks, %.1f s\n",
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.unique),
              static_cast<unsigned long long>(r.recovery_states),
              static_cast<unsigned long long>(r.checks), r.seconds);
}

TEST(maps_crash, a_leaf_that_splits_keeps_every_key) { expect_sound(kMapGrows); }
TEST(maps_crash, a_root_that_splits_keeps_every_key) { expect_sound(kMapThirdLevel); }
TEST(maps_crash, nodes_that_merge_keep_every_key) { expect_sound(kMapShrinks); }
TEST(maps_crash, slots_that_are_used_again_come_back) { expect_sound(kMapReuses); }
TEST(maps_crash, a_bucket_that_splits_keeps_every_key) { expect_sound(kTableGrows); }
TEST(maps_crash, erased_keys_leave_the_others) { expect_sound(kTableShrinks); }
TEST(maps_crash, slots_of_buckets_that_are_used_again_come_back) { expect_sound(kTableReuses); }
TEST(maps_crash, a_bucket_that_is_merged_keeps_every_key) { expect_sound(kTableMerges); }
TEST(maps_crash, buckets_behind_a_merged_one_are_merged) { expect_sound(kTableMergesChains); }

}  // namespace
}  // namespace tenuto::test
