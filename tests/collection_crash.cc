// Collections under the crash explorer: made, dropped, renamed and written together, each step
// judged against the exact model (support/collection_world.h). planted_crash.cc plants mistakes.
#include <gtest/gtest.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "support/collection_world.h"
#include "support/explored.h"
#include "support/kv_world.h"

namespace tenuto::test {
namespace {

// `share` divides the numbers of states that kv_crash samples a point, for slow checks.
void expect_sound(CollectionCrash subject, const Fences& fences, std::uint64_t share = 2) {
  CrashOptions options = kv_crash_options();
  options.product_max /= share;
  options.samples_max /= share;
  expect_explored(subject.run(options), fences);
}

TEST(collection_crash, a_collection_is_made_or_not) {
  expect_sound(collections_made(), {{"catalog's first leaf", "catalog is named"},
                                    {"catalog is named", "catalog is named again"},
                                    {"catalog is named again", "catalog is used"},
                                    {"record and slot", "leaf header"},
                                    {"store's counts", "the heap is closed"}});
}
TEST(collection_crash, a_dropped_collection_goes_without_a_trace) {
  expect_sound(collections_dropped(), {{"leaf bitmap", "erase returns, record is retired"}});
}
TEST(collection_crash, a_renamed_collection_has_one_name) {
  expect_sound(collections_renamed(), {});
}
TEST(collection_crash, a_batch_over_collections_is_there_or_not) {
  expect_sound(collections_in_batches(), {{"new leaf", "chain link"}}, 10);
}
TEST(collection_crash, a_transaction_makes_fills_and_drops_collections_at_once) {
  expect_sound(collections_in_transactions(),
               {{"undo entries", "in-place stores"},
                {"store's counts", "the heap is closed"},
                {"leaf bitmap", "erase returns, record is retired"}},
               4);
}
TEST(collection_crash, a_catalog_of_two_leaves_keeps_every_name) {
  expect_sound(collections_in_two_leaves(), {{"new leaf", "chain link"}}, 10);
}

TEST(collection_crash, every_dropped_fence_is_found) {
  const std::pair<const char*, const char*> drops[] = {
      {"catalog's first leaf", "catalog is named"},
      {"catalog is named", "catalog is named again"},
      {"record and slot", "leaf header"}};
  for (const auto& [first, then] : drops) {
    CrashOptions o = kv_crash_options();
    o.findings_max = 1;
    o.minimise = false;
    o.mutation = {Mutation::Kind::drop_fence, first, then, 0};
    const CrashResult r = collections_made().run(o);
    EXPECT_FALSE(r.ok()) << first << " | " << then;
    std::printf("without %-22s found after %llu checks, %.2f s\n", first,
                static_cast<unsigned long long>(r.checks), r.seconds);
  }
}

}  // namespace
}  // namespace tenuto::test
