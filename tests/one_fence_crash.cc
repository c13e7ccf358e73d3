// Stores of one fence under the crash explorer: the scripts of kv_crash.cc with the other protocol,
// and those that only this one has to fear (support/one_fence_world.h). Then fences are dropped,
// each of which must be missed. planted_crash.cc plants other mistakes.
#include <gtest/gtest.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "support/kv_world.h"
#include "support/one_fence_world.h"

namespace tenuto::test {
namespace {

constexpr CommitProtocol kOneFence = CommitProtocol::one_fence;

using Fences = std::vector<std::pair<const char*, const char*>>;

void expect_sound(KvCrash subject, const Fences& fences,
                  const CrashOptions& options = one_fence_options()) {
  const CrashResult r = subject.run(options);
  EXPECT_TRUE(r.ok()) << r.text();
  for (const auto& [first, then] : fences) {
    EXPECT_TRUE(r.explored(first, then)) << first << " | " << then;
  }
  std::printf("%llu points, %llu states, %llu in recovery, %llu checks, %.1f s\n",
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.unique),
              static_cast<unsigned long long>(r.recovery_states),
              static_cast<unsigned long long>(r.checks), r.seconds);
}

TEST(one_fence_crash, single_operations_are_there_or_not) {
  expect_sound(kv_single_operations(kOneFence),
               {{"record and its slot", "insert returns"},
                {"record and its slot", "replaced slot is emptied"},
                {"emptied slot", "erase returns, record is retired"},
                {"dropped slots", "store is used"}});
}
TEST(one_fence_crash, large_records_are_there_or_not) {
  expect_sound(kv_large_records(kOneFence), {{"record", "slot"}});
}
TEST(one_fence_crash, a_half_split_keeps_every_key) {
  expect_sound(kv_half_split(kOneFence), {{"new leaf", "chain link"},
                                          {"chain link", "moved slots are emptied"},
                                          {"moved slots", "leaf lock is released"}});
}
TEST(one_fence_crash, an_append_split_keeps_every_key) {
  expect_sound(kv_append_split(kOneFence), {{"chain link", "moved slots are emptied"}});
}
TEST(one_fence_crash, long_separators_are_whole) {
  expect_sound(kv_long_separators(kOneFence), {{"new leaf", "chain link"}});
}
TEST(one_fence_crash, an_empty_leaf_goes_without_a_trace) {
  expect_sound(kv_unlink(kOneFence), {{"leaf unlinked", "leaf is retired"}});
}
TEST(one_fence_crash, a_batch_is_there_or_not) {
  expect_sound(kv_batches(kOneFence), {{"new leaf", "chain link"}});
}
TEST(one_fence_crash, a_bulk_load_is_there_or_not) {
  expect_sound(kv_bulk(kOneFence), {{"bulk chain", "bulk load returns"}}, kv_bulk_options());
}
TEST(one_fence_crash, a_store_is_created_or_not) {
  expect_sound(kv_creation(kOneFence),
               {{"first leaf", "store is named"}, {"store's counts", "the heap is closed"}});
}

TEST(one_fence_crash, replaced_records_are_used_again_only_when_their_slots_are_empty) {
  expect_sound(one_fence_updates(), {{"replaced slots", "their records are freed"}});
}
TEST(one_fence_crash, updated_keys_move_and_change_again) {
  expect_sound(one_fence_updates_and_split(), {{"moved slots", "leaf lock is released"}});
}
TEST(one_fence_crash, a_stale_record_never_fits_a_slot) {
  expect_sound(one_fence_stale_record(), {});
}
TEST(one_fence_crash, a_record_that_was_given_up_is_durable_or_never_was) {
  expect_sound(one_fence_given_up_record(), {{"record given up", "its block is used again"}});
}
TEST(one_fence_crash, records_that_snapshots_kept_are_used_again) {
  expect_sound(one_fence_kept_records(), {{"replaced slot", "old version is shown"}});
}

// But two of them, "moved slots" and "replaced slots": the thread's next fence comes before
// anything can go wrong, unless another thread comes between, as in kv_model.
TEST(one_fence_crash, every_dropped_fence_is_found) {
  const struct {
    const char* first;
    const char* then;
    KvCrash subject;
  } drops[] = {
      {"record", "slot", kv_large_records(kOneFence)},
      {"record and its slot", "insert returns", kv_single_operations(kOneFence)},
      {"record and its slot", "replaced slot is emptied", kv_single_operations(kOneFence)},
      {"emptied slot", "erase returns, record is retired", kv_single_operations(kOneFence)},
      {"new leaf", "chain link", kv_half_split(kOneFence)},
      {"chain link", "moved slots are emptied", kv_half_split(kOneFence)},
      {"record given up", "its block is used again", one_fence_given_up_record()}};
  for (const auto& drop : drops) {
    CrashOptions o = one_fence_options();
    o.findings_max = 1;
    o.minimise = false;
    o.mutation = {Mutation::Kind::drop_fence, drop.first, drop.then, 0};
    KvCrash subject = drop.subject;
    const CrashResult r = subject.run(o);
    EXPECT_FALSE(r.ok()) << drop.first << " | " << drop.then;
    std::printf("without %-20s found after %llu checks, %.2f s\n", drop.first,
                static_cast<unsigned long long>(r.checks), r.seconds);
  }
}

}  // namespace
}  // namespace tenuto::test
