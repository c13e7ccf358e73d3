// A ConcurrentHashMap and its handle: single operations and transactions of many threads, threads
// and processes that end, then a look at every entry. Run it under ThreadSanitizer (preset tsan).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "support/pool_parts.h"
#include "support/seed.h"
#include "tenuto/concurrent_hash_map.h"
#include "tenuto/p.h"

namespace tenuto {
namespace {

// Both parts have the same sum in each committed state.
struct Value {
  std::uint64_t plus;
  std::uint64_t minus;
};
constexpr std::uint64_t kSum = 1'000'000;
using Map = ConcurrentHashMap<std::uint64_t, Value>;
static_assert(Element<Map>);

std::uint64_t scaled(std::uint64_t n) {
  const char* scale = std::getenv("TENUTO_STRESS_SCALE");
  return scale == nullptr ? n
                          : static_cast<std::uint64_t>(static_cast<double>(n) * std::atof(scale));
}

class MapsStress : public ::testing::Test {
 protected:
  MapsStress() {
    PoolOptions o;
    o.size = 16u << 20;
    o.size_max = 1u << 30;
    Result<Pool> made = Pool::create(path_.str(), o);
    EXPECT_TRUE(made);
    pool_ = std::make_unique<Pool>(std::move(*made));
    map_ = *pool_->root<Map>("map");
    handle_ = std::make_unique<Map::Handle>(*pool_, *map_);
  }
  bool free_now(std::uint64_t key) {
    bool free = false;
    std::thread([&] {
      free = handle_->insert_or_assign(key, Value{0, kSum}) == Status::ok;
    }).join();
    return free;
  }

