// Slab morphing (src/heap/morph.h) through the heap's interface: which slabs are morphed, what
// happens to the old blocks, what it costs, and that memory which one class gave back serves the
// others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "heap/format.h"
#include "heap/heap.h"
#include "heap/size_class.h"
#include "pm/media.h"
#include "support/pool_parts.h"

namespace tenuto {
namespace {

using heap::Kind;
using test::PoolParts;
using test::TempPath;

constexpr std::uint64_t kMiB = 1u << 20;

PoolOptions small_pool(double occupancy = 0.2, std::uint64_t bytes = 16 * kMiB) {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = bytes;
  o.heap.morph_occupancy = occupancy;
  return o;
}

// A pool whose destinations are in their own extent, so that no slab holds them.
class Morph : public testing::Test {
 protected:
  static constexpr std::size_t kWords = 100'000;

  void create(const PoolOptions& options) {
    options_ = options;
    ASSERT_EQ(p.create(path.str(), options_), Status::ok) << p.report.text();
    ASSERT_EQ(p.heap->malloc_to(kWords * sizeof(PtrWord), p.root(0)), Status::ok);
    zero_flush(words(), kWords * sizeof(PtrWord));
    fence("words", "test");
  }
  PtrWord* words() { return static_cast<PtrWord*>(PtrWord::decode(&p.root(0), p.root(0).raw)); }
  PtrWord& word(std::size_t i) { return words()[i]; }
  PoolOffset at(std::size_t i) { return p.file->offset_of(PtrWord::decode(&word(i), word(i).raw)); }
  std::uint64_t unit(std::size_t i) { return at(i).value / heap::kSlabBytes; }

  Status put(std::size_t i, std::uint64_t bytes) {
    TENUTO_TRY(p.heap->malloc_to(bytes, word(i)));
    std::memset(p.file->at<void>(at(i)), fill_of(i), bytes);
    filled_[i] = bytes;
    return Status::ok;
  }
  void take(std::size_t i) {
    EXPECT_EQ(p.heap->free_from(word(i)), Status::ok) << i;
    filled_.erase(i);
  }
  // Moves blocks from limbo, quarantine and caches to their slabs, by a request that fails.
  void scavenge() {
    EXPECT_EQ(p.heap->reserve(options_.size - kMiB, Kind::logged).error(), Status::full);
  }
  heap::SlabShape shape_of(std::size_t i) {
    return p.file->at<heap::SlabHeader>({round_down(at(i).value, heap::kSlabBytes)})->shape.shape();
  }
  // All blocks have their contents, and nothing else is allocated.
  void expect_exact() {
    ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
    std::set<std::uint64_t> reachable = {p.file->offset_of(words()).value};
    for (const auto& [i, bytes] : filled_) {
      const auto* block = p.file->at<unsigned char>(at(i));
      ASSERT_EQ(block[0], fill_of(i)) << i;
      ASSERT_TRUE(std::equal(block + 1, block + bytes, block)) << i;
      ASSERT_TRUE(reachable.insert(at(i).value).second) << i;
      ASSERT_GE(p.heap->usable_size(at(i)), bytes);
    }
    std::set<std::uint64_t> allocated;
    p.heap->for_each(Kind::logged, [&](PoolOffset o, std::uint64_t) { allocated.insert(o.value); });
    ASSERT_EQ(allocated, reachable);
    ASSERT_EQ(p.heap->stats().objects, reachable.size());
  }
  void crash_and_open() {
    p.crash();
    ASSERT_EQ(p.open(path.str(), options_), Status::ok) << p.report.text();
  }
  void close_and_open() {
    ASSERT_EQ(p.close(), Status::ok);
    ASSERT_EQ(p.open(path.str(), options_), Status::ok) << p.report.text();
    ASSERT_TRUE(p.file->was_clean());
  }
  static int fill_of(std::size_t i) { return static_cast<int>(i * 7 % 251 + 1); }

