// Transactions over several pools under the crash explorer (support/joint_world.h). Then fences and
// flushes are dropped, and the scripts must find each loss. planted_crash.cc plants other mistakes.
#include <gtest/gtest.h>

#include "support/explored.h"
#include "support/joint_world.h"

namespace tenuto::test {
namespace {

constexpr std::pair<const char*, const char*> kEntries = {"entries of all pools",
                                                          "in-place stores and allocation bits"};
constexpr std::pair<const char*, const char*> kReady = {"undo entries", "in-place stores"};
constexpr std::pair<const char*, const char*> kLines = {"lines of the decider", "others name it"};
constexpr std::pair<const char*, const char*> kPrepared = {"all prepared", "decision"};
constexpr std::pair<const char*, const char*> kDecision = {"decision",
                                                           "commit records of the parts"};
constexpr std::pair<const char*, const char*> kParts = {"commit records of the parts",
                                                        "freed bits"};
constexpr std::pair<const char*, const char*> kRestored = {"restored bytes", "retirement"};
constexpr std::pair<const char*, const char*> kFrame = {"log frame zeroed", "log frame linked"};
constexpr std::pair<const char*, const char*> kTrim = {"log frames unlinked", "log frames reused"};
constexpr std::pair<const char*, const char*> kForgotten = {"decisions forgotten", "pool used"};
constexpr std::pair<const char*, const char*> kUndone = {"undone bytes and bits", "lane retired"};

TEST(joint_crash, words_of_two_pools_change_together) {
  expect_explored(JointCrash(kJointWords, 2).run(joint_crash_options()),
                  {kReady, kEntries, kPrepared, kDecision, kParts, kUndone});
}

TEST(joint_crash, blocks_of_two_pools_are_linked_or_free_together) {
  expect_explored(
      JointCrash(kJointBlocks, 2).run(joint_crash_options()),
      {kReady, kLines, kPrepared, kDecision, kParts, kFrame, kTrim, kForgotten, kUndone});
}

TEST(joint_crash, an_abort_is_in_both_pools) {
  expect_explored(JointCrash(kJointAborts, 2).run(joint_crash_options()),
                  {kReady, kPrepared, kDecision, kParts, kRestored});
}

TEST(joint_crash, logs_that_overflow_are_prepared_too) {
  CrashOptions o = joint_crash_options();  // 50 lines are stored and not fenced at many points
  o.product_max = o.samples_max = crash_scaled(6);
  o.recovery_states_max = crash_scaled(2);
  o.points_percent = 25;
  expect_explored(JointCrash(kJointLogs, 2).run(o),
                  {kReady, kPrepared, kDecision, kParts, kFrame, kTrim});
}

TEST(joint_crash, three_pools_change_together) {
  expect_explored(JointCrash(kJointThree, 3).run(joint_crash_options()),
                  {kReady, kEntries, kPrepared, kDecision, kParts});
}

TEST(joint_crash, a_fence_that_is_dropped_is_noticed) {
  for (const auto& [first, then] : {kEntries, kLines, kPrepared, kDecision, kParts}) {
    CrashOptions o = joint_crash_options();
    o.lint = false;
    o.minimise = false;
    o.findings_max = 1;
    o.points_percent = 50;
    o.mutation = {Mutation::Kind::drop_fence, first, then, 0};
    const bool found =
        !JointCrash(kJointWords, 2).run(o).ok() || !JointCrash(kJointBlocks, 2).run(o).ok();
    EXPECT_TRUE(found) << first << " | " << then;
  }
}

}  // namespace
}  // namespace tenuto::test
