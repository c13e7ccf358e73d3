// Transactions under the crash explorer, by scripts on a small world (support/tx_scripts.h). Then
// fences are dropped, and the scripts must find each loss. planted_crash.cc plants other mistakes.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "support/tx_scripts.h"
#include "tenuto/crash.h"

namespace tenuto::test {
namespace {

struct Fence {
  const char* first;
  const char* then;
};

// Expects that every named fence was crashed at.
void expect_sound(const Script& script, const std::vector<Fence>& fences) {
  std::vector<bool> explored(fences.size(), false);
  for (std::uint64_t seed = 1; seed <= crash_scaled(1); ++seed) {
    const CrashResult r = TxCrash(script, seed).run(tx_crash_options());
    EXPECT_TRUE(r.ok()) << "seed " << seed << "\n" << r.text();
    for (std::size_t i = 0; i < fences.size(); ++i) {
      explored[i] = explored[i] || r.explored(fences[i].first, fences[i].then);
    }
    std::printf("seed %llu: %llu points, %llu states, %llu in recovery, %llu checks, %.1f s\n",
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(r.points),
                static_cast<unsigned long long>(r.unique),
                static_cast<unsigned long long>(r.recovery_states),
                static_cast<unsigned long long>(r.checks), r.seconds);
  }
  for (std::size_t i = 0; i < fences.size(); ++i) {
    EXPECT_TRUE(explored[i]) << fences[i].first << " | " << fences[i].then;
  }
}

constexpr Fence kReady = {"undo entries", "in-place stores"};
constexpr Fence kLateAlloc = {"last entries", "allocation bits"};
constexpr Fence kData = {"modified data", "commit record"};
constexpr Fence kCommit = {"commit record", "freed bits"};
constexpr Fence kOneFree = {"one free and its commit record", "freed bits"};
constexpr Fence kRestored = {"restored bytes", "retirement"};
constexpr Fence kRetired = {"retirement", "locks and blocks"};
constexpr Fence kDrain = {"freed bits", "drained mark"};
constexpr Fence kDrained = {"drained mark", "freed blocks reused"};
constexpr Fence kFrame = {"log frame zeroed", "log frame linked"};
constexpr Fence kTrim = {"log frames unlinked", "log frames reused"};
constexpr Fence kUndone = {"undone bytes and bits", "lane retired"};
constexpr Fence kPoolUsed = {"lane retired", "pool used"};

TEST(tx_crash, transfers_are_never_seen_half) {
  expect_sound(kTransfers, {kReady, kData, kCommit, kUndone, kPoolUsed});
}

TEST(tx_crash, blocks_are_linked_or_free) {
  expect_sound(kBlocks, {kReady, kLateAlloc, kData, kCommit, kDrain, kDrained});
}

TEST(tx_crash, blocks_that_were_reserved_before_are_linked_or_free) {
  expect_sound(kAdopted, {kReady, kData, kCommit});
}

TEST(tx_crash, blocks_with_types_are_found_when_they_are_linked) {
  expect_sound(kTypes, {kReady, kData, kCommit});
}

TEST(tx_crash, blocks_of_a_morphed_slab_are_linked_or_free) {
  constexpr Fence kStripes = {"empty stripes of the new part", "slab shape"};
  constexpr Fence kShape = {"slab shape", "blocks of the new part are handed out"};
  expect_sound(kMorphed, {kReady, kData, kCommit, kStripes, kShape});
}

TEST(tx_crash, an_abort_is_as_if_nothing_was) {
  expect_sound(kAborts, {kReady, kRestored, kRetired, kCommit});
}

TEST(tx_crash, an_overflown_log_is_whole_or_nothing) {
  expect_sound(kOverflow, {kReady, kFrame, kTrim, kRestored, kRetired});
}

TEST(tx_crash, what_was_rolled_back_belongs_to_others) {
  expect_sound(kAbortLanes, {kReady, kRestored, kRetired});
}

TEST(tx_crash, fields_are_stored_together_or_not) {
  expect_sound(kFields, {kReady, kData, kCommit, kRestored, kRetired});
}

TEST(tx_crash, overwritten_bytes_have_a_value_once_they_are_counted) {
  constexpr Fence kOverwritten = {"overwritten bytes", "commit returns"};
  expect_sound(kAppends, {kOverwritten, kReady, kData, kCommit, kRestored, kRetired});
}

TEST(tx_crash, what_a_savepoint_undoes_has_no_effect) {
  expect_sound(kSavepoints, {kReady, kData, kCommit});
}

TEST(tx_crash, a_free_alone_is_done_or_not_done) {
  expect_sound(kOneFrees, {kOneFree, kData, kCommit, kRestored});
}

TEST(tx_crash, lanes_need_no_common_order) {
  expect_sound(kLanes, {kReady, kData, kCommit, kRestored, kRetired});
}

// Each of these fences is needed: some crash shows its loss. "lane retired | pool used" is not
// needed, because recovery ends with fences of the heap and of the pool file, which cover it. No
// script shows the loss of "drained mark" yet.
TEST(tx_crash, every_dropped_fence_is_found) {
  const struct {
    Fence fence;
    const Script* script;
    std::size_t recovery_states = 5;
  } drops[] = {{kReady, &kTransfers},      {kData, &kTransfers},  {kCommit, &kTransfers},
               {kLateAlloc, &kBlocks},     {kRestored, &kAborts}, {kRetired, &kAborts},
               {kDrain, &kBlocks},         {kFrame, &kOverflow},  {kTrim, &kReusedFrame},
               {kUndone, &kTransfers, 20}, {kOneFree, &kOneFrees}};
  for (const auto& d : drops) {
    bool found = false;
    for (std::uint64_t seed = 1; seed <= 4 && !found; ++seed) {
      CrashOptions o = tx_crash_options();
      o.findings_max = 1;
      o.minimise = false;
      o.recovery_states_max = crash_scaled(d.recovery_states);
      o.mutation = {Mutation::Kind::drop_fence, d.fence.first, d.fence.then, 0};
      found = !TxCrash(*d.script, seed).run(o).ok();
    }
    EXPECT_TRUE(found) << d.fence.first << " | " << d.fence.then;
  }
}

}  // namespace
}  // namespace tenuto::test
