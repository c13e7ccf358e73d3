// SIGKILL at random points, hundreds of times: a bounded run of the loop of `tenuto crash kill`.
// Then its judge has to find the bugs that children are given.
//
// TENUTO_KILLS sets the number of kills, TENUTO_SEED the seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "crash_kill.h"
#include "support/seed.h"

namespace tenuto::test {
namespace {

using tool::KillBug;
using tool::KillOptions;
using tool::KillReport;
using tool::KillTotals;

KillOptions bounded() {
  KillOptions o;
  o.seed = tenuto::test::test_seed();
  o.findings = testing::TempDir();
  // With a sanitizer a child does a fraction of the work in its time: some 3 compactions in 100
  // lives.
  if (kSanitized) {
    o.work_us_max *= 4;
    o.long_work_us_max *= 4;
  }
  return o;
}

TEST(KillStress, nothing_acknowledged_is_lost_and_nothing_leaks) {
  KillOptions o = bounded();
  o.kills = from_env("TENUTO_KILLS", fewer_if_sanitized(400, 4));
  SCOPED_TRACE("TENUTO_SEED=" + std::to_string(o.seed));
  const KillReport r = kill_loop(o);
  ASSERT_FALSE(r.error) << r.error.text();
  const KillTotals& t = r.totals;
  std::printf(
      "%lu kills (%lu in recovery, %lu in the check), %lu pools, %lu key operations (%lu batches, "
      "%lu transactions, %lu cut off, %lu full), %lu compactions, %lu steps, %lu unclean opens, "
      "%lu rolled back, %lu frames given "
      "back, %lu morphed slabs seen, recovery mean %.2f ms, max %.2f ms, %.1f s\n",
      t.kills, t.in_recovery, t.in_check, t.pools, t.key_operations, t.batches, t.key_transactions,
      t.pending_operations, t.full, t.compactions, t.steps, t.unclean_opens, t.rolled_back,
      t.leaked_frames, t.morphed_slabs, t.recovery_ms_mean, t.recovery_ms_max, t.seconds);
  for (const auto& f : r.findings) ADD_FAILURE() << "kill " << f.kill << ": " << f.text << f.folder;
  EXPECT_EQ(t.kills, r.findings.empty() ? o.kills : t.kills);
  EXPECT_GT(t.key_operations, t.kills) << "the children hardly did anything: this proves nothing";
  // The rarest operation: on a slow machine under ThreadSanitizer one for each second kill.
  EXPECT_GT(t.key_transactions, t.kills / 10);
  EXPECT_GT(t.compactions, 0u);
  EXPECT_GT(t.steps, t.kills);
  EXPECT_GT(t.sights, t.kills / 3);
  EXPECT_GT(t.morphed_slabs, t.kills / 20) << "the sizes do not change enough to morph slabs";
}

// What is not synced may be lost there, so the children sync before they acknowledge.
TEST(KillStress, nothing_synced_is_lost_on_medium_journal) {
  KillOptions o = bounded();
  o.kills = from_env("TENUTO_KILLS", fewer_if_sanitized(120, 4));
  o.medium = Medium::journal;
  SCOPED_TRACE("TENUTO_SEED=" + std::to_string(o.seed));
  const KillReport r = kill_loop(o);
  ASSERT_FALSE(r.error) << r.error.text();
  for (const auto& f : r.findings) ADD_FAILURE() << "kill " << f.kill << ": " << f.text << f.folder;
  EXPECT_EQ(r.totals.kills, r.findings.empty() ? o.kills : r.totals.kills);
  EXPECT_GT(r.totals.key_operations, r.totals.kills / 2) << "the children hardly did anything";
  EXPECT_GT(r.totals.steps, r.totals.kills / 2);
  EXPECT_GT(r.totals.sights, r.totals.kills / 4);
}

// The words of findings about a history that no order explains.
const std::string kHistory = "a get saw|an erase (found|missed)|nobody touched|no order";

// Under ThreadSanitizer a get from an old copy is found after 27 kills in the mean, and one of ten
// times not within 60.
constexpr std::uint64_t kKillsMax = 400;

// The loop must find a bug that the child's wrappers make, and the finding must name that bug.
class KillBugs : public testing::Test {
 protected:
  void expect_found(KillBug bug, std::uint32_t engines, const std::string& words,
                    std::vector<tool::KillMix> mixes = {}) {
    KillOptions o = bounded();
    if (!mixes.empty()) o.mixes = mixes;
    o.kills = kKillsMax;
    o.engines = engines;
    o.threads = {2, 4};
    o.bug = bug;
    o.findings.clear();
    SCOPED_TRACE("TENUTO_SEED=" + std::to_string(o.seed));
    const KillReport r = kill_loop(o);
    ASSERT_FALSE(r.error) << r.error.text();
    ASSERT_EQ(r.findings.size(), 1u) << "not found in " << r.totals.kills << " kills";
    EXPECT_THAT(r.findings[0].text, testing::ContainsRegex(words));
    std::printf("found at kill %lu: %s\n", r.findings[0].kill, r.findings[0].text.c_str());
  }
};

TEST_F(KillBugs, a_put_that_is_acknowledged_and_not_done) {
  expect_found(KillBug::forget_put, tool::kEngineKv, kHistory);
}
TEST_F(KillBugs, a_put_that_is_acknowledged_before_it_is_done) {
  expect_found(KillBug::early_ack, tool::kEngineKv, kHistory);
}
// As bench/main_job runs it.
TEST_F(KillBugs, a_put_that_is_acknowledged_and_not_done_in_ycsb_a) {
  expect_found(KillBug::forget_put, tool::kEngineKv, kHistory, {tool::KillMix::ycsb_a});
}
TEST_F(KillBugs, a_put_that_is_acknowledged_before_it_is_done_in_ycsb_a) {
  expect_found(KillBug::early_ack, tool::kEngineKv, kHistory, {tool::KillMix::ycsb_a});
}
TEST_F(KillBugs, a_get_that_answers_from_an_old_copy) {
  expect_found(KillBug::stale_read, tool::kEngineKv, kHistory);
}
TEST_F(KillBugs, a_batch_that_is_written_entry_by_entry) {
  expect_found(KillBug::torn_batch, tool::kEngineBatch, "a batch is half there|" + kHistory);
}
TEST_F(KillBugs, a_batch_that_is_written_collection_by_collection) {
  expect_found(KillBug::parted_batch, tool::kEngineBatch, "a batch is half there|" + kHistory);
}
TEST_F(KillBugs, a_block_that_is_detached_and_never_freed) {
  expect_found(KillBug::lost_block, tool::kEngineHeap, "objects allocated, .* reachable");
}
TEST_F(KillBugs, a_store_in_a_transaction_that_was_not_added) {
  expect_found(KillBug::unlogged_store, tool::kEngineObjects, "balance|half there|cell");
}

}  // namespace
}  // namespace tenuto::test
