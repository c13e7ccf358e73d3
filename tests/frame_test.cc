// The words of the frame layer without threads: every transition over its whole domain, and the
// bitfield searches against a slow definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "frame/bitfield.h"
#include "frame/slot.h"
#include "frame/trees.h"

namespace {

using namespace tenuto;
using namespace tenuto::frame;

// --- child ---------------------------------------------------------------------------------------

TEST(FrameChild, take_and_give_are_inverse_over_all_words) {
  for (unsigned raw = 0; raw <= 0xffff; ++raw) {
    const Child c{static_cast<std::uint16_t>(raw)};
    for (unsigned order = 0; order <= kOrderBaseMax; ++order) {
      const unsigned n = 1u << order;
      const auto taken = c.take(n);
      EXPECT_EQ(taken.has_value(), !c.whole() && c.free() >= n);
      if (taken && c.valid()) {
        EXPECT_EQ(taken->free() + n, c.free());
        EXPECT_EQ(taken->give(n)->raw, c.raw);
      }
      const auto given = c.give(n);
      EXPECT_EQ(given.has_value(), !c.whole() && c.free() + n <= 512);
    }
  }
}

TEST(FrameChild, only_an_entirely_free_huge_frame_becomes_whole_and_back) {
  unsigned takes = 0;
  unsigned gives = 0;
  for (unsigned raw = 0; raw <= 0xffff; ++raw) {
    const Child c{static_cast<std::uint16_t>(raw)};
    if (const auto t = c.take_whole()) {
      ++takes;
      EXPECT_EQ(c.free(), 512u);
      EXPECT_TRUE(t->whole() && t->valid());
      EXPECT_EQ(t->give_whole()->raw, c.raw);
    }
    if (c.give_whole()) ++gives;
  }
  EXPECT_EQ(takes, 1u);
  EXPECT_EQ(gives, 1u);
}

TEST(FrameChild, validity_is_a_counter_to_512_or_whole_alone) {
  unsigned valid = 0;
  for (unsigned raw = 0; raw <= 0xffff; ++raw) {
    valid += Child{static_cast<std::uint16_t>(raw)}.valid() ? 1 : 0;
  }
  EXPECT_EQ(valid, 514u);
}

TEST(FrameChildPair, halves_are_independent_and_whole_needs_both) {
  const Child samples[] = {Child::make(0), Child::make(1), Child::make(511), Child::make(512),
                           Child::make_whole()};
  for (const Child low : samples) {
    for (const Child high : samples) {
      const ChildPair p = ChildPair::make(low, high);
      EXPECT_EQ(p.get(0).raw, low.raw);
      EXPECT_EQ(p.get(1).raw, high.raw);
      EXPECT_EQ(p.with(0, high).raw, ChildPair::make(high, high).raw);
      EXPECT_EQ(p.with(1, low).raw, ChildPair::make(low, low).raw);
      EXPECT_EQ(p.take_whole().has_value(), low.free() == 512 && high.free() == 512);
      EXPECT_EQ(p.give_whole().has_value(), low.whole() && high.whole());
    }
  }
}

// --- bits ----------------------------------------------------------------------------------------

Found slow_find_zeros(std::uint64_t word, unsigned order) {
  const unsigned n = 1u << order;
  for (unsigned at = 0; at < 64; at += n) {
    bool zero = true;
    for (unsigned i = 0; i < n; ++i) zero = zero && (word >> (at + i) & 1) == 0;
    if (zero) return {at};
  }
  return {};
}

TEST(FrameBits, find_zeros_equals_its_definition) {
  std::mt19937_64 rng(1);
  for (unsigned order = 0; order <= kOrderWord; ++order) {
    for (unsigned low = 0; low <= 0xffff; ++low) {
      const std::uint64_t word = ~0xffffull | low;
      ASSERT_EQ(find_zeros(word, order), slow_find_zeros(word, order)) << word << " " << order;
      ASSERT_EQ(find_zeros(word << 48 | ~0ull >> 16, order),
                slow_find_zeros(word << 48 | ~0ull >> 16, order));
    }
    for (int i = 0; i < 20000; ++i) {
      std::uint64_t word = rng();
      for (int thin = static_cast<int>(rng() % 4); thin > 0; --thin) word &= rng();
      ASSERT_EQ(find_zeros(word, order), slow_find_zeros(word, order)) << word << " " << order;
    }
  }
}

TEST(FrameBits, every_order_fills_a_huge_frame_exactly) {
  for (unsigned order = 0; order <= kOrderBaseMax; ++order) {
    for (unsigned start = 0; start < kHugeFrames; start += 37) {
      Bitfield field{};
      std::set<unsigned> seen;
      for (unsigned i = 0; i < kHugeFrames >> order; ++i) {
        const auto at = take_bits(field, start, order);
        ASSERT_TRUE(at);
        EXPECT_EQ(*at % (1u << order), 0u);
        EXPECT_TRUE(all_taken(field, *at, order));
        EXPECT_TRUE(seen.insert(*at).second);
      }
      EXPECT_FALSE(take_bits(field, start, order));
      EXPECT_EQ(count_zeros(field), 0u);
      for (const unsigned at : seen) EXPECT_TRUE(give_bits(field, at, order));
      EXPECT_EQ(count_zeros(field), kHugeFrames);
    }
  }
}

TEST(FrameBits, a_run_with_one_clear_bit_is_refused_and_left_alone) {
  for (unsigned order = 1; order <= kOrderBaseMax; ++order) {
    const unsigned n = 1u << order;
    for (unsigned hole = 0; hole < n; ++hole) {
      Bitfield field{};
      ASSERT_EQ(take_bits(field, 0, order), Found{0});
      ASSERT_TRUE(give_bits(field, hole, 0));
      const Bitfield before = field;
      EXPECT_FALSE(all_taken(field, 0, order));
      EXPECT_FALSE(give_bits(field, 0, order));
      EXPECT_EQ(std::memcmp(&before, &field, sizeof field), 0);
    }
  }
}

TEST(FrameBits, large_orders_skip_words_that_are_used) {
  for (unsigned order = kOrderWord + 1; order <= kOrderBaseMax; ++order) {
    const unsigned words = 1u << (order - kOrderWord);
    for (unsigned used = 0; used < Bitfield::kWords; ++used) {
      Bitfield field{};
      field.words[used].raw = 1ull << 63;
      const auto at = take_bits(field, 0, order);
      ASSERT_TRUE(at);
      EXPECT_EQ(*at / 64, used < words ? words : 0u);
      EXPECT_EQ(field.words[used].raw, 1ull << 63);
    }
  }
}

// --- tree and slot -------------------------------------------------------------------------------

TEST(FrameTree, reserve_moves_the_counter_and_unreserve_returns_it) {
  for (unsigned free = 0; free <= kTreeFrames; ++free) {
    const Tree t = Tree::make(free, false);
    unsigned classes = 0;
    for (const TreeClass c : {kPartial, kFree, allocated_with(0)}) {
      const auto r = t.reserve(c);
      if (!r) continue;
      ++classes;
      EXPECT_TRUE(r->reserved());
      EXPECT_EQ(r->free(), 0u);
      EXPECT_FALSE(r->reserve(c));
      EXPECT_EQ(r->unreserve(free)->raw, t.raw);
    }
    EXPECT_EQ(classes, 1u) << "each counter belongs to one class";
    EXPECT_FALSE(t.unreserve(0));
    EXPECT_EQ(t.give(1).has_value(), free < kTreeFrames);
    EXPECT_EQ(t.take_up_to(100).has_value(), free > 0);
    if (free > 0) {
      EXPECT_EQ(t.take_up_to(100)->free(), free - std::min(free, 100u));
    }
  }
}

TEST(FrameTree, class_bounds_are_an_eighth_from_both_ends) {
  EXPECT_EQ(kPartial.min, 2048u);
  EXPECT_EQ(kPartial.max, 14336u);
  EXPECT_EQ(kFree.min, 14337u);
  EXPECT_EQ(allocated_with(4).max, 2047u);
  EXPECT_EQ(allocated_with(4).min, 4u);
}

TEST(FrameReservation, fields_round_trip_and_transitions_keep_the_others) {
  for (const std::uint32_t zone : {0u, 1u, 3327u, 65535u}) {
    for (const std::uint32_t start : {0u, 64u, 16384u, 0xffffffc0u}) {
      for (const unsigned free : {0u, 1u, 512u, kTreeFrames}) {
        const Reservation r = Reservation::make(zone, start, free);
        EXPECT_TRUE(r.present());
        EXPECT_EQ(r.zone(), zone);
        EXPECT_EQ(r.start(), start);
        EXPECT_EQ(r.free(), free);
        const TreeId id = r.tree();
        EXPECT_EQ(id, (TreeId{zone, start / kTreeFrames}));
        EXPECT_EQ(r.take(1).has_value(), free >= 1);
        if (free >= 1) {
          EXPECT_EQ(r.take(1)->give(id, 1)->raw, r.raw);
        }
        EXPECT_EQ(r.give(id, 1).has_value(), free < kTreeFrames);
        EXPECT_FALSE(r.give({zone, id.tree + 1}, 0));
        EXPECT_FALSE(r.move_start(zone, start ^ kTreeFrames));
        EXPECT_EQ(r.move_start(zone, start)->raw, r.raw);
        EXPECT_EQ(r.take_up_to(id, 7).has_value(), free > 0);
        const auto dropped = r.drop(id);
        ASSERT_TRUE(dropped);
        EXPECT_FALSE(dropped->present());
        EXPECT_EQ(dropped->start(), start);
        EXPECT_FALSE(dropped->take(0));
        EXPECT_FALSE(dropped->give(id, 0));
      }
    }
  }
}

TEST(FrameHistory, counts_frees_in_a_row_and_starts_again_with_another_tree) {
  FreeHistory h{0};
  const TreeId a{0, 0};
  const TreeId b{0, 1};
  const TreeId c{1, 0};
  for (unsigned i = 1; i <= 300; ++i) {
    h = h.next(a);
    EXPECT_EQ(h.count(), std::min(i, 255u));
  }
  EXPECT_EQ(h.next(b).count(), 1u);
  EXPECT_EQ(h.next(c).count(), 1u);
  EXPECT_EQ(h.next(b).next(b).count(), 2u);
  EXPECT_EQ(h.next(b).next(a).count(), 1u);
}

// --- update --------------------------------------------------------------------------------------

TEST(FrameWord, update_loses_no_transition_of_four_threads) {
  Tree t = Tree::make(0, false);
  constexpr unsigned kEach = 4000;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (unsigned n = 0; n < kEach; ++n) {
        ASSERT_TRUE(update(t, [](Tree w) { return w.give(1); }));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(load(t).free(), 4 * kEach);
}

}  // namespace
