// Random gets and puts of all orders beside a reference that knows each base frame's state. Prints
// its seed. TENUTO_SEED repeats a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "frame_memory.h"
#include "support/seed.h"

namespace {

using namespace tenuto;
using namespace tenuto::frame;
using tests::FrameMemory;

constexpr std::uint64_t kMiB = 1u << 20;

std::uint64_t seed() {
  static const std::uint64_t value = tenuto::test::test_seed();
  return value;
}

// Which frames are taken, from the results of get and put alone.
class Reference {
 public:
  explicit Reference(std::uint64_t frames) : taken_(frames) {}

  // Takes [first, first + n). Returns what is wrong, or an empty string if all of it was free.
  std::string take(std::uint64_t first, std::uint64_t n, std::uint64_t align) {
    if (first % align != 0) return "misaligned";
    if (first + n > taken_.size()) return "outside";
    for (std::uint64_t f = first; f < first + n; ++f) {
      if (taken_[f]) return "overlap at frame " + std::to_string(f);
      taken_[f] = true;
    }
    count_ += n;
    return "";
  }
  void give(std::uint64_t first, std::uint64_t n) {
    std::fill_n(taken_.begin() + static_cast<std::ptrdiff_t>(first), n, false);
    count_ -= n;
  }
  std::uint64_t count() const { return count_; }
  bool taken(std::uint64_t f) const { return taken_[f]; }

 private:
  std::vector<bool> taken_;
  std::uint64_t count_ = 0;
};

struct Piece {
  FrameId first;
  unsigned order = 0;
  std::uint32_t run = 0;  // huge frames, if it is a run

  std::uint64_t frames() const { return run != 0 ? run * 512ull : 1ull << order; }
};

class Model : public testing::Test {
 protected:
  void start(const std::vector<std::uint64_t>& zones, unsigned cores) {
    memory = std::make_unique<FrameMemory>(zones);
    upper = memory->attach(cores);
    reference = std::make_unique<Reference>(memory->frames());
    for (std::uint32_t z = 0; z < memory->zones(); ++z) {
      const ZoneGeometry g = memory->geometry(z);
      ASSERT_EQ(reference->take(g.first_frame, g.own, 1), "");
    }
    own = reference->count();
  }
  bool get(unsigned order, unsigned core) {
    const auto f = upper->get(order, core);
    if (!f) {
      EXPECT_EQ(f.error(), Status::full);
      return false;
    }
    EXPECT_EQ(reference->take(f->value, 1ull << order, 1ull << order), "") << "order " << order;
    pieces.push_back({*f, order});
    return true;
  }
  bool get_run(std::uint32_t count) {
    const auto f = upper->get_run(count);
    if (!f) {
      EXPECT_EQ(f.error(), Status::full);
      return false;
    }
    EXPECT_EQ(reference->take(f->value, count * 512ull, 512), "") << "run " << count;
    pieces.push_back({*f, kOrderHuge, count});
    return true;
  }
  Status put(const Piece& p, unsigned core) {
    return p.run != 0 ? upper->put_run(p.first, p.run) : upper->put(p.first, p.order, core);
  }
  void put_at(std::size_t i, unsigned core) {
    std::swap(pieces[i], pieces.back());
    const Piece p = pieces.back();
    pieces.pop_back();
    EXPECT_EQ(put(p, core), Status::ok);
    reference->give(p.first.value, p.frames());
  }
  std::uint64_t free_below() const {
    std::uint64_t free = 0;
    for (std::uint32_t z = 0; z < upper->zone_count(); ++z) {
      for (std::uint32_t c = 0; c < upper->zone(z).geometry().children; ++c) {
        free += upper->zone(z).lower.child(c).free();
      }
    }
    return free;
  }
  void expect_sound() {
    EXPECT_EQ(FrameMemory::disagreement(*upper), "");
    EXPECT_EQ(free_below() + reference->count(), memory->frames());
  }

