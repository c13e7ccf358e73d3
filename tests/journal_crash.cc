// The crash scripts of heap, transactions and store on medium journal
// (support/journal_explorer.cc). Power is cut at the writes and syncs of the pool and its journal,
// also at those of checkpoints and replays. An epoch ends after each fence or after every third.
// The scripts' own checks judge what the files then hold. Then mistakes are planted in the medium,
// each of which must show.
//
// TENUTO_CRASH_SCALE multiplies the number of cuts that are tried (default 1).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "support/heap_scripts.h"
#include "support/journal_explorer.h"
#include "support/kv_world.h"
#include "support/tx_scripts.h"

namespace tenuto::test {
namespace {

struct Subject {
  const char* name;
  std::function<CrashResult(const CrashOptions&)> run;
};

CrashResult heap_run(const char* name, const CrashOptions& o) { return run(heap_script(name), o); }
CrashResult tx_run(const Script& script, const CrashOptions& o) {
  return TxCrash(script, o.seed).run(o);
}

const Subject kSubjects[] = {
    {"heap_small_blocks", [](const CrashOptions& o) { return heap_run("small_blocks", o); }},
    {"heap_extents", [](const CrashOptions& o) { return heap_run("extents", o); }},
    {"heap_derived", [](const CrashOptions& o) { return heap_run("derived", o); }},
    {"heap_versioned", [](const CrashOptions& o) { return heap_run("versioned", o); }},
    {"heap_zone_growth", [](const CrashOptions& o) { return heap_run("zone_growth", o); }},
    {"tx_transfers", [](const CrashOptions& o) { return tx_run(kTransfers, o); }},
    {"tx_blocks", [](const CrashOptions& o) { return tx_run(kBlocks, o); }},
    {"tx_aborts", [](const CrashOptions& o) { return tx_run(kAborts, o); }},
    {"tx_overflow", [](const CrashOptions& o) { return tx_run(kOverflow, o); }},
    {"tx_lanes", [](const CrashOptions& o) { return tx_run(kLanes, o); }},
    {"kv_single", [](const CrashOptions& o) { return kv_single_operations().run(o); }},
    {"kv_half_split", [](const CrashOptions& o) { return kv_half_split().run(o); }},
    {"kv_batches", [](const CrashOptions& o) { return kv_batches().run(o); }},
    {"kv_unlink", [](const CrashOptions& o) { return kv_unlink().run(o); }},
};

std::string name_of(const testing::TestParamInfo<Subject>& s) { return s.param.name; }
void PrintTo(const Subject& s, std::ostream* to) { *to << s.name; }

// Returns what is wrong. Odd seeds end an epoch at each fence, even ones after about three fences.
std::string found_in(const Subject& subject, std::uint64_t seed,
                     const std::vector<std::string>& plants = {}) {
  CrashOptions o;
  o.seed = seed;
  o.plants = plants;
  const CrashResult r = subject.run(o);
  return r.findings.empty() ? "" : r.findings[0].what;
}

class JournalCrash : public testing::TestWithParam<Subject> {};

TEST_P(JournalCrash, every_cut_leaves_a_state_that_recovers) {
  const std::uint64_t each = journal_events_per_cut;
  if (crash_scaled(each) > each)
    journal_events_per_cut = std::max(1ul, each * each / crash_scaled(each));
  journal_cuts = {};
  for (const std::uint64_t seed : {1, 2}) EXPECT_EQ(found_in(GetParam(), seed), "") << seed;
  journal_events_per_cut = each;
  const JournalCuts& c = journal_cuts;
  std::printf(
      "%llu states, %llu cut again in recovery; at blocks %llu, headers %llu, the pool "
      "%llu, syncs %llu\n",
      static_cast<unsigned long long>(c.states), static_cast<unsigned long long>(c.in_replay),
      static_cast<unsigned long long>(c.at_blocks), static_cast<unsigned long long>(c.at_headers),
      static_cast<unsigned long long>(c.at_pool), static_cast<unsigned long long>(c.at_syncs));
  EXPECT_GT(c.at_blocks, 4u);
  EXPECT_GT(c.in_replay, 2u);
}

INSTANTIATE_TEST_SUITE_P(Scripts, JournalCrash, testing::ValuesIn(kSubjects), name_of);

#ifdef TENUTO_DEBUG_CHECKS

// Mistakes of the medium, each found by some script's own check. journal_disk_test has those that
// need large blocks (a torn block that is believed).
class JournalCrashPlanted : public testing::TestWithParam<const char*> {};

TEST_P(JournalCrashPlanted, is_found) {
  std::string found;
  for (std::uint64_t seed = 1; seed <= 12 && found.empty(); ++seed) {
    for (const char* name : {"tx_transfers", "kv_single", "tx_blocks"}) {
      const auto subject =
          std::find_if(std::begin(kSubjects), std::end(kSubjects),
                       [&](const Subject& s) { return s.name == std::string(name); });
      found = found_in(*subject, seed, {GetParam()});
      if (found.empty()) continue;
      std::printf("%s, seed %d: %s\n", name, static_cast<int>(seed), found.c_str());
      break;
    }
  }
  EXPECT_NE(found, "") << GetParam();
}

INSTANTIATE_TEST_SUITE_P(
    Plants, JournalCrashPlanted,
    testing::Values("journal_blocks_not_synced", "journal_replay_not_synced",
                    "journal_sync_does_not_wait", "journal_checkpoint_keeps_older_images",
                    "journal_replay_keeps_older_images", "journal_start_before_pool_synced",
                    "journal_block_missed_by_checkpoint", "journal_life_kept",
                    "journal_superblock_not_synced", "journal_clean_before_it_is_empty"),
    [](const auto& plant) { return std::string(plant.param); });

#endif

}  // namespace
}  // namespace tenuto::test
