// Transactions under the crash explorer, by scripts on a small world (support/tx_world.h). Then
// fences are dropped and mistakes planted, each of which must be found.
//
// TENUTO_CRASH_SCALE multiplies the number of seeds and of sampled crash states (default 1).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/tx_world.h"
#include "tenuto/crash.h"

namespace tenuto::test {
namespace {

std::size_t scaled(std::size_t n) {
  static const char* const text = std::getenv("TENUTO_CRASH_SCALE");
  return static_cast<std::size_t>(static_cast<double>(n) * (text == nullptr ? 1 : std::atof(text)));
}

CrashOptions options() {
  CrashOptions o;
  o.product_max = scaled(150);
  o.samples_max = scaled(50);
  o.recovery_states_max = scaled(5);
  return o;
}

struct Fence {
  const char* first;
  const char* then;
};

// Every fence named here must have been crashed at.
void expect_sound(const Script& script, const std::vector<Fence>& fences) {
  std::vector<bool> explored(fences.size(), false);
  for (std::uint64_t seed = 1; seed <= scaled(1); ++seed) {
    const CrashResult r = TxCrash(script, seed).run(options());
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
constexpr Fence kRestored = {"restored bytes", "retirement"};
constexpr Fence kRetired = {"retirement", "locks and blocks"};
constexpr Fence kDrain = {"freed bits", "drained mark"};
constexpr Fence kDrained = {"drained mark", "freed blocks reused"};
constexpr Fence kFrame = {"log frame zeroed", "log frame linked"};
constexpr Fence kTrim = {"log frames unlinked", "log frames reused"};
constexpr Fence kUndone = {"undone bytes and bits", "lane retired"};
constexpr Fence kPoolUsed = {"lane retired", "pool used"};

const Script kTransfers = {Op::transfer, Op::transfer, Op::one_by_one, Op::batch, Op::transfer};
const Script kBlocks = {Op::link,    Op::replace, Op::late_link, Op::cancel,     Op::unlink,
                        Op::replace, Op::link,    Op::unlink,    Op::link_large, Op::drain,
                        Op::link,    Op::unlink,  Op::replace};
const Script kAborts = {Op::link,         Op::abort_stores, Op::transfer,     Op::abort_early,
                        Op::abort_stores, Op::unlink,       Op::abort_stores, Op::link,
                        Op::abort_early,  Op::replace,      Op::transfer};
const Script kOverflow = {Op::overflow, Op::abort_overflow, Op::transfer, Op::overflow,
                          Op::drain,    Op::overflow,       Op::link};

const Script kLanes = {{Op::link_many, 0},    {Op::unlink_many, 0}, {Op::link_large, 1},
                       {Op::cancel_many, 0},  {Op::link_large, 1},  {Op::transfer, 1},
                       {Op::abort_stores, 0}, {Op::unlink, 1},      {Op::link_large, 0}};

// The second lane changes what the first has rolled back.
const Script kAbortLanes = {{Op::link, 0},  {Op::abort_stores, 0}, {Op::batch, 1},
                            {Op::link, 1},  {Op::transfer, 0},     {Op::abort_stores, 0},
                            {Op::batch, 1}, {Op::transfer, 0}};

TEST(tx_crash, transfers_are_never_seen_half) {
  expect_sound(kTransfers, {kReady, kData, kCommit, kUndone, kPoolUsed});
}

TEST(tx_crash, blocks_are_linked_or_free) {
  expect_sound(kBlocks, {kReady, kLateAlloc, kData, kCommit, kDrain, kDrained});
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

TEST(tx_crash, lanes_need_no_common_order) {
  expect_sound(kLanes, {kReady, kData, kCommit, kRestored, kRetired});
}

// Each fence of a running transaction is needed: without it there is a crash that shows.
TEST(tx_crash, every_dropped_fence_is_found) {
  const struct {
    Fence fence;
    const Script* script;
  } drops[] = {{kReady, &kTransfers},  {kData, &kTransfers},  {kCommit, &kTransfers},
               {kLateAlloc, &kBlocks}, {kRestored, &kAborts}, {kRetired, &kAborts},
               {kDrain, &kBlocks},     {kFrame, &kOverflow}};
  for (const auto& d : drops) {
    bool found = false;
    for (std::uint64_t seed = 1; seed <= 4 && !found; ++seed) {
      CrashOptions o = options();
      o.findings_max = 1;
      o.minimise = false;
      o.mutation = {Mutation::Kind::drop_fence, d.fence.first, d.fence.then, 0};
      found = !TxCrash(*d.script, seed).run(o).ok();
    }
    EXPECT_TRUE(found) << d.fence.first << " | " << d.fence.then;
  }
}

TEST(tx_crash, every_planted_mistake_is_found) {
  const struct {
    const char* name;
    const Script* script;
  } plants[] = {{"frees done before they are durable", &kBlocks},
                {"no limbo", &kLanes},
                {"cancelled block reused at once", &kLanes},
                {"abort keeps frees_done", &kAborts},
                {"abort reuses its sequence", &kAbortLanes},
                {"log frame linked before it is zeroed", &kOverflow}};
  for (const auto& plant : plants) {
    std::string finding;
    for (std::uint64_t seed = 1; seed <= 4 && finding.empty(); ++seed) {
      CrashOptions o = options();
      o.findings_max = 1;
      o.minimise = false;
      o.plants = {plant.name};
      const CrashResult r = TxCrash(*plant.script, seed).run(o);
      if (!r.ok()) finding = r.findings[0].where + ": " + r.findings[0].what;
    }
    EXPECT_FALSE(finding.empty()) << plant.name;
    std::printf("%-40s %s\n", plant.name, finding.c_str());
  }
}

}  // namespace
}  // namespace tenuto::test
