// The lower layer of one zone, without threads and without a pool: the geometry of zones of odd
// sizes, runs of huge frames, the bytes of a new zone, and what an open refuses.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "frame_memory.h"

namespace {

using namespace tenuto;
using namespace tenuto::frame;
using tests::FrameMemory;

constexpr std::uint64_t kMiB = 1u << 20;

// --- geometry ------------------------------------------------------------------------------------

TEST(FrameGeometry, odd_zones_cover_their_frames_and_nothing_else) {
  for (const std::uint64_t first : {0ull, 512ull, 1000ull, 1023ull, 1024ull, 77777ull}) {
    for (const std::uint64_t frames : {300ull, 512ull, 1000ull, 16384ull, 20001ull}) {
      const pm::ZoneEntry entry{first * kFrameBytes, frames * kFrameBytes};
      const auto g = ZoneGeometry::of(entry, first == 0 ? pm::kHeadBytes : 0);
      ASSERT_TRUE(g);
      EXPECT_EQ(g->base % 1024, 0u);
      EXPECT_LE(g->base, first);
      EXPECT_EQ(g->base + g->lead(), first);
      EXPECT_EQ(g->base + g->end(), first + frames);
      EXPECT_GE(g->children * 512ull, g->end());
      EXPECT_LT((g->children - 1) * 512ull, g->end());
      EXPECT_LE(g->state_end(), (first + g->own) * kFrameBytes);
      EXPECT_EQ(g->children_offset() % 64, 0u);
      EXPECT_EQ(g->bitfields_offset() % 64, 0u);
    }
  }
}

TEST(FrameGeometry, impossible_zones_have_none) {
  EXPECT_FALSE(ZoneGeometry::of({100, 1 << 20}, 0));
  EXPECT_FALSE(ZoneGeometry::of({0, 4095}, 0));
  EXPECT_FALSE(ZoneGeometry::of({0, 64 << 10}, pm::kHeadBytes)) << "no room behind the head";
  EXPECT_FALSE(ZoneGeometry::of({1 << 20, 0}, 0));
  EXPECT_FALSE(ZoneGeometry::of({0, ~std::uint64_t{4095}}, 0)) << "too large";
}

TEST(FrameGeometry, state_of_64_gib_is_a_three_thousandth_of_a_percent) {
  const auto g = ZoneGeometry::of({1ull << 36, 64ull << 30}, 0);
  ASSERT_TRUE(g);
  EXPECT_EQ(g->children, 32768u);
  EXPECT_EQ(g->state_end() - g->state_offset, 64u + 2 * 32768u + 64 * 32768u);
}

// --- runs ----------------------------------------------------------------------------------------

TEST(FrameRun, a_run_that_fails_at_any_child_changes_nothing) {
  for (std::uint32_t blocked = 0; blocked < 7; ++blocked) {
    const FrameMemory memory({200 * kMiB});
    Lower lower = memory.lower(0);
    constexpr std::uint32_t kFirst = 29;  // crosses a tree
    ASSERT_TRUE(lower.get_run(kFirst + blocked, 1));
    EXPECT_FALSE(lower.get_run(kFirst, 7));
    for (std::uint32_t c = 1; c < memory.geometry(0).children; ++c) {
      EXPECT_EQ(lower.child(c).whole(), c == kFirst + blocked) << "child " << c;
    }
    EXPECT_FALSE(lower.put_run(kFirst, 7));
    EXPECT_TRUE(lower.run_taken(kFirst + blocked, 1));
    EXPECT_TRUE(lower.put_run(kFirst + blocked, 1));
    EXPECT_TRUE(lower.get_run(kFirst, 7));
    EXPECT_TRUE(lower.put_run(kFirst, 7));
  }
}

TEST(FrameRun, find_run_equals_its_definition) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 200; ++round) {
    const FrameMemory memory({150 * kMiB});
    Lower lower = memory.lower(0);
    const std::uint32_t children = memory.geometry(0).children;
    for (std::uint32_t c = 1; c < children; ++c) {
      if (rng() % 4 == 0) {
        ASSERT_TRUE(lower.get_run(c, 1));
      }
    }
    for (std::uint32_t count = 1; count < 12; ++count) {
      const auto below = static_cast<std::uint32_t>(rng() % (children + 1));
      Found expected;
      for (std::uint32_t c = 0; c + count <= below; ++c) {
        bool free = true;
        for (std::uint32_t i = 0; i < count; ++i) free = free && lower.child(c + i).free() == 512;
        if (free) expected = {c};
      }
      EXPECT_EQ(lower.find_run(below, count), expected);
    }
  }
}