  test::TempPath path_{"mapsstress"};
  std::unique_ptr<Pool> pool_;
  Map* map_ = nullptr;
  std::unique_ptr<Map::Handle> handle_;
};

TEST_F(MapsStress, single_operations_are_durable_transactions) {
  EXPECT_EQ(handle_->insert(1, Value{1, 2}), Status::ok);
  EXPECT_EQ(handle_->insert(1, Value{1, 2}), Status::exists);
  EXPECT_EQ(handle_->insert_or_assign(2, Value{3, 4}), Status::ok);
  EXPECT_EQ(handle_->erase(3), Status::not_found);
  const auto add = [](Transaction&, Value& v) {
    v.plus += 10;
    return Status::ok;
  };
  EXPECT_EQ(handle_->update(2, add), Status::ok);
  EXPECT_EQ(handle_->update(3, add), Status::not_found);
  const auto refuse = [](Transaction&, Value& v) {
    v.plus = 0;
    return Status::conflict;
  };
  EXPECT_EQ(handle_->update(2, refuse), Status::conflict);
  EXPECT_EQ(handle_->get(2)->plus, 13u);
  EXPECT_FALSE(handle_->get(3));
  EXPECT_TRUE(handle_->contains(1));
  EXPECT_EQ(handle_->erase(1), Status::ok);
  EXPECT_EQ(handle_->size(), 1u);
  handle_.reset();
  ASSERT_EQ(pool_->close(), Status::ok);
  pool_ = std::make_unique<Pool>(*Pool::open(path_.str()));
  map_ = *pool_->root<Map>("map");
  Map::Handle again(*pool_, *map_);
  EXPECT_EQ(again.get(2)->plus, 13u);
}

TEST_F(MapsStress, a_transaction_holds_its_shards_to_its_end) {
  std::thread waits;
  ASSERT_EQ(pool_->run([&](Transaction& tx) {
    TENUTO_TRY(handle_->lock(tx, 9, 2, 9));
    TENUTO_TRY(handle_->insert(tx, 2, Value{1, 1}));
    TENUTO_TRY(handle_->insert(tx, 9, Value{1, 1}));
    EXPECT_EQ((*handle_->get(tx, 2))->plus, 1u);
    EXPECT_EQ(*handle_->get(tx, 9 + 64), nullptr);
    (*handle_->edit(tx, 2))->plus = 4;
    waits = std::thread([&] { EXPECT_EQ(handle_->get(2)->plus, 5u) << "not before the commit"; });
    TENUTO_TRY(handle_->insert_or_assign(tx, 2, Value{5, 5}));
    return handle_->erase(tx, 9);
  }),
            Status::ok);
  waits.join();
  EXPECT_EQ(pool_->run([&](Transaction& tx) {
    TENUTO_TRY(handle_->clear(tx));
    return Status::conflict;
  }),
            Status::conflict);
  EXPECT_EQ(handle_->size(), 1u);
}

TEST_F(MapsStress, a_thread_that_ends_inside_frees_its_shards) {
  std::unique_ptr<Transaction> left;
  std::thread([&] {
    left = std::make_unique<Transaction>(*pool_);
    EXPECT_EQ(handle_->insert(*left, 7, Value{1, 1}), Status::ok);
  }).join();
  EXPECT_FALSE(handle_->contains(7));
  EXPECT_TRUE(free_now(7));
  left.reset();
  EXPECT_THROW(static_cast<void>(handle_->update(7,
                                                 [](Transaction&, Value& v) -> Status {
                                                   v.plus = 77;
                                                   throw std::bad_alloc();
                                                 })),
               std::bad_alloc);
  EXPECT_EQ(handle_->get(7)->plus, 0u);
  EXPECT_TRUE(free_now(7));
}

TEST_F(MapsStress, a_child_changes_nothing) {
  ASSERT_EQ(handle_->insert(1, Value{1, 1}), Status::ok);
  Transaction tx(*pool_);
  ASSERT_EQ(handle_->insert(tx, 2, Value{1, 1}), Status::ok);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = handle_->insert(5, Value{1, 1}) == Status::forked &&
                         handle_->insert(tx, 2, Value{1, 1}) == Status::forked &&
                         handle_->erase(1) == Status::forked && tx.commit() == Status::forked;
    // The lock is free here. (ThreadSanitizer does not see that it was made anew.)
    if (!test::kSanitized) static_cast<void>(handle_->contains(2));
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(handle_->size(), 2u);
  EXPECT_TRUE(free_now(2));
}

// Each thread moves amounts between entries, and inserts and erases keys of its own.
TEST_F(MapsStress, threads_keep_every_sum) {
  constexpr std::uint64_t kShared = 200, kThreads = 4;
  for (std::uint64_t k = 0; k < kShared; ++k) {
    ASSERT_EQ(handle_->insert(k, Value{kSum / 2, kSum / 2}), Status::ok);
  }
  std::vector<std::uint64_t> own(kThreads);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      for (std::uint64_t i = 0; i < scaled(10'000); ++i) {
        const std::uint64_t a = rng() % kShared, b = rng() % kShared, amount = rng() % 100;
        switch (rng() % 5) {
          case 0: {
            const Status s = pool_->run([&](Transaction& tx) {
              TENUTO_TRY(handle_->lock(tx, a, b));
              for (const std::uint64_t key : {a, b}) {
                const Result<Value*> v = handle_->edit(tx, key);
                if (!v) return v.error();
                (*v)->plus += key == a ? amount : -amount;
                (*v)->minus -= key == a ? amount : -amount;
              }
              return amount < 10 ? Status::conflict : Status::ok;
            });
            EXPECT_EQ(s, amount < 10 ? Status::conflict : Status::ok);
            break;
          }
          case 1:
            EXPECT_EQ(handle_->update(a,
                                      [&](Transaction&, Value& v) {
                                        v.plus += amount;
                                        v.minus -= amount;
                                        return Status::ok;
                                      }),
                      Status::ok);
            break;
          case 2:
            EXPECT_EQ(handle_->visit(a, [](const Value& v) { EXPECT_EQ(v.plus + v.minus, kSum); }),
                      Status::ok);
            break;
          default: {
            const std::uint64_t mine = 1'000'000 * (t + 1) + rng() % 300;
            if (handle_->contains(mine)) {
              EXPECT_EQ(handle_->erase(mine), Status::ok);
              own[t] -= 1;
            } else {
              EXPECT_EQ(handle_->insert(mine, Value{amount, kSum - amount}), Status::ok);
              own[t] += 1;
            }
          }
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  std::uint64_t want = kShared;
  for (const std::uint64_t n : own) want += n;
  EXPECT_EQ(handle_->size(), want);
  handle_->for_each([](std::uint64_t, const Value& v) { EXPECT_EQ(v.plus + v.minus, kSum); });
  Report r;
  EXPECT_EQ(map_->validate(&r), Status::ok) << r.text();
  EXPECT_EQ(pool_->validate(&r), Status::ok) << r.text();
}

// Shards grow and shrink by thousands of buckets while others read them.
TEST_F(MapsStress, shards_shrink_beside_readers) {
  const std::uint64_t keys = scaled(6000);
  for (std::uint64_t key = 0; key < keys + 100; ++key) {
    ASSERT_EQ(handle_->insert(key, Value{key, kSum - key}), Status::ok);
  }
  std::size_t blocks = 0;
  map_->for_each_block([&](const void*) { blocks += 1; });
  std::atomic<int> writers{2};
  std::atomic<bool> wrong{false};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t key = t; key < keys; key += 2) {
        if (handle_->erase(key) != Status::ok) wrong = true;
      }
      writers -= 1;
    });
    threads.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      while (writers > 0) {
        const std::uint64_t key = rng() % (keys + 100);
        const std::optional<Value> v = handle_->get(key);
        if (v ? v->plus != key || v->plus + v->minus != kSum : key >= keys) wrong = true;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(handle_->size(), 100u);
  Report r;
  EXPECT_EQ(map_->validate(&r), Status::ok) << r.text();
  std::size_t left = 0;
  map_->for_each_block([&](const void*) { left += 1; });
  EXPECT_LT(left, blocks / 2);
}

}  // namespace
}  // namespace tenuto
