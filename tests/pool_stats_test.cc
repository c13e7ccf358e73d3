// PoolStats::allocated_bytes is exactly what the application holds, and cached_bytes the blocks in
// the caches of threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::key_of;
using test::TempPath;

constexpr std::size_t kSlots = 4096;
struct Root {
  Ptr<std::byte> slot[kSlots];
};

class PoolStatsTest : public testing::Test {
 protected:
  void SetUp() override {
    pool_.emplace(*Pool::create(path_.str(), options()));
    open_root();
    base_ = allocated();
  }
  static PoolOptions options() {
    PoolOptions o = test::PoolParts::small_options();
    o.size = 32u << 20;
    o.medium = Medium::cache;
    return o;
  }
  void open_root() { root_ = *pool_->root<Root>("stats"); }
  void reopen() {
    pool_.reset();
    pool_.emplace(*Pool::open(path_.str(), options()));
    open_root();
  }
  std::uint64_t allocated() const { return pool_->stats().allocated_bytes; }
  // Of everything but the root.
  std::uint64_t held() const { return allocated() - base_; }
  std::uint64_t named() const {
    std::uint64_t bytes = 0;
    for (const Ptr<std::byte>& p : root_->slot) bytes += p ? pool_->usable_size(p.get()) : 0;
    return bytes;
  }

  TempPath path_{"stats"};
  std::optional<Pool> pool_;
  Root* root_ = nullptr;
  std::uint64_t base_ = 0;
};

TEST_F(PoolStatsTest, n_allocated_and_m_freed_are_n_minus_m) {
  constexpr std::uint64_t kBytes = 112;  // the class of 100 bytes
  constexpr std::size_t n = 1000, m = 700;
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(pool_->malloc_to(100, root_->slot[i]), Status::ok);
  EXPECT_EQ(held(), n * kBytes);
  for (std::size_t i = 0; i < m; ++i) ASSERT_EQ(pool_->free_from(root_->slot[i]), Status::ok);
  EXPECT_EQ(held(), (n - m) * kBytes);
  EXPECT_GT(pool_->stats().cached_bytes, 0u);
  ASSERT_EQ(pool_->trim(), Status::ok);
  EXPECT_EQ(held(), (n - m) * kBytes);
  EXPECT_EQ(pool_->stats().cached_bytes, 0u);
  reopen();
  EXPECT_EQ(held(), (n - m) * kBytes);
  EXPECT_EQ(pool_->stats().cached_bytes, 0u);
}

TEST_F(PoolStatsTest, one_block_is_one_block_and_its_neighbours_are_cached) {
  ASSERT_EQ(pool_->malloc_to(64, root_->slot[0]), Status::ok);
  EXPECT_EQ(held(), 64u);
  EXPECT_GT(pool_->stats().cached_bytes, 0u) << "the cache took more than one";
  ASSERT_EQ(pool_->free_from(root_->slot[0]), Status::ok);
  EXPECT_EQ(held(), 0u);
}

