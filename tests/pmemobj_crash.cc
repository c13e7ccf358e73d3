// The drop-in for libpmemobj under the crash explorer (support/pmemobj_world.h), and mistakes in it
// that the explorer must find.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "support/explored.h"
#include "support/pmemobj_world.h"

namespace tenuto::test {
namespace {

TEST(pmemobj_crash, each_step_is_done_or_not_done) {
  expect_explored(explore_pmemobj(pmemobj_options()), {{"undo entries", "in-place stores"},
                                                       {"last entries", "allocation bits"},
                                                       {"modified data", "commit record"},
                                                       {"commit record", "freed bits"},
                                                       {"restored bytes", "retirement"}});
}

TEST(pmemobj_crash, every_dropped_fence_is_found) {
  const std::pair<const char*, const char*> drops[] = {{"undo entries", "in-place stores"},
                                                       {"modified data", "commit record"},
                                                       {"commit record", "freed bits"}};
  for (const auto& [first, then] : drops) {
    CrashOptions o = pmemobj_options();
    o.findings_max = 1;
    o.minimise = false;
    o.mutation = {Mutation::Kind::drop_fence, first, then, 0};
    EXPECT_FALSE(explore_pmemobj(o).ok()) << first << " | " << then;
  }
}

struct Mistake {
  const char* plant;
  const char* what;
};
constexpr Mistake kMistakes[] = {
    {"pmemobj_dest_not_logged", "an OID is stored that the undo log has not"},
    {"pmemobj_resized_object_kept", "a realloc frees nothing"},
    {"pmemobj_resized_bytes_not_flushed", "a realloc does not flush what it copied"},
    {"pmemobj_root_not_flushed", "a larger root is not flushed"},
    {"pmemobj_root_word_not_logged", "the undo log has not where the root was"},
    {"pmemobj_list_neighbour_not_logged", "an unlink logs one neighbour only"},
    {"pmemobj_moved_object_not_flushed", "pmemobj_defrag does not flush what it copied"},
    {"pmemobj_moved_oid_not_logged", "pmemobj_defrag stores OIDs that the undo log has not"},
    {"pmemobj_moved_object_kept", "pmemobj_defrag frees nothing"},
    {"pmemobj_value_not_logged", "an action sets a value that the undo log has not"},
};

TEST(pmemobj_crash, every_planted_mistake_is_found) {
  for (const Mistake& m : kMistakes) {
    CrashOptions o = pmemobj_options();
    o.findings_max = 1;
    o.minimise = false;
    o.product_max = 50;
    o.samples_max = 20;
    o.recovery_states_max = 0;
    o.recover_twice = false;
    o.plants = {m.plant};
    EXPECT_FALSE(explore_pmemobj(o).ok()) << m.plant << ": " << m.what;
  }
}

}  // namespace
}  // namespace tenuto::test
