// Slabs that are emptied with the help of the owners of their blocks: which slabs are chosen, which
// blocks are handed out meanwhile, and when the frames are freed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "heap/heap.h"
#include "support/pool_parts.h"

namespace tenuto {
namespace {

using heap::Evacuation;
using heap::Kind;
using test::PoolParts;
using test::TempPath;

constexpr std::uint64_t kBytes = 1024;
constexpr unsigned kBlocks = 63;  // blocks of a slab, about

class HeapEvacuateTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(p_.create(path_.str()), Status::ok) << p_.report.text(); }

  PoolOffset take(std::uint64_t bytes = kBytes) {
    const auto b = p_.heap->reserve(bytes, Kind::derived);
    EXPECT_TRUE(b);
    return b ? b->offset : PoolOffset{};
  }
  // Fills so many slabs, and releases all but every n-th block.
  std::vector<PoolOffset> sparse(unsigned slabs, unsigned n) {
    std::vector<PoolOffset> all;
    for (unsigned i = 0; i < slabs * kBlocks; ++i) all.push_back(take());
    std::vector<PoolOffset> left;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % n == 0) {
        left.push_back(all[i]);
      } else {
        p_.heap->release(all[i]);
      }
    }
    return left;
  }
  // Does what an owner has to do: replaces each leaving block by a new one.
  std::size_t move_all(std::vector<PoolOffset>& blocks) {
    std::size_t moved = 0;
    for (PoolOffset& b : blocks) {
      if (!p_.heap->leaving(b)) continue;
      const PoolOffset fresh = take();
      EXPECT_FALSE(p_.heap->leaving(fresh));
      p_.heap->release(b);
      b = fresh;
      ++moved;
    }
    return moved;
  }
  void expect_sound(std::vector<PoolOffset> blocks) {
    std::multiset<std::uint64_t> want;
    std::multiset<std::uint64_t> have;
    for (const PoolOffset b : blocks) want.insert(b.value);
    p_.heap->for_each(Kind::derived, [&](PoolOffset o, std::uint64_t) { have.insert(o.value); });
    EXPECT_EQ(have, want);
    EXPECT_EQ(p_.heap->validate(&p_.report), Status::ok) << p_.report.text();
  }

  TempPath path_{"heap_evacuate"};
  PoolParts p_;
};

TEST_F(HeapEvacuateTest, slabs_that_fit_into_fewer_are_emptied_and_go) {
  std::vector<PoolOffset> left = sparse(20, 5);
  const std::uint64_t before = p_.heap->stats().slabs;
  const Evacuation e = p_.heap->begin_evacuation(0.7, 0, {});
  EXPECT_TRUE(e.all);
  EXPECT_GE(e.slabs, 14u);
  EXPECT_EQ(p_.heap->slabs_leaving(), e.slabs);
  EXPECT_GT(move_all(left), 0u);
  EXPECT_EQ(p_.heap->slabs_leaving(), 0u) << "each goes with its last block";
  EXPECT_EQ(p_.heap->end_evacuation(), 0u);
  p_.heap->trim();
  EXPECT_LE(p_.heap->stats().slabs, before - e.slabs);
  EXPECT_EQ(p_.heap->begin_evacuation(0.7, 0, {}).slabs, 0u) << "nothing is left to gain";
  EXPECT_EQ(p_.heap->end_evacuation(), 0u);
  expect_sound(left);
}

TEST_F(HeapEvacuateTest, what_is_not_moved_keeps_its_slab_as_it_was) {
  std::vector<PoolOffset> left = sparse(20, 5);
  const Evacuation e = p_.heap->begin_evacuation(0.7, 0, {});
  EXPECT_EQ(p_.heap->end_evacuation(), e.slabs);
  for (const PoolOffset b : left) EXPECT_FALSE(p_.heap->leaving(b));
  expect_sound(left);
  const std::uint64_t slabs = p_.heap->stats().slabs;
  for (unsigned i = 0; i < 10 * kBlocks; ++i) left.push_back(take());
  EXPECT_EQ(p_.heap->stats().slabs, slabs) << "their free blocks are handed out again";
  expect_sound(left);
}

TEST_F(HeapEvacuateTest, full_slabs_other_kinds_and_what_is_fixed_stay) {
  std::vector<PoolOffset> full;
  for (unsigned i = 0; i < 4 * kBlocks; ++i) full.push_back(take());
  EXPECT_EQ(p_.heap->begin_evacuation(0.7, 0, {}).slabs, 0u);
  EXPECT_EQ(p_.heap->end_evacuation(), 0u);
  std::vector<PoolOffset> left = sparse(20, 5);
  const std::vector<PoolOffset> fixed = {left[3], left[100]};
  EXPECT_GT(p_.heap->begin_evacuation(0.7, 0, fixed).slabs, 10u);
  EXPECT_FALSE(p_.heap->leaving(left[3]));
  EXPECT_FALSE(p_.heap->leaving(left[100]));
  for (const PoolOffset b : full) EXPECT_FALSE(p_.heap->leaving(b));
  const auto logged = p_.heap->reserve(kBytes, Kind::logged);
  ASSERT_TRUE(logged);
  EXPECT_FALSE(p_.heap->leaving(logged->offset));
  move_all(left);
  EXPECT_EQ(p_.heap->end_evacuation(), 0u);
  p_.heap->release(logged->offset);
  left.insert(left.end(), full.begin(), full.end());
  expect_sound(left);
}