TEST(FrameRun, counters_that_are_short_of_the_children_stop_a_run_and_stay) {
  const FrameMemory memory({384 * kMiB});
  const auto upper = memory.attach(2);
  ASSERT_TRUE(upper->get(0, 0));  // tree 0 is reserved
  Zone& zone = upper->zone(0);
  // As while gets run in every tree: their claims are made, but their frames are not taken yet.
  std::vector<Tree> before;
  for (std::uint32_t t = 1; t < zone.trees(); ++t) {
    store(zone.tree(t), Tree::make(load(zone.tree(t)).free() - 512, false));
    before.push_back(load(zone.tree(t)));
  }
  EXPECT_FALSE(upper->get_run(63)) << "any 63 in a row hold a whole tree";
  for (std::uint32_t t = 1; t < zone.trees(); ++t) {
    EXPECT_EQ(load(zone.tree(t)).raw, before[t - 1].raw) << "tree " << t;
    (void)update(zone.tree(t), [](Tree w) { return w.give(512); });
  }
  EXPECT_EQ(FrameMemory::disagreement(*upper), "");
  EXPECT_TRUE(upper->get_run(63));
}

// --- format and check ----------------------------------------------------------------------------

TEST(FrameFormat, a_new_zone_has_these_bytes) {
  const FrameMemory memory({8 * kMiB});
  const std::byte* state = memory.base() + pm::kHeadBytes;
  const auto word = [&](std::size_t at, auto value) {
    decltype(value) found;
    std::memcpy(&found, state + at, sizeof found);
    return found == value;
  };
  EXPECT_EQ(std::memcmp(state, "TNTOZN1", 8), 0);
  EXPECT_TRUE(word(8, std::uint64_t{0}));      // first frame
  EXPECT_TRUE(word(16, std::uint64_t{2048}));  // frames
  EXPECT_TRUE(word(24, std::uint64_t{145}));   // own: 576 KiB of head, one page of state
  EXPECT_TRUE(word(56, std::uint32_t{0}));     // index
  EXPECT_TRUE(word(64, std::uint16_t{512 - 145}));
  EXPECT_TRUE(word(66, std::uint16_t{512}));
  EXPECT_TRUE(word(70, std::uint16_t{512}));
  EXPECT_TRUE(word(72, std::uint16_t{0}));  // padding
  EXPECT_TRUE(word(128, ~std::uint64_t{0}));
  EXPECT_TRUE(word(128 + 16, (std::uint64_t{1} << 17) - 1));
  EXPECT_TRUE(word(128 + 64, std::uint64_t{0}));
}

// A zone state with taken frames of all kinds, for the tests to damage.
struct Damaged : testing::Test {
  FrameMemory memory{{40 * kMiB, 20 * kMiB + 5 * kFrameBytes}};
  ZoneGeometry g = memory.geometry(0);

