// The bookkeeping log where several cores append: each has a chunk of its own, the list stays
// short, and the room that is promised is there, also in a full pool.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "pm/plant.h"
#include "support/extent_world.h"

namespace tenuto {
namespace {

using World = test::ExtentWorld;

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kBytes = 20'000;
constexpr unsigned kCores = test::kExtentShards;

struct Plant {
  explicit Plant(const char* name) { plant(name); }
  ~Plant() { unplant_all(); }
};

// No list is written anew: only chunks that leave keep it short.
World& prepared(World& w) {
  w.options.heap.book_chunks_least = 1'000'000;
  w.create();
  return w;
}
std::uint64_t chunks(const World& w) {
  return w.extents->stats().book.list_bytes / heap::kBookChunkBytes;
}

TEST(BookTails, each_core_has_a_chunk) {
  World w("tails1", 64 * kMiB);
  prepared(w);
  for (unsigned core = 0; core < kCores; ++core) w.take(kBytes, kFrameBytes, core);
  EXPECT_EQ(chunks(w), kCores);
  w.expect_sound();
}

// Each core frees what the other one took. Tombstones that were in older chunks than their entries
// would make chunks wait for each other.
std::uint64_t chunks_after_exchange(World& w) {
  for (unsigned i = 0; i < 40 * heap::kBookChunkEntries; ++i) {
    const PoolOffset first = w.take(kBytes, kFrameBytes, 0);
    const PoolOffset second = w.take(kBytes, kFrameBytes, 1);
    w.extents->release(second, 0);
    w.extents->release(first, 1);
  }
  return chunks(w);
}
TEST(BookTails, cores_that_free_each_others_extents_leave_a_short_list) {
  World w("tails2", 64 * kMiB);
  EXPECT_LE(chunks_after_exchange(prepared(w)), 2 * kCores + 2);
  w.expect_sound();
}
TEST(BookTails, tombstones_before_their_entries_are_noticed) {
  World w("tails3", 64 * kMiB);
  const Plant planted("heap_book_tombstone_before_its_entry");
  EXPECT_GT(chunks_after_exchange(prepared(w)), 20u);
}

// Takes and frees at random, in a pool that is full now and then.
void use(World& w, std::vector<PoolOffset>& held, unsigned operations) {
  std::mt19937_64 rng(operations);
  for (unsigned i = 0; i < operations; ++i) {
    const auto core = static_cast<unsigned>(rng() % 2);
    if (held.empty() || rng() % 100 < 60) {
      const auto b = w.extents->reserve(kBytes, heap::Kind::derived, core);
      if (b) held.push_back(b->offset);
      if (b || b.error() == Status::full) continue;
      FAIL() << status_name(b.error());
    }
    std::swap(held[rng() % held.size()], held.back());
    w.extents->release(held.back(), core);
    held.pop_back();
  }
}
TEST(BookTails, a_full_pool_has_the_room_that_it_promised) {
  World w("tails4", 32 * kMiB);
  w.create();
  std::vector<PoolOffset> held;
  use(w, held, 20'000);
  ASSERT_GT(held.size(), 1000u);
  w.expect_sound();
  for (std::size_t i = 0; i < held.size(); ++i) w.extents->release(held[i], i % 3 == 0 ? 0 : 1);
  w.expect_sound();
  EXPECT_EQ(w.extents->stats().count, 0u);
}

// No frame is free, half of the extents are, and so many tombstones are in the list that it has no
// room, too. Nothing but the need for room makes the log write it anew.
Status take_in_a_full_log(World& w) {
  w.options.heap.book_chunks_least = 1'000'000;
  w.create();
  std::vector<PoolOffset> held;
  const auto take = [&] {
    const auto b = w.extents->reserve(kBytes, heap::Kind::derived, 0);
    if (b) held.push_back(b->offset);
    return b ? Status::ok : b.error();
  };
  while (take() == Status::ok) {
  }
  while (w.source->get(frame::kOrderSlab, 0)) {
  }
  std::mt19937_64 rng(3);
  const auto give = [&] {
    std::swap(held[rng() % held.size()], held.back());
    w.extents->release(held.back(), 0);
    held.pop_back();
  };
  for (std::size_t n = held.size() / 2; n > 0; --n) give();
  Status s = Status::ok;
  for (int i = 0; i < 20'000 && s == Status::ok; ++i) {
    give();
    s = take();
  }
  w.expect_sound();
  return s;
}
TEST(BookTails, a_log_without_room_for_a_segment_is_written_anew) {
  World w("tails9", 64 * kMiB);
  EXPECT_EQ(take_in_a_full_log(w), Status::ok);
}
TEST(BookTails, a_log_that_is_full_of_the_dead_is_noticed) {
  World w("tails10", 64 * kMiB);
  const Plant planted("heap_book_full_of_the_dead");
  EXPECT_EQ(take_in_a_full_log(w), Status::full);
}

TEST(BookTails, room_in_older_chunks_that_counts_is_noticed) {
  World w("tails5", 32 * kMiB);
  w.create();
  const Plant planted("heap_book_room_of_older_tails_counts");
  std::vector<PoolOffset> held;
  use(w, held, 200);
  EXPECT_EQ(w.extents->validate(&w.report), Status::corrupt);
  EXPECT_NE(w.report.text().find("room is miscounted"), std::string::npos) << w.report.text();
}

// As many chunks as there are cores are no reason to write the list anew.
std::uint64_t rewrites_with_many_cores(World& w) {
  w.shards = 16;
  w.create();
  for (unsigned i = 0; i < 3 * heap::kBookChunkEntries; ++i) {
    for (unsigned core = 0; core < w.shards; ++core) {
      w.extents->release(w.take(kBytes, kFrameBytes, core), core);
    }
  }
  w.expect_sound();
  return w.extents->stats().book.slow_gcs;
}
TEST(BookTails, many_cores_do_not_rewrite_the_list) {
  World w("tails7", 128 * kMiB);
  EXPECT_EQ(rewrites_with_many_cores(w), 0u);
}
TEST(BookTails, many_cores_that_rewrite_the_list_are_noticed) {
  World w("tails8", 128 * kMiB);
  const Plant planted("heap_book_tails_make_a_list_long");
  EXPECT_GT(rewrites_with_many_cores(w), 5u);
}

TEST(BookTails, what_several_cores_appended_is_read_again) {
  World w("tails6", 64 * kMiB);
  w.create();
  std::vector<PoolOffset> held;
  use(w, held, 5'000);
  const std::size_t count = held.size();
  w.reopen(true);
  w.expect_sound();
  EXPECT_EQ(w.extents->stats().count, count);
  for (std::size_t i = 0; i < count; ++i) w.extents->release(held[i], i % 2);
  w.expect_sound();
  w.extents->trim();
  EXPECT_EQ(chunks(w), 1u);
}

}  // namespace
}  // namespace tenuto