  // Leaves a slab of `bytes` with the blocks [first, last) only, named by the words of these
  // numbers.
  void leave(std::uint64_t bytes, std::size_t first, std::size_t last) {
    for (std::size_t i = 0; i < last; ++i) ASSERT_EQ(put(i, bytes), Status::ok);
    for (std::size_t i = 0; i < first; ++i) take(i);
    scavenge();
  }

  TempPath path{"morph"};
  PoolOptions options_;
  PoolParts p;
  std::map<std::size_t, std::uint64_t> filled_;
};

TEST_F(Morph, small_blocks_make_room_for_large_ones) {
  create(small_pool());
  leave(64, 20, 30);
  ASSERT_EQ(put(100, 1000), Status::ok);
  EXPECT_EQ(unit(100), unit(20)) << "a new slab was taken";
  EXPECT_EQ(p.heap->stats().morphed_slabs, 1u);
  const heap::SlabShape shape = shape_of(100);
  EXPECT_EQ(shape.now.class_id, heap::class_of(1000).value);
  EXPECT_EQ(shape.old.class_id, heap::class_of(64).value);
  EXPECT_GE(shape.now.first_line, shape.old.first_line + 6);
  expect_exact();
  for (std::size_t i = 101; i < 150; ++i) ASSERT_EQ(put(i, 1000), Status::ok);
  EXPECT_EQ(unit(149), unit(20));
  expect_exact();
}

TEST_F(Morph, large_blocks_make_room_for_small_ones) {
  create(small_pool());
  leave(2048, 3, 5);
  for (std::size_t i = 100; i < 500; ++i) ASSERT_EQ(put(i, 48), Status::ok);
  EXPECT_EQ(unit(100), unit(3));
  EXPECT_EQ(unit(499), unit(3));
  EXPECT_EQ(p.heap->stats().morphed_slabs, 1u);
  expect_exact();
}

TEST_F(Morph, a_block_where_the_new_header_ends_keeps_its_slab) {
  create(small_pool());
  leave(64, 1, 6);  // there is room for six stripes; the second block is where the eighth would be
  ASSERT_EQ(put(100, 16), Status::ok);
  EXPECT_NE(unit(100), unit(1));
  EXPECT_FALSE(shape_of(1).old);
  expect_exact();
  for (std::size_t i = 1; i < 6; ++i) take(i);
  ASSERT_EQ(put(5, 64), Status::ok);
  expect_exact();
}

// Six stripes have room, except in the classes above 4 KiB and in slabs of earlier versions.
TEST_F(Morph, the_first_block_keeps_only_a_slab_without_room) {
  create(small_pool(0.5));
  leave(64, 0, 6);
  ASSERT_EQ(put(100, 1000), Status::ok);
  EXPECT_EQ(unit(100), unit(0));
  expect_exact();
  for (std::size_t i = 200; i < 202; ++i) ASSERT_EQ(put(i, 16'000), Status::ok);
  ASSERT_EQ(unit(201), unit(200));
  take(201);
  scavenge();
  for (std::size_t i = 300; i < 315; ++i) ASSERT_EQ(put(i, 3000), Status::ok);  // not sparse
  EXPECT_NE(unit(300), unit(200));
  ASSERT_EQ(put(201, 16'000), Status::ok);
  take(200);
  scavenge();
  ASSERT_EQ(put(400, 2000), Status::ok);
  EXPECT_EQ(unit(400), unit(201));
  expect_exact();
  crash_and_open();
  expect_exact();
}

TEST_F(Morph, blocks_everywhere_keep_their_slab) {
  create(small_pool());
  for (std::size_t i = 0; i < 1017; ++i) ASSERT_EQ(put(i, 64), Status::ok);
  for (std::size_t i = 0; i < 1017; ++i) {
    if (i % 8 != 0) take(i);
  }
  scavenge();
  ASSERT_EQ(put(2000, 4000), Status::ok);
  EXPECT_NE(unit(2000), unit(0)) << "there is not one free place of that size";
  expect_exact();
}

TEST_F(Morph, nothing_is_morphed_when_it_is_switched_off) {
  create(small_pool(0));
  leave(64, 20, 30);
  ASSERT_EQ(put(100, 1000), Status::ok);
  EXPECT_NE(unit(100), unit(20));
  EXPECT_EQ(p.heap->stats().morphed_slabs, 0u);
}

TEST_F(Morph, a_slab_above_the_threshold_stays) {
  create(small_pool(0.01));
  leave(64, 20, 35);  // of 1017
  ASSERT_EQ(put(100, 1000), Status::ok);
  EXPECT_NE(unit(100), unit(20));
}

TEST_F(Morph, old_blocks_go_straight_to_their_slab_and_the_last_ends_the_transition) {
  create(small_pool());
  leave(64, 20, 30);
  ASSERT_EQ(put(100, 1000), Status::ok);
  for (std::size_t i = 20; i < 29; ++i) take(i);
  scavenge();
  EXPECT_EQ(p.heap->stats().morphed_slabs, 1u);
  expect_exact();
  take(29);
  scavenge();
  EXPECT_EQ(p.heap->stats().morphed_slabs, 0u);
  expect_exact();
  // The whole slab belongs to the new class now: all its blocks fit in it, none needs another slab.
  const std::uint64_t slabs = p.heap->stats().slabs;
  const heap::SlabGeometry g = heap::cut_geometry(shape_of(100).now, options_.stripes);
  for (std::size_t i = 1; i < g.blocks; ++i) ASSERT_EQ(put(100 + i, 1000), Status::ok);
  EXPECT_EQ(p.heap->stats().slabs, slabs);
  expect_exact();
}

TEST_F(Morph, three_classes_follow_each_other_and_the_header_does_not_grow_again) {
  create(small_pool());
  leave(64, 20, 24);
  const std::uint64_t slab = unit(20);
  const std::uint64_t sizes[] = {1000, 320, 2000, 96, 600};
  std::size_t before = 20, count = 4;
  for (std::size_t n = 0; n < std::size(sizes); ++n) {
    const std::size_t first = 100 * (n + 1);
    for (std::size_t i = first; i < first + 3; ++i) ASSERT_EQ(put(i, sizes[n]), Status::ok);
    ASSERT_EQ(unit(first), slab) << sizes[n];
    EXPECT_EQ(shape_of(first).now.end_line, 13) << sizes[n];
    expect_exact();
    for (std::size_t i = before; i < before + count; ++i) take(i);
    scavenge();
    ASSERT_EQ(p.heap->stats().morphed_slabs, 0u);
    expect_exact();
    before = first;
    count = 3;
  }
}

TEST_F(Morph, an_empty_slab_takes_any_class_at_its_full_size) {
  create(small_pool());
  ASSERT_EQ(put(0, 64), Status::ok);
  take(0);
  const std::uint64_t frames = p.frames->stats().frames_free;
  ASSERT_EQ(put(1, 64), Status::ok);
  const std::uint64_t slab = unit(1);
  take(1);
  // A class keeps one empty slab. (A pool with room looks for such a slab only after frees.)
  for (std::size_t i = 0; i < 400; ++i) ASSERT_EQ(put(i, 64), Status::ok);
  for (std::size_t i = 0; i < 400; ++i) take(i);
  for (std::size_t i = 0; i < 40; ++i) ASSERT_EQ(put(i, 3000), Status::ok);
  for (std::size_t i = 0; i < 40; ++i) take(i);
  scavenge();
  ASSERT_EQ(put(2, 500), Status::ok);
  EXPECT_FALSE(shape_of(2).old);
  EXPECT_EQ(shape_of(2).now.first_line, 1);
  EXPECT_GE(p.frames->stats().frames_free, frames - 16);
  EXPECT_GT(slab, 0u);
  expect_exact();
}

TEST_F(Morph, both_parts_survive_a_clean_close) {
  create(small_pool());
  leave(64, 20, 30);
  for (std::size_t i = 100; i < 110; ++i) ASSERT_EQ(put(i, 1000), Status::ok);
  close_and_open();
  EXPECT_EQ(p.heap->stats().morphed_slabs, 1u);
  expect_exact();
  for (std::size_t i = 20; i < 30; ++i) take(i);
  close_and_open();
  EXPECT_EQ(p.heap->stats().morphed_slabs, 0u) << "the shape still names the part, its bits are 0";
  EXPECT_TRUE(shape_of(100).old);
  expect_exact();
  ASSERT_EQ(put(110, 1000), Status::ok);
  EXPECT_EQ(unit(110), unit(100));
  expect_exact();
}

TEST_F(Morph, both_parts_survive_a_crash) {
  create(small_pool());
  leave(64, 20, 30);
  for (std::size_t i = 100; i < 110; ++i) ASSERT_EQ(put(i, 1000), Status::ok);
  take(25);
  take(105);
  crash_and_open();
  EXPECT_EQ(p.heap->stats().morphed_slabs, 1u);
  expect_exact();
  for (std::size_t i = 200; i < 240; ++i) ASSERT_EQ(put(i, 1000), Status::ok);
  expect_exact();
  for (std::size_t i = 20; i < 30; ++i) {
    if (i != 25) take(i);
  }
  crash_and_open();
  EXPECT_EQ(p.heap->stats().morphed_slabs, 0u);
  expect_exact();
}

TEST_F(Morph, what_is_no_block_of_either_part_is_refused) {
  create(small_pool());
  leave(64, 20, 30);
  ASSERT_EQ(put(100, 1000), Status::ok);
  ASSERT_EQ(put(101, 1000), Status::ok);
  const PoolOffset slab{round_down(at(20).value, heap::kSlabBytes)};
  const std::set<std::uint64_t> blocks = [&] {
    std::set<std::uint64_t> all;
    for (const auto& [i, bytes] : filled_) all.insert(at(i).value);
    return all;
  }();
  PtrWord& w = word(500);
  for (PoolOffset o = slab; o.value < slab.value + heap::kSlabBytes; o = o + 16) {
    w.raw = PtrWord::encode(&w, p.file->at<void>(o));
    const bool is_block = blocks.contains(o.value);
    ASSERT_EQ(p.heap->usable_size(o) != 0, is_block) << o.value - slab.value;
    if (!is_block) {
      ASSERT_EQ(p.heap->free_from(w), Status::invalid_argument) << o.value - slab.value;
    }
  }
  // Double frees of each part, also once the old block is back and the new part has its place.
  for (const std::size_t i : {20u, 100u}) {
    w.raw = PtrWord::encode(&w, p.file->at<void>(at(i)));
    take(i);
    EXPECT_EQ(p.heap->free_from(w), Status::invalid_argument);
    scavenge();
    EXPECT_EQ(p.heap->free_from(w), Status::invalid_argument);
  }
  w.raw = 0;
  expect_exact();
}

TEST_F(Morph, validate_finds_a_wrong_bit_in_either_part) {
  create(small_pool());
  leave(64, 20, 30);
  ASSERT_EQ(put(100, 1000), Status::ok);
  const PoolOffset slab{round_down(at(20).value, heap::kSlabBytes)};
  const heap::SlabShape shape = shape_of(20);
  for (const unsigned line : {unsigned{shape.old.first_line}, unsigned{shape.now.first_line}}) {
    ASSERT_EQ(p.heap->validate(&p.report), Status::ok);
    auto& bits = *p.file->at<std::uint64_t>(slab + line * kLineBytes);
    bits ^= 1u << 9;
    EXPECT_EQ(p.heap->validate(&p.report), Status::corrupt) << line;
    EXPECT_NE(p.report.text().find("disagree"), std::string::npos) << p.report.text();
    bits ^= 1u << 9;
  }
  for (std::size_t i = 20; i < 30; ++i) take(i);
  scavenge();
  *p.file->at<std::uint64_t>(slab + shape.old.first_line * kLineBytes) = 2;
  EXPECT_EQ(p.heap->validate(&p.report), Status::corrupt) << "an open would find an old block";
  *p.file->at<std::uint64_t>(slab + shape.old.first_line * kLineBytes) = 0;
}

TEST_F(Morph, a_damaged_bit_of_either_part_is_found_by_a_clean_open) {
  for (const bool old : {true, false}) {
    const TempPath other(old ? "morph_old" : "morph_new");
    PoolParts q;
    const PoolOptions o = small_pool();
    ASSERT_EQ(q.create(other.str(), o), Status::ok);
    std::swap(p, q);
    options_ = o;
    filled_.clear();
    ASSERT_EQ(p.heap->malloc_to(kWords * sizeof(PtrWord), p.root(0)), Status::ok);
    zero_flush(words(), kWords * sizeof(PtrWord));
    leave(64, 20, 30);
    ASSERT_EQ(put(100, 1000), Status::ok);
    const heap::SlabShape shape = shape_of(100);
    ASSERT_TRUE(shape.old);
    const PoolOffset slab{round_down(at(20).value, heap::kSlabBytes)};
    ASSERT_EQ(p.heap->close(), Status::ok);
    p.frames->close();
    const unsigned line = old ? shape.old.first_line : shape.now.first_line;
    *p.file->at<std::uint64_t>(slab + line * kLineBytes) ^= 1u << 9;
    ASSERT_EQ(p.file->set_state(pm::PoolState::clean), Status::ok);
    p.crash();
    // The first call that needs the slabs reads them.
    ASSERT_EQ(p.open(other.str(), o), Status::ok) << p.report.text();
    EXPECT_EQ(p.heap->malloc_to(100, p.root(1)), Status::corrupt);
    EXPECT_EQ(p.file->health(&p.report), Status::corrupt);
    EXPECT_NE(p.report.text().find("last close"), std::string::npos) << p.report.text();
    p.crash();
  }
}

// Parts that overlap are damage: their memory must not be handed out.
TEST_F(Morph, overlapping_parts_are_found_by_recovery) {
  create(small_pool());
  leave(64, 20, 30);
  ASSERT_EQ(put(100, 1000), Status::ok);
  const PoolOffset slab{round_down(at(20).value, heap::kSlabBytes)};
  const heap::SlabShape shape = shape_of(100);
  *p.file->at<std::uint64_t>(slab + (shape.now.first_line + 1) * kLineBytes) |= 1;  // over block 20
  p.crash();
  EXPECT_EQ(p.open(path.str(), options_), Status::corrupt);
  EXPECT_NE(p.report.text().find("overlap"), std::string::npos) << p.report.text();
}

// One line for each stripe of the new part and one for the header, and two fences.
TEST_F(Morph, a_morph_costs_a_line_a_stripe_and_one_and_two_fences) {
  PoolOptions o = small_pool();
  o.medium = Medium::model;
  create(o);
  leave(64, 20, 30);
  const auto reserve = [&](std::uint64_t bytes) {
    const pm::ModelCounts start = pm::thread_model_counts();
    EXPECT_TRUE(p.heap->reserve(bytes, Kind::logged));
    return pm::thread_model_counts() - start;
  };
  const pm::ModelCounts morph = reserve(1000);
  EXPECT_EQ(p.heap->stats().morphed_slabs, 1u);
  EXPECT_EQ(morph.lines, 6u + 1);
  EXPECT_EQ(morph.fences, 2u);
  // A new slab costs the same, plus the frame's bits and its header a second time.
  const pm::ModelCounts fresh = reserve(5000);
  EXPECT_EQ(p.heap->stats().morphed_slabs, 1u);
  EXPECT_GT(fresh.lines, morph.lines);
  EXPECT_EQ(fresh.fences, 2u);
  // The last old block goes back to its slab at no cost but that of its own free.
  for (std::size_t i = 20; i < 29; ++i) take(i);
  scavenge();
  take(29);
  const pm::ModelCounts before = pm::thread_model_counts();
  scavenge();
  EXPECT_LE((pm::thread_model_counts() - before).lines, 3u) << "retired, a slab that goes";
  EXPECT_EQ(p.heap->stats().morphed_slabs, 0u);
}

}  // namespace
}  // namespace tenuto
