// Threads on one ConcurrentHashMap, interleaved by a seed and crashed by the explorer. Single
// operations must leave one linearizable history for each key. Transactions over several shards
// must be done as a whole or not at all, and none may be lost. Threads that use the map in a wrong
// way must be found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "support/explored_medium.h"
#include "support/key_history.h"
#include "tenuto/concurrent_hash_map.h"
#include "tenuto/crash.h"
#include "tenuto/pool.h"

namespace tenuto::test {
namespace {

using Map = ConcurrentHashMap<std::uint64_t, std::uint64_t>;

struct Root {
  Map map;
};
constexpr const char* kLayout = "shared_map_crash";
constexpr std::uint32_t kThreads = KeyHistory::kThreads;
constexpr std::uint64_t kOperations = 5;  // of each thread

enum class Bug : std::uint8_t {
  none,
  acknowledges_early,
  two_handles,  // so threads do not share the locks
};

PoolOptions small() {
  PoolOptions o;
  o.size = kPoolBytesMin;
  o.size_max = 4 * kPoolBytesMin;
  o.recovery_threads = 1;
  return on_explored_medium(o);
}

// One handle for all threads, as it should be, or one each.
struct Handles {
  Handles(Pool& pool, Map& map, Bug bug) {
    for (std::uint32_t t = 0; t < (bug == Bug::two_handles ? kThreads : 1); ++t) {
      all.emplace_back(pool, map);
    }
  }
  Map::Handle& of(std::uint32_t thread) { return all[thread % all.size()]; }
  std::vector<Map::Handle> all;
};

// Opens the pool of an image, has the map validated and looks into it.
std::string look(const CrashImage& image,
                 const std::function<std::string(const Map::Handle&)>& look_into) {
  Report report;
  Result<Pool> pool = Pool::open(image.path(), small(), &report);
  if (!pool) return "open: " + report.text();
  const Result<Root*> root = pool->root<Root>(kLayout);
  if (!root) return "no root";
  if ((*root)->map.validate(*pool, &report) != Status::ok) return "the map: " + report.text();
  const Map::Handle map(*pool, (*root)->map);
  if (std::string wrong = look_into(map); !wrong.empty()) return wrong;
  if (pool->validate(&report) != Status::ok) return "validate: " + report.text();
  return pool->close() == Status::ok ? "" : "close failed";
}

// --- single operations ---------------------------------------------------------------------------

KeyedNumbers numbers_of(Map::Handle& map) {
  return {
      [&map](std::uint64_t key, std::uint64_t value) { return map.insert_or_assign(key, value); },
      [&map](std::uint64_t key) { return map.erase(key); },
      [&map](std::uint64_t key) { return map.get(key).value_or(kAbsent); }};
}

CrashResult run_single(std::uint64_t seed, Bug bug) {
  KeyHistory history(seed, bug == Bug::acknowledges_early);
  const auto setup = [](const std::string& path) {
    Result<Pool> pool = Pool::create(path, small());
    ASSERT_TRUE(pool && pool->root<Root>(kLayout));
    ASSERT_EQ(pool->close(), Status::ok);
  };
  const auto workload = [&](CrashContext& c) {
    Result<Pool> pool = Pool::open(c.path(), small());
    ASSERT_TRUE(pool);
    const Result<Root*> root = pool->root<Root>(kLayout);
    ASSERT_TRUE(root);
    Handles handles(*pool, (*root)->map, bug);
    history.run(c, [&](std::uint32_t t) { return numbers_of(handles.of(t)); });
  };
  const auto check = [&](const CrashImage& image) {
    return look(image, [&](const Map::Handle& map) {
      return history.check([&](std::uint64_t key) { return map.get(key).value_or(kAbsent); });
    });
  };
  return CrashRunner(few_states(seed)).run(setup, workload, check);
}

TEST(shared_map_crash, single_operations_leave_linearizable_histories) {
  const auto run = [](std::uint64_t seed) { return run_single(seed, Bug::none); };
  EXPECT_GT(checks_of_seeds(4, run), 300u);
}

TEST(shared_map_crash, an_operation_that_is_acknowledged_early_is_found) {
  const auto run = [](std::uint64_t seed) { return run_single(seed, Bug::acknowledges_early); };
  EXPECT_THAT(first_finding(6, run), testing::ContainsRegex(kWrongHistory));
}

// --- transactions over several shards ------------------------------------------------------------

constexpr std::uint64_t kAccounts = 3;
constexpr std::uint64_t kStart = 1000;  // in each account
using Balances = std::array<std::uint64_t, kAccounts>;

struct Transfer {
  std::uint64_t from, to, amount;
};

// The key of a thread counts its transfers, in the same transactions. Amounts add up in any order,
// so the two counts tell all balances.
struct Transfers {
  std::array<std::vector<Transfer>, kThreads> plan;
  std::array<std::uint64_t, kThreads> invoked{};
  std::array<std::uint64_t, kThreads> acknowledged{};
  Bug bug = Bug::none;
  std::uint64_t seed;

