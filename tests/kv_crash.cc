// The store under the crash explorer: small scripts that reach every branch of its protocols, each
// judged against the exact model (support/kv_world.h). Then fences are dropped, and the scripts
// must find each loss. planted_crash.cc plants other mistakes.
#include <gtest/gtest.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "support/explored.h"
#include "support/kv_world.h"

namespace tenuto::test {
namespace {

// Each named fence must have been crashed at. No test names "split finished | store is used": a
// crash there leaves the unfinished or the finished split, and both are crash states of the split
// itself, which are not judged twice.
void expect_sound(KvCrash subject, const Fences& fences,
                  const CrashOptions& options = kv_crash_options()) {
  expect_explored(subject.run(options), fences);
}

TEST(kv_crash, single_operations_are_there_or_not) {
  expect_sound(kv_single_operations(), {{"record and slot", "leaf header"},
                                        {"leaf header", "insert returns"},
                                        {"record", "slot"},
                                        {"slot", "update returns, old record is retired"},
                                        {"leaf bitmap", "erase returns, record is retired"}});
}
TEST(kv_crash, a_half_split_keeps_every_key) {
  expect_sound(kv_half_split(),
               {{"new leaf", "chain link"}, {"chain link", "leaf lock is released"}});
}
TEST(kv_crash, an_append_split_keeps_every_key) {
  expect_sound(kv_append_split(), {{"chain link", "leaf lock is released"}});
}
TEST(kv_crash, long_separators_are_whole) {
  expect_sound(kv_long_separators(), {{"new leaf", "chain link"}});
}
TEST(kv_crash, an_empty_leaf_goes_without_a_trace) {
  expect_sound(kv_unlink(), {{"leaf unlinked", "leaf is retired"}});
}
TEST(kv_crash, a_leaf_goes_before_the_heap_knows_its_blocks) {
  expect_sound(kv_unlink_after_a_kill(), {{"leaf unlinked", "leaf is retired"},
                                          {"frames given back", "frames handed out again"}});
}
TEST(kv_crash, a_batch_is_there_or_not) {
  expect_sound(kv_batches(), {{"new leaf", "chain link"}});
}

TEST(kv_crash, images_of_leaves_are_left_used_and_given_back) {
  expect_sound(kv_images(), {{"image's name", "its blocks are given back"},
                             {"store's counts", "the heap is closed"}});
}
TEST(kv_crash, a_bulk_load_is_there_or_not) {
  expect_sound(kv_bulk(), {{"bulk leaves", "bulk chain"}, {"bulk chain", "bulk load returns"}},
               kv_bulk_options());
}
TEST(kv_crash, a_bulk_load_over_empty_leaves_is_there_or_not) {
  expect_sound(kv_bulk_over_empty_leaves(),
               {{"leaf unlinked", "leaf is retired"}, {"bulk chain", "bulk load returns"}},
               kv_bulk_options());
}
TEST(kv_crash, a_compaction_keeps_every_record) {
  expect_sound(kv_compaction(),
               {{"copies of records", "slots of copies"},
                {"slots of copies", "old records are retired"},
                {"new leaf", "chain link"},
                {"leaf unlinked", "leaf is retired"},
                {"slab header erased", "its frame is given back"}},
               kv_compaction_options());
}
TEST(kv_crash, a_compaction_in_key_order_keeps_every_record) {
  expect_sound(kv_key_order(),
               {{"copies of records", "slots of copies"},
                {"slots of copies", "old records are retired"},
                {"new leaf", "chain link"},
                {"slab header erased", "its frame is given back"}},
               kv_compaction_options());
}
TEST(kv_crash, a_moved_record_is_in_one_place) {
  expect_sound(
      kv_moved_records(),
      {{"copies of records", "slots of copies"}, {"slots of copies", "old records are retired"}},
      kv_moved_options());
}
TEST(kv_crash, a_store_is_created_or_not) {
  expect_sound(kv_creation(), {{"first leaf", "store is named"},
                               {"store is named", "store is named again"},
                               {"store is named again", "store is used"},
                               {"store's counts", "the heap is closed"}});
}

TEST(kv_crash, every_dropped_fence_is_found) {
  const struct {
    const char* first;
    const char* then;
    KvCrash subject;
    CrashOptions options = kv_crash_options();
  } drops[] = {
      {"record and slot", "leaf header", kv_single_operations()},
      {"leaf header", "insert returns", kv_single_operations()},
      {"record", "slot", kv_single_operations()},
      {"slot", "update returns, old record is retired", kv_single_operations()},
      {"leaf bitmap", "erase returns, record is retired", kv_single_operations()},
      {"new leaf", "chain link", kv_half_split()},
      {"copies of records", "slots of copies", kv_moved_records(), kv_moved_options()},
      {"slots of copies", "old records are retired", kv_moved_records(), kv_moved_options()},
      {"bulk leaves", "bulk chain", kv_bulk(), kv_bulk_options()},
      {"bulk chain", "bulk load returns", kv_bulk(), kv_bulk_options()},
      {"first leaf", "store is named", kv_creation()}};
  for (const auto& drop : drops) {
    CrashOptions o = drop.options;
    o.findings_max = 1;
    o.minimise = false;
    o.mutation = {Mutation::Kind::drop_fence, drop.first, drop.then, 0};
    KvCrash subject = drop.subject;
    const CrashResult r = subject.run(o);
    EXPECT_FALSE(r.ok()) << drop.first << " | " << drop.then;
    std::printf("without %-16s found after %llu checks, %.2f s\n", drop.first,
                static_cast<unsigned long long>(r.checks), r.seconds);
  }
}

}  // namespace
}  // namespace tenuto::test
