// The mistakes that are planted in transactions over several pools, and what finds them.
#include "support/joint_world.h"
#include "support/planted.h"

namespace tenuto::test {

const std::vector<Planted>& planted_joint_bugs() {
  constexpr const char* kApart = "the pools show no number of steps";
  static const std::vector<Planted> all = {
      {"tx_pools_committed_one_by_one", "each pool commits alone", "joint_words", kApart},
      {"tx_part_not_prepared", "a part is undone without asking", "joint_words", kApart},
      {"tx_prepared_entry_not_seen", "recovery undoes a prepared transaction", "joint_words",
       kApart},
      {"tx_decided_before_prepared", "the decision is stored before the parts are prepared",
       "joint_words", kApart},
      {"tx_parts_commit_before_decision", "a part commits before the decision is durable",
       "joint_words", kApart},
      {"tx_decision_kept_by_recovery",
       "the pool that decides undoes its transaction and keeps the decisions", "joint_words",
       kApart},
      {"tx_decision_overwritten_early", "two parts have one decision line", "joint_three", kApart},
      {"tx_new_blocks_of_a_part_not_flushed", "the blocks of all parts stay in the cache",
       "joint_blocks", "show no number of steps|a block leaked"},
      {"tx_overwritten_bytes_of_a_part_forgotten",
       "what one pool overwrites and another one counts is not flushed before", "joint_words",
       "a slot that another pool counts"},
      {"tx_decider_without_entries",
       "the pool that decides has only frees, and is named before its lines are durable",
       "joint_blocks", "a pool stays in doubt"},
      {"tx_frees_of_a_decided_part_forgotten",
       "a part that commits at its open does not finish its frees", "joint_blocks",
       "a block leaked"},
  };
  return all;
}

namespace {
Scenario joint_scenario(const char* name, const JointScript& script, std::size_t pools) {
  return {name,
          [&script, pools](const CrashOptions& o) { return JointCrash(script, pools).run(o); },
          joint_crash_options()};
}
}  // namespace

std::vector<Scenario> joint_scenarios() {
  return {joint_scenario("joint_words", kJointWords, 2),
          joint_scenario("joint_blocks", kJointBlocks, 2),
          joint_scenario("joint_three", kJointThree, 3)};
}

}  // namespace tenuto::test