  explicit Transfers(std::uint64_t s) : seed(s) {
    std::mt19937_64 rng(seed);
    for (auto& of_thread : plan) {
      for (std::uint64_t i = 0; i < kOperations; ++i) {
        const std::uint64_t from = rng() % kAccounts;
        of_thread.push_back({from, (from + 1 + rng() % 2) % kAccounts, 1 + rng() % 9});
      }
    }
  }
  static std::uint64_t counter(std::uint32_t thread) { return kAccounts + thread; }

  void operator()(CrashContext& c) {
    invoked = acknowledged = {};
    Result<Pool> pool = Pool::open(c.path(), small());
    ASSERT_TRUE(pool);
    const Result<Root*> root = pool->root<Root>(kLayout);
    ASSERT_TRUE(root);
    Handles handles(*pool, (*root)->map, bug);
    std::vector<std::function<void()>> bodies;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      bodies.emplace_back([this, &c, &p = *pool, &map = handles.of(t), t] {
        for (const Transfer& transfer : plan[t]) {
          c.update([&] { ++invoked[t]; });
          ASSERT_EQ(p.run([&](Transaction& tx) { return move(tx, map, transfer, t); }), Status::ok);
          c.update([&] { ++acknowledged[t]; });
        }
      });
    }
    c.interleave(bodies);
  }

  static Status add(Transaction& tx, Map::Handle& map, std::uint64_t key, std::uint64_t amount) {
    const Result<const std::uint64_t*> now = map.get(tx, key);
    if (!now) return now.error();
    return map.insert_or_assign(tx, key, (*now == nullptr ? 0 : **now) + amount);
  }
  static Status move(Transaction& tx, Map::Handle& map, const Transfer& what, std::uint32_t t) {
    TENUTO_TRY(map.lock(tx, what.from, what.to, counter(t)));
    TENUTO_TRY(add(tx, map, what.from, ~what.amount + 1));
    TENUTO_TRY(add(tx, map, what.to, what.amount));
    return add(tx, map, counter(t), 1);
  }

  std::string check(const CrashImage& image) const {
    return look(image, [&](const Map::Handle& map) -> std::string {
      Balances expected;
      expected.fill(kStart);
      for (std::uint32_t t = 0; t < kThreads; ++t) {
        const std::uint64_t done = map.get(counter(t)).value_or(0);
        if (done < acknowledged[t] || done > invoked[t]) {
          return "thread " + std::to_string(t) + " did " + std::to_string(done) + " transfers";
        }
        for (std::uint64_t i = 0; i < done; ++i) {
          expected[plan[t][i].from] -= plan[t][i].amount;
          expected[plan[t][i].to] += plan[t][i].amount;
        }
      }
      for (std::uint64_t i = 0; i < kAccounts; ++i) {
        if (map.get(i).value_or(0) != expected[i]) return "a transfer is done in part";
      }
      return {};
    });
  }

  CrashResult run() {
    const auto setup = [](const std::string& path) {
      Result<Pool> pool = Pool::create(path, small());
      ASSERT_TRUE(pool);
      const Result<Root*> root = pool->root<Root>(kLayout);
      ASSERT_TRUE(root);
      Map::Handle map(*pool, (*root)->map);
      for (std::uint64_t i = 0; i < kAccounts; ++i) ASSERT_EQ(map.insert(i, kStart), Status::ok);
      ASSERT_EQ(pool->close(), Status::ok);
    };
    return CrashRunner(few_states(seed))
        .run(
            setup, [this](CrashContext& c) { (*this)(c); },
            [this](const CrashImage& image) { return check(image); });
  }
};

TEST(shared_map_crash, transfers_between_shards_are_whole) {
  const auto run = [](std::uint64_t seed) { return Transfers(seed).run(); };
  EXPECT_GT(checks_of_seeds(4, run), 300u);
}

TEST(shared_map_crash, threads_with_a_handle_each_are_found) {
  const auto run = [](std::uint64_t seed) {
    Transfers threads(seed);
    threads.bug = Bug::two_handles;
    return threads.run();
  };
  EXPECT_THAT(first_finding(12, run), testing::ContainsRegex("transfer|the map"));
}

}  // namespace
}  // namespace tenuto::test