TEST_F(PoolStatsTest, reserved_blocks_and_those_of_transactions_are_held) {
  const Result<Reserved> block = pool_->reserve(100);
  const Result<Reserved> extent = pool_->reserve(20'000);
  ASSERT_TRUE(block && extent);
  EXPECT_EQ(held(), 112u + 20'480u);
  ASSERT_EQ(pool_->publish(*block, root_->slot[0].word()), Status::ok);
  EXPECT_EQ(held(), 112u + 20'480u);
  ASSERT_EQ(pool_->cancel(*extent), Status::ok);
  EXPECT_EQ(held(), 112u);
  {
    Transaction tx(*pool_);
    ASSERT_TRUE(tx.alloc(1000));
    ASSERT_TRUE(tx.alloc(5u << 20));
    EXPECT_EQ(held(), 112u + 1024u + (6u << 20));
    ASSERT_EQ(tx.free(root_->slot[0].get()), Status::ok);
    EXPECT_EQ(held(), 1024u + (6u << 20)) << "it is being freed";
    tx.abort();
  }
  EXPECT_EQ(held(), 112u);
  EXPECT_EQ(held(), named());
  ASSERT_EQ(pool_->run([&](Transaction& tx) {
    TENUTO_TRY(tx.add(root_->slot[0]));
    TENUTO_TRY(tx.free(root_->slot[0].get()));
    root_->slot[0] = nullptr;
    return Status::ok;
  }),
            Status::ok);
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(pool_->validate(), Status::ok);
}

// Of all sizes, also in slabs of two sizes: the figure is the sum of the usable sizes.
TEST_F(PoolStatsTest, a_random_program_holds_what_it_names) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 12; ++round) {
    const std::uint64_t most = 1ull << (5 + round % 12);
    for (int i = 0; i < 3000; ++i) {
      Ptr<std::byte>& slot = root_->slot[rng() % kSlots];
      if (slot) {
        ASSERT_EQ(pool_->free_from(slot), Status::ok);
      } else {
        ASSERT_EQ(pool_->malloc_to(1 + rng() % most, slot), Status::ok);
      }
    }
    for (std::size_t i = 0; i < kSlots; i += 2 + rng() % 2) {
      const Status freed = root_->slot[i] ? pool_->free_from(root_->slot[i]) : Status::ok;
      ASSERT_EQ(freed, Status::ok);
    }
    ASSERT_EQ(held(), named()) << "round " << round;
  }
  ASSERT_EQ(pool_->validate(), Status::ok);
  reopen();
  EXPECT_EQ(held(), named());
  // As after a crash: a copy of the file while it is open.
  const TempPath copy("stats-copy");
  test::write_image(copy.str(), test::read_image(path_.str()));
  Result<Pool> crashed = Pool::open(copy.str(), options());
  ASSERT_TRUE(crashed);
  EXPECT_FALSE(crashed->info().was_clean);
  EXPECT_EQ(crashed->stats().allocated_bytes, allocated());
}

TEST_F(PoolStatsTest, many_threads_hold_what_they_name) {
  constexpr std::size_t kThreads = 4, kEach = kSlots / kThreads;
  std::atomic<unsigned> done{0};
  std::atomic<bool> stay{true};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t * kEach; i < (t + 1) * kEach; ++i) {
        EXPECT_EQ(pool_->malloc_to(64 + 64 * t, root_->slot[i]), Status::ok);
      }
      // Also blocks of another thread.
      done.fetch_add(1);
      while (done.load() < kThreads) std::this_thread::yield();
      const std::size_t other = (t + 1) % kThreads;
      for (std::size_t i = other * kEach; i < (other + 1) * kEach - 100; ++i) {
        EXPECT_EQ(pool_->free_from(root_->slot[i]), Status::ok);
      }
      done.fetch_add(1);
      while (stay.load()) std::this_thread::yield();
    });
  }
  while (done.load() < 2 * kThreads) std::this_thread::yield();
  EXPECT_EQ(held(), 100u * (64 + 128 + 192 + 256)) << "the threads live, and are in no call";
  EXPECT_GT(pool_->stats().cached_bytes, 0u);
  stay = false;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(held(), named());
  reopen();
  EXPECT_EQ(held(), 100u * (64 + 128 + 192 + 256));
}

using StoreStatsTest = test::KvFixture;

TEST_F(StoreStatsTest, records_and_leaves_are_held_and_free_ones_are_not) {
  std::optional<Store> store(opened());
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(store->put(key_of(i), std::string(100, 'v')), Status::ok);
  }
  const std::uint64_t full = store->stats().pool.allocated_bytes;
  EXPECT_GT(full, 3000u * 112);
  for (int i = 0; i < 3000; i += 2) ASSERT_EQ(store->erase(key_of(i)), Status::ok);
  ASSERT_TRUE(store->reclaim());
  ASSERT_EQ(store->stats().retired_bytes, 0u);
  const std::uint64_t half = store->stats().pool.allocated_bytes;
  const std::uint64_t of_a_record = (full - half) / 1500;
  EXPECT_EQ((full - half) % 1500, 0u) << "only records went";
  EXPECT_TRUE(of_a_record >= 112 && of_a_record <= 160) << of_a_record;
  ASSERT_EQ(store->close(), Status::ok);
  store.emplace(opened());
  EXPECT_EQ(store->stats().pool.allocated_bytes, half);
  // The open has given the image of the leaves back.
  EXPECT_LT(store->stats().pool.cached_bytes, 64u * store->stats().leaves);
}

}  // namespace
}  // namespace tenuto