  Damaged() {
    Lower lower = memory.lower(0);
    EXPECT_TRUE(lower.get(0, 0));
    EXPECT_TRUE(lower.get(0, 7));
    EXPECT_TRUE(lower.get(4 * 512, 9));
  }
  std::uint16_t& child(std::uint32_t c) {
    return reinterpret_cast<std::uint16_t*>(memory.base() + g.children_offset())[c];
  }
  Bitfield& bits(std::uint32_t c) {
    return reinterpret_cast<Bitfield*>(memory.base() + g.bitfields_offset())[c];
  }
  void expect_refused(bool clean, const std::string& what) {
    Report report;
    EXPECT_EQ(memory.lower(0).check(0, clean, &report), Status::corrupt) << what;
    EXPECT_NE(report.text().find(what), std::string::npos) << report.text();
    EXPECT_FALSE(report.where.empty());
    EXPECT_FALSE(report.expected.empty());
    EXPECT_FALSE(report.found.empty());
  }
};

TEST_F(Damaged, sound_state_passes) {
  for (std::uint32_t z = 0; z < 2; ++z) {
    Report report;
    EXPECT_EQ(memory.lower(z).check(z, true, &report), Status::ok) << report.text();
  }
}

TEST_F(Damaged, every_flipped_bit_of_the_header_is_refused) {
  for (std::size_t bit = 0; bit < sizeof(ZoneHeader) * 8; ++bit) {
    auto& byte = memory.base()[g.state_offset + bit / 8];
    byte ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(memory.lower(0).check(0, false, nullptr), Status::corrupt) << "bit " << bit;
    byte ^= std::byte{1} << (bit % 8);
  }
}

TEST_F(Damaged, a_header_of_another_zone_is_refused) {
  std::memcpy(memory.base() + g.state_offset, memory.base() + memory.geometry(1).state_offset,
              sizeof(ZoneHeader));
  expect_refused(false, "header of a zone");
}

TEST_F(Damaged, every_flipped_bit_of_the_children_is_refused_after_a_clean_close) {
  for (std::uint32_t c = 0; c < g.trees * kTreeChildren; ++c) {
    for (unsigned bit = 0; bit < 16; ++bit) {
      child(c) ^= static_cast<std::uint16_t>(1u << bit);
      EXPECT_EQ(memory.lower(0).check(0, true, nullptr), Status::corrupt) << c << " " << bit;
      child(c) ^= static_cast<std::uint16_t>(1u << bit);
    }
  }
}

TEST_F(Damaged, every_flipped_bit_of_the_bitfields_is_refused_after_a_clean_close) {
  for (std::uint32_t c = 0; c < g.children; ++c) {
    for (unsigned bit = 0; bit < 512; ++bit) {
      bits(c).words[bit / 64].raw ^= 1ull << (bit % 64);
      EXPECT_EQ(memory.lower(0).check(0, true, nullptr), Status::corrupt) << c << " " << bit;
      bits(c).words[bit / 64].raw ^= 1ull << (bit % 64);
    }
  }
}

TEST_F(Damaged, a_counter_above_512_is_refused_even_after_a_crash) {
  child(5) = 513;
  expect_refused(false, "out of range");
}

TEST_F(Damaged, whole_with_a_counter_is_refused_even_after_a_crash) {
  child(5) = 0x8001;
  expect_refused(false, "out of range");
}

TEST_F(Damaged, padding_is_refused_even_after_a_crash) {
  child(g.children) = 512;
  expect_refused(false, "padding");
}

TEST_F(Damaged, free_bits_of_the_zones_own_state_are_refused_even_after_a_crash) {
  bits(0).words[1].raw &= ~2ull;
  expect_refused(false, "own state");
}

TEST_F(Damaged, the_zones_own_state_as_a_huge_object_is_refused_even_after_a_crash) {
  child(0) = 0x8000;
  expect_refused(false, "own state");
}

TEST_F(Damaged, stale_counters_are_no_damage_after_a_crash_and_are_recounted) {
  child(0) = 17;
  child(6) = 3;
  Lower lower = memory.lower(0);
  expect_refused(true, "differs from its bitfield");
  EXPECT_EQ(lower.check(0, false, nullptr), Status::ok);
  lower.recount();
  Report report;
  EXPECT_EQ(lower.check(0, true, &report), Status::ok) << report.text();
}

}  // namespace