TEST_F(HeapEvacuateTest, a_bound_takes_the_emptiest_first_and_says_that_there_are_more) {
  std::vector<PoolOffset> left = sparse(20, 5);
  const Evacuation e = p_.heap->begin_evacuation(0.7, 40, {});
  EXPECT_FALSE(e.all);
  EXPECT_GE(e.slabs, 2u);
  EXPECT_LE(move_all(left), 40u);
  EXPECT_EQ(p_.heap->end_evacuation(), 0u);
  expect_sound(left);
}

TEST_F(HeapEvacuateTest, a_full_pool_gets_the_blocks_back_that_were_held_back) {
  PoolOptions small = PoolParts::small_options();
  small.size = small.size_max = kPoolBytesMin;
  const TempPath path("heap_evacuate_full");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), small), Status::ok) << p.report.text();
  std::vector<PoolOffset> all;
  while (const auto b = p.heap->reserve(kBytes, Kind::derived)) all.push_back(b->offset);
  std::size_t left = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % 3 != 0) p.heap->release(all[i]);
    left += i % 3 == 0 ? 1 : 0;
  }
  const Evacuation e = p.heap->begin_evacuation(1.0, 0, {});
  EXPECT_GT(e.slabs, 10u);
  std::size_t more = 0;
  while (p.heap->reserve(kBytes, Kind::derived)) ++more;
  EXPECT_EQ(more + left, all.size());
  EXPECT_EQ(p.heap->slabs_leaving(), 0u);
  EXPECT_EQ(p.heap->end_evacuation(), e.slabs);
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

TEST_F(HeapEvacuateTest, after_a_crash_nobody_knows_of_it) {
  std::vector<PoolOffset> left = sparse(20, 5);
  EXPECT_GT(p_.heap->begin_evacuation(0.7, 0, {}).slabs, 0u);
  for (std::size_t i = 0; i < left.size() / 2; ++i) {
    if (p_.heap->leaving(left[i])) {
      p_.heap->release(left[i]);
      left[i] = take();
    }
  }
  p_.crash();
  ASSERT_EQ(p_.begin_open(path_.str()), Status::ok) << p_.report.text();
  for (const PoolOffset b : left) ASSERT_EQ(p_.heap->mark(b, &p_.report), Status::ok);
  ASSERT_EQ(p_.end_open(), Status::ok);
  expect_sound(left);
}

// Other threads reserve and release meanwhile, also blocks in leaving slabs.
TEST_F(HeapEvacuateTest, under_threads) {
  constexpr unsigned kThreads = 3;
  std::vector<std::vector<PoolOffset>> mine(kThreads);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      while (!stop.load(std::memory_order_relaxed)) {
        const bool grow = rng() % 4 == 0 && mine[t].size() < 20 * kBlocks;
        for (unsigned i = 0; i < 200; ++i) {
          if (grow || mine[t].size() < 50) {
            mine[t].push_back(take());
          } else {
            std::swap(mine[t][rng() % mine[t].size()], mine[t].back());
            p_.heap->release(mine[t].back());
            mine[t].pop_back();
          }
        }
      }
    });
  }
  std::vector<PoolOffset> left = sparse(20, 5);
  std::uint64_t emptied = 0;
  for (int round = 0; round < 30; ++round) {
    const Evacuation e = p_.heap->begin_evacuation(0.8, 0, {});
    move_all(left);
    emptied += e.slabs - p_.heap->end_evacuation();
  }
  stop.store(true, std::memory_order_relaxed);
  for (auto& t : threads) t.join();
  EXPECT_GT(emptied, 0u);
  for (const auto& m : mine) left.insert(left.end(), m.begin(), m.end());
  expect_sound(left);
}

// --- pages that no block needs -------------------------------------------------------------------

TEST_F(HeapEvacuateTest, trim_gives_free_slabs_back_also_beside_used_ones) {
  std::vector<PoolOffset> all;
  for (unsigned i = 0; i < 60 * kBlocks; ++i) all.push_back(take());
  const std::uint64_t before = p_.file->bytes_on_disk();
  std::vector<PoolOffset> left;
  std::set<std::uint64_t> slabs;
  // One slab in three is kept, so that no 2 MiB become free as a whole.
  for (const PoolOffset b : all) {
    if (b.value / 65536 % 3 == 0) {
      left.push_back(b);
      std::memset(p_.file->at<char>(b), 'x', kBytes);
    } else {
      slabs.insert(b.value / 65536);
      p_.heap->release(b);
    }
  }
  ASSERT_GT(slabs.size(), 30u);
  p_.heap->trim();
  EXPECT_LE(p_.file->bytes_on_disk(), before - (slabs.size() - 2) * 65536);
  for (const PoolOffset b : left) ASSERT_EQ(*p_.file->at<char>(b + (kBytes - 1)), 'x');
  // New blocks have space in the file again.
  for (unsigned i = 0; i < 60 * kBlocks; ++i) {
    left.push_back(take());
    std::memset(p_.file->at<char>(left.back()), 'y', kBytes);
  }
  EXPECT_EQ(p_.frames->validate(&p_.report), Status::ok) << p_.report.text();
  expect_sound(left);
}

}  // namespace
}  // namespace tenuto
