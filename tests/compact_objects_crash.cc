// Objects are moved, under the crash explorer (support/compact_objects_world.h). planted_crash.cc
// plants mistakes.
#include <gtest/gtest.h>

#include <utility>

#include "support/compact_objects_world.h"
#include "support/explored.h"

namespace tenuto::test {
namespace {

TEST(compact_objects_crash, every_object_is_where_it_was_or_where_it_went) {
  expect_explored(explore_compacted_objects(compacted_objects_options()),
                  {{"undo entries", "in-place stores"},
                   {"modified data", "commit record"},
                   {"commit record", "freed bits"},
                   {"undone bytes and bits", "lane retired"}});
}

TEST(compact_objects_crash, the_same_in_a_pool_that_collects_after_a_crash) {
  const CrashResult r = explore_compacted_objects(compacted_objects_options(), Consistency::gc);
  EXPECT_TRUE(r.ok()) << r.text();
}

TEST(compact_objects_crash, every_dropped_fence_is_found) {
  const std::pair<const char*, const char*> drops[] = {{"undo entries", "in-place stores"},
                                                       {"modified data", "commit record"}};
  for (const auto& [first, then] : drops) {
    CrashOptions o = compacted_objects_options();
    o.findings_max = 1;
    o.minimise = false;
    o.mutation = {Mutation::Kind::drop_fence, first, then, 0};
    EXPECT_FALSE(explore_compacted_objects(o).ok()) << first << " | " << then;
  }
}

}  // namespace
}  // namespace tenuto::test
