// Extents of several cores: each has chunks of its own, borrows where it must, and gives extents
// back to where they came from.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "support/extent_world.h"

namespace tenuto {
namespace {

using World = test::ExtentWorld;

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kKiB = 1u << 10;
std::uint64_t region(PoolOffset o) { return o.value / heap::kChunkBytes; }

TEST(ExtentShards, each_core_takes_from_chunks_of_its_own) {
  World w("shards1", 64 * kMiB);
  w.create();
  std::set<std::uint64_t> regions[2];
  for (int i = 0; i < 60; ++i) {
    for (const unsigned core : {0u, 1u}) {
      regions[core].insert(region(w.take(100 * kKiB, kFrameBytes, core)));
    }
  }
  for (const std::uint64_t r : regions[0]) EXPECT_FALSE(regions[1].contains(r)) << r;
  w.expect_sound();
}

TEST(ExtentShards, an_extent_goes_back_to_its_owner_whoever_frees_it) {
  World w("shards2", 64 * kMiB);
  w.create();
  const PoolOffset mine = w.take(100 * kKiB);
  const PoolOffset other = w.take(100 * kKiB, kFrameBytes, 1);
  w.extents->release(mine, 1);
  w.expect_sound();
  EXPECT_EQ(w.take(100 * kKiB), mine);
  w.extents->release(other, 0);
  EXPECT_EQ(w.take(100 * kKiB, kFrameBytes, 1), other);
  w.expect_sound();
}

TEST(ExtentShards, a_full_pool_lends_everything) {
  World w("shards3");
  w.create();
  std::vector<PoolOffset> all;
  while (true) {
    const auto b = w.extents->reserve(64 * kKiB, heap::Kind::derived, 0);
    if (!b) break;
    all.push_back(b->offset);
  }
  ASSERT_GT(all.size(), 100u);
  EXPECT_EQ(w.extents->reserve(64 * kKiB, heap::Kind::derived, 1).error(), Status::full);
  std::set<PoolOffset> freed;
  for (std::size_t i = 0; i < all.size(); i += 10) {
    w.give(all[i]);
    freed.insert(all[i]);
  }
  for (std::size_t i = 0; i < freed.size(); ++i) {
    const PoolOffset o = w.take(64 * kKiB, kFrameBytes, 1);
    EXPECT_TRUE(freed.contains(o));
  }
  EXPECT_EQ(w.extents->reserve(64 * kKiB, heap::Kind::derived, 1).error(), Status::full);
  w.expect_sound();
}

TEST(ExtentShards, who_has_much_lends_before_a_chunk_is_taken) {
  World w("shards4", 128 * kMiB);
  w.create();
  std::vector<PoolOffset> all;
  std::set<std::uint64_t> regions;
  for (int i = 0; i < 400; ++i) {
    all.push_back(w.take(128 * kKiB));
    regions.insert(region(all.back()));
  }
  // Little is free: the other core takes a chunk.
  for (int i = 0; i < 20; i += 2) w.give(all[i]);
  const PoolOffset fresh = w.take(64 * kKiB, kFrameBytes, 1);
  EXPECT_FALSE(regions.contains(region(fresh)));
  w.give(fresh);
  for (int i = 20; i < 400; i += 2) w.give(all[i]);
  // Much is free, and its own chunk is used up.
  bool borrowed = false;
  for (int i = 0; i < 80; ++i) {
    borrowed = borrowed || regions.contains(region(w.take(64 * kKiB, kFrameBytes, 1)));
  }
  EXPECT_TRUE(borrowed);
  w.expect_sound();
}

TEST(ExtentShards, after_an_open_one_core_owns_what_there_is_and_all_may_free_it) {
  World w("shards5", 64 * kMiB);
  w.create();
  std::vector<PoolOffset> all;
  for (unsigned i = 0; i < 60; ++i) all.push_back(w.take(100 * kKiB, kFrameBytes, i % 2));
  w.reopen(true);
  w.expect_sound();
  for (unsigned i = 0; i < 60; ++i) w.extents->release(all[i], i % 3);
  w.expect_sound();
  EXPECT_EQ(w.extents->stats().count, 0u);
  w.extents->trim();
  EXPECT_EQ(w.extents->stats().retained_bytes + w.extents->stats().reclaimed_bytes, 0u);
}

TEST(ExtentShards, pages_of_a_core_that_rests_decay_too) {
  World w("shards6", 64 * kMiB);
  w.options.heap.decay_ms = 100;
  w.create();
  std::vector<PoolOffset> all;
  for (int i = 0; i < 50; ++i) {
    all.push_back(w.take(100 * kKiB));
    w.soil(all.back(), 100 * kKiB);
  }
  for (const PoolOffset o : all) w.give(o);
  ASSERT_GT(w.extents->stats().reclaimed_bytes, 4 * kMiB);
  // Only the other core works from now on.
  for (int i = 0; i < 1000; ++i) {
    w.now += 1;
    w.extents->release(w.take(16 * kKiB, kFrameBytes, 1), 1);
  }
  EXPECT_LT(w.extents->stats().reclaimed_bytes, 4 * kMiB + 100 * kKiB) << "its own chunk's";
  w.expect_sound();
}

TEST(ExtentShards, threads_take_and_free_each_others_extents) {
  World w("shards7", 256 * kMiB);
  w.create();
  constexpr std::size_t kEach = 200;
  std::vector<std::atomic<std::uint64_t>> slots(2 * kEach);
  const auto work = [&](unsigned core) {
    std::mt19937_64 rng(core);
    for (int i = 0; i < 20'000; ++i) {
      std::atomic<std::uint64_t>& slot = slots[rng() % slots.size()];
      if (const std::uint64_t held = slot.exchange(0); held != 0) {
        w.extents->release({held}, core);
        continue;
      }
      const auto b = w.extents->reserve((4 + 4 * (rng() % 60)) * kKiB, heap::Kind::derived, core);
      ASSERT_TRUE(b);
      std::uint64_t none = 0;
      if (!slot.compare_exchange_strong(none, b->offset.value)) w.extents->release(b->offset, core);
    }
  };
  std::thread other([&] { work(1); });
  work(0);
  other.join();
  w.expect_sound();
  std::uint64_t held = 0;
  for (const auto& slot : slots) held += slot.load() != 0 ? 1 : 0;
  EXPECT_EQ(w.extents->stats().count, held);
}

}  // namespace
}  // namespace tenuto