  std::unique_ptr<FrameMemory> memory;
  std::unique_ptr<Upper> upper;
  std::unique_ptr<Reference> reference;
  std::vector<Piece> pieces;
  std::uint64_t own = 0;
};

TEST_F(Model, random_gets_and_puts_of_all_orders_over_odd_zones) {
  std::mt19937_64 rng(seed());
  for (int round = 0; round < 6; ++round) {
    pieces.clear();
    const std::uint64_t odd = (rng() % 512) * kFrameBytes;
    start({40 * kMiB + odd, 70 * kMiB - odd, 9 * kMiB + (rng() % 512) * kFrameBytes, 136 * kMiB},
          1 + static_cast<unsigned>(rng() % 4));
    for (int i = 0; i < 30000; ++i) {
      const auto core = static_cast<unsigned>(rng() % 6);
      // Drifts by turns towards full and towards empty.
      const bool filling = rng() % 100 < ((i / 5000) % 2 == 0 ? 65u : 35u);
      if (filling) {
        if (rng() % 50 == 0) {
          (void)get_run(1 + static_cast<std::uint32_t>(rng() % 5));
        } else {
          const unsigned order =
              rng() % 8 == 0 ? static_cast<unsigned>(rng() % 11) : static_cast<unsigned>(rng() % 5);
          (void)get(order, core);
        }
      } else if (!pieces.empty()) {
        put_at(rng() % pieces.size(), core);
      }
      if (i % 3000 == 0) expect_sound();
    }
    while (!pieces.empty()) put_at(pieces.size() - 1, 0);
    expect_sound();
    EXPECT_EQ(reference->count(), own);
    if (HasFailure()) return;
  }
}

TEST_F(Model, one_thread_gets_every_single_frame_before_full) {
  start({40 * kMiB + 3 * kFrameBytes, 65 * kMiB, 200 * kMiB}, 4);
  for (unsigned i = 0; get(0, i); ++i) {
  }
  EXPECT_EQ(reference->count(), memory->frames());
  expect_sound();
  EXPECT_EQ(upper->get(0, 0).error(), Status::full);
  // One frame comes back, and a get on any core finds it.
  for (unsigned core = 0; core < 8; ++core) {
    const std::size_t i = pieces.size() / 2 + core;
    const FrameId f = pieces[i].first;
    put_at(i, core);
    ASSERT_TRUE(get(0, core + 1));
    EXPECT_EQ(pieces.back().first, f);
  }
}

TEST_F(Model, each_order_alone_fills_all_that_is_aligned) {
  for (unsigned order = 0; order <= kOrderMax; ++order) {
    pieces.clear();
    start({70 * kMiB + 7 * kFrameBytes, 33 * kMiB}, 2);
    const std::uint64_t n = 1ull << order;
    std::uint64_t possible = 0;
    for (std::uint64_t f = 0; f + n <= memory->frames(); f += n) {
      bool free = true;
      for (std::uint64_t i = f; i < f + n; ++i) free = free && !reference->taken(i);
      // A frame must not cross from one zone into the next.
      const std::uint64_t border = memory->geometry(1).first_frame;
      if (free && !(f < border && f + n > border)) ++possible;
    }
    std::uint64_t got = 0;
    for (unsigned i = 0; get(order, i); ++i) ++got;
    EXPECT_EQ(got, possible) << "order " << order;
    while (!pieces.empty()) put_at(0, static_cast<unsigned>(pieces.size()));
    expect_sound();
  }
}

TEST_F(Model, double_and_foreign_puts_are_reported_and_change_nothing) {
  std::mt19937_64 rng(seed());
  start({70 * kMiB, 30 * kMiB}, 2);
  for (unsigned order = 0; order <= kOrderMax; ++order) {
    ASSERT_TRUE(get(order, 0));
    ASSERT_TRUE(get(order, 1));
  }
  ASSERT_TRUE(get_run(3));
  while (!pieces.empty()) {
    const Piece p = pieces.back();
    put_at(pieces.size() - 1, 0);
    const std::uint64_t free = free_below();
    EXPECT_EQ(put(p, 0), Status::corrupt) << "order " << p.order << " run " << p.run;
    EXPECT_EQ(free_below(), free);
  }
  const std::uint64_t free = free_below();
  const std::uint64_t foreign[] = {
      0, 1, memory->geometry(0).own - 1, memory->geometry(1).first_frame, memory->frames(), ~0ull};
  for (const std::uint64_t f : foreign) {
    EXPECT_EQ(upper->put({f}, 0, 0), Status::corrupt) << f;
    EXPECT_EQ(upper->put({f}, 9, 0), Status::corrupt) << f;
    EXPECT_EQ(upper->put_run({f}, 1), Status::corrupt) << f;
  }
  ASSERT_TRUE(get(4, 0));
  EXPECT_EQ(upper->put({pieces[0].first.value + 1}, 4, 0), Status::corrupt) << "misaligned";
  EXPECT_EQ(upper->put(pieces[0].first, 9, 0), Status::corrupt) << "a slab is no huge frame";
  EXPECT_EQ(upper->put(pieces[0].first, 5, 0), Status::corrupt) << "half of it was never taken";
  ASSERT_TRUE(get(9, 0));
  EXPECT_EQ(upper->put(pieces[1].first, 0, 0), Status::corrupt) << "a piece of a huge frame";
  EXPECT_EQ(upper->put_run(pieces[1].first, 2), Status::corrupt) << "longer than what was taken";
  EXPECT_EQ(free_below() + 16 + 512, free);
  expect_sound();
}

TEST_F(Model, huge_frames_are_found_among_fragments) {
  start({130 * kMiB}, 2);
  while (get(0, 0)) {
  }
  // Of every huge frame one frame stays taken. Every fifth huge frame is freed wholly.
  std::set<std::uint64_t> spared;
  for (std::size_t i = pieces.size(); i-- > 0;) {
    const std::uint64_t huge = pieces[i].first.value / 512;
    if (huge % 5 != 0 && spared.insert(huge).second) continue;
    put_at(i, 0);
  }
  expect_sound();
  std::uint64_t wholly_free = 0;
  for (std::uint32_t c = 0; c < memory->geometry(0).children; ++c) {
    wholly_free += upper->zone(0).lower.child(c).free() == 512 ? 1 : 0;
  }
  std::uint64_t got = 0;
  while (get(9, 0)) ++got;
  EXPECT_EQ(got, wholly_free);
  EXPECT_GT(got, 10u);
  EXPECT_FALSE(get(10, 0));
  EXPECT_TRUE(get(8, 1));
}

TEST_F(Model, runs_cross_trees_and_reserved_trees_and_come_back) {
  start({260 * kMiB, 130 * kMiB}, 3);
  // Two trees are reserved, and their first huge frames are used: 97 in a row are left.
  ASSERT_TRUE(get(0, 0));
  ASSERT_TRUE(get(9, 2));
  EXPECT_FALSE(get_run(98));
  ASSERT_TRUE(get_run(90)) << "more than two trees in a row, one of them reserved";
  ASSERT_TRUE(get_run(40));
  expect_sound();
  while (get_run(1)) {
  }
  EXPECT_FALSE(get(9, 0));
  expect_sound();
  while (!pieces.empty()) put_at(pieces.size() / 2, 1);
  expect_sound();
  EXPECT_TRUE(get_run(90));
}

TEST_F(Model, a_core_keeps_to_its_zone_while_that_has_frames) {
  start({64 * kMiB, 64 * kMiB}, 1);
  const std::uint64_t border = memory->geometry(1).first_frame;
  bool left = false;
  while (get(3, 0)) {
    const bool second = pieces.back().first.value >= border;
    EXPECT_TRUE(second || !left);
    left = left || second;
  }
  EXPECT_TRUE(left);
}

TEST_F(Model, a_zone_added_later_is_used_and_given_back_to) {
  FrameMemory two({16 * kMiB, 24 * kMiB});
  const auto up = two.attach(2, 1);
  std::vector<FrameId> got;
  while (const auto f = up->get(0, 0)) got.push_back(*f);
  EXPECT_EQ(got.size(), two.geometry(0).frames - two.geometry(0).own);
  EXPECT_EQ(up->put({two.geometry(1).first_frame + 100}, 0, 0), Status::corrupt);
  two.add_zone(*up, 1);
  while (const auto f = up->get(0, 1)) got.push_back(*f);
  EXPECT_EQ(got.size(), two.usable());
  for (const FrameId f : got) EXPECT_EQ(up->put(f, 0, 0), Status::ok);
  EXPECT_EQ(FrameMemory::disagreement(*up), "");
}

TEST_F(Model, frees_in_a_row_reserve_the_tree_they_go_to) {
  start({300 * kMiB}, 2);
  for (int i = 0; i < 60000; ++i) ASSERT_TRUE(get(0, 0));
  // Core 1 frees much of tree 0, which a search would choose, and then as much of tree 1.
  for (const std::uint64_t tree : {0u, 1u}) {
    unsigned freed = 0;
    for (std::size_t i = pieces.size(); i-- > 0 && freed < 4096;) {
      if (pieces[i].first.value / kTreeFrames != tree) continue;
      put_at(i, 1);
      ++freed;
    }
    ASSERT_EQ(freed, 4096u);
  }
  ASSERT_TRUE(get(0, 1));
  EXPECT_EQ(pieces.back().first.value / kTreeFrames, 1u);
  expect_sound();
}

}  // namespace
