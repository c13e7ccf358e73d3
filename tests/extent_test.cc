// Extents alone, over frames and a log: where they are placed, how they merge, how pages decay
// under a clock that the test moves, and what the file keeps. Then the bookkeeping log under
// millions of allocations and frees. heap_crash.cc cuts the power in all of this.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "heap/decay.h"
#include "heap/extent.h"
#include "support/extent_world.h"
#include "support/failing_calls.h"
#include "support/pool_parts.h"

namespace tenuto {
namespace {

using heap::Extents;
using heap::Kind;
using test::PoolParts;
using World = test::ExtentWorld;
using test::TempPath;

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kKiB = 1u << 10;

// --- places --------------------------------------------------------------------------------------

TEST(Extent, the_best_fit_is_taken_and_the_rest_stays) {
  World w("extent1");
  w.create();
  // Gaps of 40, 24 and 32 KiB between extents that stay allocated.
  std::vector<PoolOffset> gaps, walls;
  for (const std::uint64_t kib : {40u, 24u, 32u}) {
    gaps.push_back(w.take(kib * kKiB));
    walls.push_back(w.take(16 * kKiB));
  }
  for (const PoolOffset o : gaps) w.give(o);
  EXPECT_EQ(w.take(20 * kKiB), gaps[1]) << "the smallest that is large enough";
  EXPECT_EQ(w.take(32 * kKiB), gaps[2]) << "an exact fit";
  EXPECT_EQ(w.take(36 * kKiB), gaps[0]);
  EXPECT_EQ(w.take(4 * kKiB).value % (4 * kKiB), 0u);
  w.expect_sound();
}

TEST(Extent, neighbours_join_on_both_sides_and_to_the_whole_chunk) {
  World w("extent2");
  w.create();
  std::vector<PoolOffset> all;
  for (int i = 0; i < 4; ++i) all.push_back(w.take(1 * kMiB));
  const PoolOffset chunk = all[0];
  for (const std::size_t i : {0u, 2u, 1u, 3u}) {
    w.give(all[i]);
    w.expect_sound();
  }
  const PoolOffset large = w.take(2 * kMiB);
  EXPECT_EQ(large, chunk);
  EXPECT_EQ(w.take(2 * kMiB), large + 2 * kMiB);
  EXPECT_EQ(w.extents->stats().reclaimed_bytes, 0u) << "the chunk is used up";
}

TEST(Extent, what_has_pages_is_taken_before_holes) {
  World w("extent3");
  w.create();
  const PoolOffset a = w.take(64 * kKiB);
  const PoolOffset wall = w.take(16 * kKiB);
  const PoolOffset rest = w.take(4 * kMiB - 80 * kKiB - 2 * kMiB);
  const PoolOffset end = w.take(2 * kMiB);
  w.give(a);
  w.extents->trim();
  EXPECT_EQ(w.extents->stats().retained_bytes, 64 * kKiB);
  w.give(rest);
  EXPECT_EQ(w.take(64 * kKiB), rest) << "larger, but with pages";
  w.give(rest);
  static_cast<void>(wall), static_cast<void>(end);
  w.expect_sound();
}

TEST(Extent, alignment_is_kept_and_what_it_leaves_over_is_free) {
  World w("extent4");
  w.create();
  std::mt19937_64 rng(5);
  std::vector<PoolOffset> all;
  for (int i = 0; i < 3000; ++i) {
    if (all.size() > 40 || (rng() % 3 == 0 && !all.empty())) {
      std::swap(all[rng() % all.size()], all.back());
      w.give(all.back());
      all.pop_back();
      continue;
    }
    const std::uint64_t align = kFrameBytes << rng() % 10;
    const std::uint64_t bytes = 1 + rng() % (rng() % 4 == 0 ? 2 * kMiB : 100 * kKiB);
    const auto b = w.extents->reserve(bytes, Kind::derived, 0, align);
    if (!b) continue;
    ASSERT_EQ(b->offset.value % align, 0u) << bytes;
    ASSERT_GE(b->bytes, bytes);
    all.push_back(b->offset);
  }
  w.expect_sound();
  EXPECT_EQ(w.take(2 * kMiB, 2 * kMiB).value % (2 * kMiB), 0u);
  EXPECT_EQ(w.take(3 * kMiB, 2 * kMiB).value % (2 * kMiB), 0u) << "huge ones are anyway";
  for (const PoolOffset o : all) w.give(o);
  w.expect_sound();
}

TEST(Extent, callbacks_may_ask_about_extents) {
  World w("extent5");
  w.create();
  w.take(20'000);
  w.take(3 * kMiB);
  std::size_t n = 0;
  w.extents->for_each(Kind::derived, [&](PoolOffset o, std::uint64_t bytes) {
    const auto found = w.extents->find(o, Kind::derived, heap::Wanted::allocated);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->bytes, bytes);
    n += 1;
  });
  EXPECT_EQ(n, 2u);
  EXPECT_FALSE(w.extents->find({~0ull & ~4095ull}, Kind::derived, heap::Wanted::not_free));
  EXPECT_FALSE(w.extents->find({12345}, Kind::derived, heap::Wanted::not_free));
}

// --- decay ---------------------------------------------------------------------------------------

TEST(Decay, is_smooth_and_ends_in_time) {
  HeapOptions o;
  o.decay_ms = 10'000;
  o.decay_tick_ms = 50;
  heap::Decay decay(o, 0);
  std::uint64_t resident = 100'000, at_tenth = 0, at_half = 0, at_end = 0, most_a_tick = 0;
  EXPECT_EQ(decay.excess(49, resident), 0u) << "no tick has passed";
  for (std::int64_t t = 50; t <= 10'050; t += 50) {
    const std::uint64_t gone = decay.excess(t, resident);
    resident -= gone;
    most_a_tick = std::max(most_a_tick, gone);
    if (t == 1000) at_tenth = resident;
    if (t == 5050) at_half = resident;
    if (t == 9000) at_end = resident;
  }
  EXPECT_GT(at_tenth, 99'000u);
  EXPECT_LT(at_end, 1'000u);
  EXPECT_NEAR(static_cast<double>(at_half), 50'000, 1'000);
  EXPECT_LT(most_a_tick, 1'000u);
  EXPECT_EQ(resident, 0u);
  // After a long time with nothing, new pages are young.
  EXPECT_LE(decay.excess(1'000'000, 5000), 1u);
  EXPECT_EQ(decay.excess(2'000'000, 4999), 4999u);
}

TEST(Decay, gives_pages_back_to_the_file_system_bit_by_bit) {
  World w("decay1");
  w.options.heap.decay_ms = 1000;
  w.options.heap.decay_tick_ms = 10;
  w.create();
  std::vector<PoolOffset> all;
  for (int i = 0; i < 28; ++i) all.push_back(w.take(512 * kKiB));
  const PoolOffset pulse = w.take(16 * kKiB);
  for (const PoolOffset o : all) w.soil(o, 512 * kKiB);
  const std::uint64_t before = w.file->bytes_on_disk();
  for (const PoolOffset o : all) w.give(o);
  const auto beat = [&](std::int64_t ms) {
    for (std::int64_t t = 0; t < ms; t += 10) {
      w.now += 10;
      for (int i = 0; i < 40; ++i) w.give(w.take(8 * kKiB));
    }
    w.expect_sound();
    return before - w.file->bytes_on_disk();
  };
  const std::uint64_t early = beat(200);
  const std::uint64_t half = beat(320);
  const std::uint64_t late = beat(700);
  EXPECT_LT(early, 2 * kMiB);
  EXPECT_GT(half, 4 * kMiB);
  EXPECT_LT(half, 10 * kMiB);
  EXPECT_GT(late, 13 * kMiB) << "of 14";
  EXPECT_LT(w.extents->stats().reclaimed_bytes, kMiB);
  w.give(pulse);
}

TEST(Decay, zero_is_at_once_and_negative_is_never) {
  for (const std::int64_t ms : {0, -1}) {
    World w("decay2");
    w.options.heap.decay_ms = ms;
    w.create();
    const PoolOffset wall = w.take(16 * kKiB);
    const PoolOffset o = w.take(1 * kMiB);
    w.soil(o, kMiB);
    const std::uint64_t before = w.file->bytes_on_disk();
    w.now += 1'000'000;
    w.give(o);
    for (int i = 0; i < 200; ++i) w.give(w.take(16 * kKiB));
    EXPECT_EQ(before - w.file->bytes_on_disk() >= kMiB, ms == 0) << ms;
    w.expect_sound();
    w.give(wall);
  }
}

// --- holes ---------------------------------------------------------------------------------------

TEST(Holes, trim_leaves_little_and_all_of_it_can_be_used_again) {
  World w("holes1");
  w.create();
  const PoolOffset kept = w.take(100 * kKiB);
  w.soil(kept, 100 * kKiB, 7);
  std::vector<PoolOffset> all;
  for (int i = 0; i < 20; ++i) all.push_back(w.take(kMiB - 4 * kKiB));
  for (const PoolOffset o : all) w.soil(o, kMiB - 4 * kKiB);
  for (const PoolOffset o : all) w.give(o);
  EXPECT_EQ(w.file->bytes_on_disk(), 32 * kMiB);
  w.extents->trim();
  w.source->punch_free();
  EXPECT_LT(w.file->bytes_on_disk(), 4 * kMiB) << "head, log, the huge frame they are in, 100 KiB";
  w.expect_sound();
  // The pool is killed and opened again: it knows the holes.
  w.reopen(true);
  EXPECT_GT(w.extents->stats().retained_bytes, kMiB);
  EXPECT_EQ(*w.file->at<std::uint8_t>(kept), 7);
  all.clear();
  for (int i = 0; i < 20; ++i) {
    all.push_back(w.take(kMiB - 4 * kKiB));
    const std::uint64_t disk = w.file->bytes_on_disk();
    w.soil(all.back(), kMiB - 4 * kKiB);
    EXPECT_EQ(w.file->bytes_on_disk(), disk) << "a store found no page";
  }
  EXPECT_EQ(*w.file->at<std::uint8_t>(kept + (100 * kKiB - 1)), 7);
  w.expect_sound();
}

// In a file with holes, an open takes reserved pages without stores for holes.
TEST(Holes, an_extent_with_pages_never_stored_to_is_freed_after_another_open) {
  World w("holes4");
  w.create();
  const PoolOffset wall = w.take(16 * kKiB);
  const PoolOffset kept = w.take(kMiB);
  const PoolOffset wall_behind = w.take(16 * kKiB);
  w.soil(kept, 20 * kKiB);
  w.extents->trim();
  w.source->punch_free();
  w.reopen(true);
  w.give(kept);
  w.expect_sound();
  w.extents->trim();
  EXPECT_EQ(w.extents->stats().reclaimed_bytes, 0u);
  w.expect_sound();
  const PoolOffset again = w.take(kMiB);
  const std::uint64_t disk = w.file->bytes_on_disk();
  w.soil(again, kMiB);
  EXPECT_EQ(w.file->bytes_on_disk(), disk) << "a store found no page";
  for (const PoolOffset o : {wall, again, wall_behind}) w.give(o);
  w.expect_sound();
}

TEST(Holes, a_full_file_system_is_full_and_nothing_worse) {
  World w("holes2");
  w.create();
  const PoolOffset wall = w.take(16 * kKiB);
  const PoolOffset o = w.take(kMiB);
  w.give(o);
  w.extents->trim();
  const auto before = w.extents->stats();
  test::fail_call(1, ENOSPC, true);
  EXPECT_EQ(w.extents->reserve(kMiB, Kind::derived, 0).error(), Status::full);
  EXPECT_EQ(w.extents->reserve(5 * kMiB, Kind::derived, 0).has_value(), true) << "no hole there";
  std::string name;
  EXPECT_TRUE(test::failed_call(&name));
  EXPECT_EQ(name, "fallocate");
  EXPECT_EQ(w.extents->stats().retained_bytes, before.retained_bytes);
  w.expect_sound();
  EXPECT_EQ(w.take(kMiB), o);
  w.give(wall);
}

TEST(Holes, a_file_system_without_them_is_asked_once) {
  World w("holes3");
  w.options.heap.decay_ms = 0;
  w.create();
  const PoolOffset wall = w.take(16 * kKiB);
  const PoolOffset o = w.take(kMiB);
  w.soil(o, kMiB);
  const std::uint64_t disk = w.file->bytes_on_disk();
  const std::size_t told = w.told.size();
  test::fail_call(1, EOPNOTSUPP, false);
  w.give(o);
  EXPECT_TRUE(test::failed_call(nullptr));
  EXPECT_FALSE(w.file->may_punch());
  EXPECT_EQ(w.take(kMiB), o);
  w.give(o);
  w.extents->trim();
  w.source->punch_free();
  EXPECT_EQ(w.told.size(), told + 1) << "told once";
  EXPECT_EQ(w.file->bytes_on_disk(), disk);
  w.expect_sound();
  w.give(wall);
}

// Decay puts off what it cannot do now. With decay_ms 0 there may be no later call.
TEST(Holes, at_once_is_also_at_once_while_pages_are_joined) {
  World w("holes4");
  w.options.heap.decay_ms = 0;
  w.create();
  const PoolOffset wall = w.take(16 * kKiB);
  const PoolOffset o = w.take(kMiB);
  w.soil(o, kMiB);
  const std::uint64_t disk = w.file->bytes_on_disk();
  std::thread other;
  EXPECT_EQ(w.source->holes().join(32 * kMiB / kHugeBytes - 1,
                                   [&] {
                                     other = std::thread([&] { w.give(o); });
                                     std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                     EXPECT_EQ(w.file->bytes_on_disk(), disk);
                                     return false;
                                   }),
            Status::ok);
  if (other.joinable()) other.join();
  EXPECT_EQ(w.file->bytes_on_disk(), disk - kMiB);
  w.expect_sound();
  w.give(wall);
}

// --- the log -------------------------------------------------------------------------------------

TEST(Log, stays_short_when_many_come_and_go) {
  World w("log1");
  w.create();
  std::mt19937_64 rng(7);
  std::vector<PoolOffset> live;
  for (int i = 0; i < 50; ++i) live.push_back(w.take(16 * kKiB));
  for (int i = 0; i < 100'000; ++i) {
    PoolOffset& o = live[rng() % live.size()];
    w.give(o);
    o = w.take(16 * kKiB);
  }
  const heap::BookStats s = w.extents->stats().book;
  EXPECT_EQ(s.live_entries, 50u);
  EXPECT_EQ(s.bytes, heap::kBookSegmentBytes) << "one segment";
  EXPECT_LE(s.list_bytes, 6 * heap::kBookChunkBytes);
  EXPECT_GT(s.fast_gcs + 4 * s.slow_gcs, 1000u) << "of 1667 chunks";
  w.expect_sound();
  std::printf("%llu chunks dropped, %llu lists written anew\n",
              static_cast<unsigned long long>(s.fast_gcs),
              static_cast<unsigned long long>(s.slow_gcs));
  w.reopen(true);
  EXPECT_EQ(w.extents->stats().count, 50u);
  w.expect_sound();
}

TEST(Log, chunks_are_dropped_as_wholes_where_lives_are_short) {
  World w("log2");
  w.options.heap.book_chunks_least = 1000;
  w.create();
  for (int i = 0; i < 20'000; ++i) w.give(w.take(16 * kKiB));
  const heap::BookStats s = w.extents->stats().book;
  EXPECT_EQ(s.slow_gcs, 0u);
  EXPECT_GE(s.fast_gcs, 330u) << "of 333 chunks";
  EXPECT_LE(s.list_bytes, 3 * heap::kBookChunkBytes);
  w.expect_sound();
}

TEST(Log, an_entry_that_lives_on_needs_slow_gc_by_its_thresholds) {
  for (const std::uint64_t least : {4u, 20u}) {
    World w("log3");
    w.options.heap.book_chunks_least = least;
    w.create();
    // The tombstones of each chunk are in the next one. The chunks form a chain on the first, which
    // stays.
    const PoolOffset pinned = w.take(16 * kKiB);
    std::vector<PoolOffset> ring;
    for (int i = 0; i < 100; ++i) ring.push_back(w.take(16 * kKiB));
    std::uint64_t longest = 0;
    for (int i = 0; i < 10'000; ++i) {
      w.give(ring[static_cast<std::size_t>(i) % ring.size()]);
      ring[static_cast<std::size_t>(i) % ring.size()] = w.take(16 * kKiB);
      longest = std::max(longest, w.extents->stats().book.list_bytes / heap::kBookChunkBytes);
    }
    EXPECT_GT(w.extents->stats().book.slow_gcs, 0u);
    EXPECT_LE(longest, least + 1);
    EXPECT_GE(longest, least);
    w.expect_sound();
    w.reopen(true);
    EXPECT_EQ(w.extents->stats().count, 101u);
    EXPECT_TRUE(w.extents->find(pinned, Kind::derived, heap::Wanted::allocated));
    w.expect_sound();
  }
}

TEST(Log, segments_go_back_when_it_shrinks) {
  World w("log4", 160 * kMiB);
  w.create();
  std::vector<PoolOffset> all;
  for (int i = 0; i < 7000; ++i) all.push_back(w.take(16 * kKiB));
  const std::uint64_t most = w.extents->stats().book.bytes;
  EXPECT_GE(most, 3 * heap::kBookSegmentBytes);
  for (const PoolOffset o : all) w.give(o);
  w.give(w.take(16 * kKiB));
  EXPECT_LE(w.extents->stats().book.bytes, 2 * heap::kBookSegmentBytes);
  w.extents->trim();
  EXPECT_EQ(w.extents->stats().book.bytes, heap::kBookSegmentBytes);
  EXPECT_GE(w.extents->stats().book.segments_given_back, 2u);
  w.expect_sound();
  w.reopen(true);
  EXPECT_EQ(w.extents->stats().count, 0u);
  EXPECT_EQ(w.extents->stats().book.bytes, heap::kBookSegmentBytes);
  w.expect_sound();
}

}  // namespace
}  // namespace tenuto
