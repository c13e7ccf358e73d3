// Threads on one ConcurrentHashMap, interleaved by a seed and crashed by the explorer. Single
// operations must leave one linearizable history for each key. Transactions over several shards
// must be done as a whole or not at all, and none may be lost. Threads that use the map in a wrong
// way must be found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/explored_medium.h"
#include "tenuto/concurrent_hash_map.h"
#include "tenuto/crash.h"
#include "tenuto/crash_history.h"
#include "tenuto/pool.h"

namespace tenuto::test {
namespace {

using Map = ConcurrentHashMap<std::uint64_t, std::uint64_t>;

struct Root {
  Map map;
};
constexpr const char* kLayout = "shared_map_crash";
constexpr std::uint32_t kThreads = 2;
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

std::uint64_t value_in(const std::optional<std::uint64_t>& found) {
  return found ? *found : kAbsent;
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

CrashResult explore(std::uint64_t seed, const std::function<void(const std::string&)>& setup,
                    const std::function<void(CrashContext&)>& workload,
                    const std::function<std::string(const CrashImage&)>& check) {
  CrashOptions o;
  o.seed = seed;
  o.findings_max = 1;
  o.minimise = false;
  o.product_max = 40;
  o.samples_max = 20;
  o.recovery_states_max = 2;
  return CrashRunner(o).run(setup, workload, check);
}

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

const std::vector<std::uint64_t> kKeys = {1, 2};

struct Single {
  CrashHistory history;
  Bug bug = Bug::none;
  std::uint64_t seed = 1;

  void operator()(CrashContext& c) {
    history = {};
    Result<Pool> pool = Pool::open(c.path(), small());
    ASSERT_TRUE(pool);
    const Result<Root*> root = pool->root<Root>(kLayout);
    ASSERT_TRUE(root);
    Handles handles(*pool, (*root)->map, bug);
    std::vector<std::function<void()>> bodies;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      bodies.emplace_back([this, &c, &map = handles.of(t), t] { work(c, map, t); });
    }
    c.interleave(bodies);
  }

  void work(CrashContext& c, Map::Handle& map, std::uint32_t t) {
    std::mt19937_64 rng(seed * 131 + t);
    for (std::uint64_t i = 1; i <= kOperations; ++i) {
      const std::uint64_t key = kKeys[rng() % kKeys.size()];
      const std::string name = std::to_string(key);
      CrashHistory::Id id = 0;
      switch (rng() % 4) {
        case 0: {
          c.update([&] { id = history.erase(t, name); });
          const Status s = map.erase(key);
          ASSERT_TRUE(s == Status::ok || s == Status::not_found);
          c.update([&] { history.erased(id, s == Status::ok); });
          break;
        }
        case 1: {
          c.update([&] { id = history.get(t, name); });
          const std::uint64_t seen = value_in(map.get(key));
          c.update([&] { history.got(id, seen); });
          break;
        }
        default: {
          const std::uint64_t value = (t + 1) * 100 + i;
          c.update([&] { id = history.put(t, name, value); });
          if (bug == Bug::acknowledges_early) c.update([&] { history.returned(id); });
          ASSERT_EQ(map.insert_or_assign(key, value), Status::ok);
          if (bug != Bug::acknowledges_early) c.update([&] { history.returned(id); });
        }
      }
    }
  }

  std::string check(const CrashImage& image) const {
    return look(image, [&](const Map::Handle& map) {
      CrashHistory all = history;
      all.crash();
      for (const std::uint64_t key : kKeys) {
        const auto id = all.get(kThreads, std::to_string(key));
        all.got(id, value_in(map.get(key)));
      }
      return all.check();
    });
  }

  CrashResult run() {
    const auto setup = [](const std::string& path) {
      Result<Pool> pool = Pool::create(path, small());
      ASSERT_TRUE(pool && pool->root<Root>(kLayout));
      ASSERT_EQ(pool->close(), Status::ok);
    };
    return explore(
        seed, setup, [this](CrashContext& c) { (*this)(c); },
        [this](const CrashImage& image) { return check(image); });
  }
};

TEST(shared_map_crash, single_operations_leave_linearizable_histories) {
  std::uint64_t checks = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Single threads;
    threads.seed = seed;
    const CrashResult r = threads.run();
    EXPECT_TRUE(r.ok()) << "seed " << seed << "\n" << r.text();
    checks += r.checks;
  }
  EXPECT_GT(checks, 300u);
}

TEST(shared_map_crash, an_operation_that_is_acknowledged_early_is_found) {
  std::string found;
  for (std::uint64_t seed = 1; seed <= 6 && found.empty(); ++seed) {
    Single threads;
    threads.seed = seed;
    threads.bug = Bug::acknowledges_early;
    const CrashResult r = threads.run();
    if (!r.ok()) found = r.text();
  }
  EXPECT_THAT(found, testing::ContainsRegex("a get saw|an erase (found|missed)"));
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
    return explore(
        seed, setup, [this](CrashContext& c) { (*this)(c); },
        [this](const CrashImage& image) { return check(image); });
  }
};

TEST(shared_map_crash, transfers_between_shards_are_whole) {
  std::uint64_t checks = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const CrashResult r = Transfers(seed).run();
    EXPECT_TRUE(r.ok()) << "seed " << seed << "\n" << r.text();
    checks += r.checks;
  }
  EXPECT_GT(checks, 300u);
}

TEST(shared_map_crash, threads_with_a_handle_each_are_found) {
  std::string found;
  for (std::uint64_t seed = 1; seed <= 12 && found.empty(); ++seed) {
    Transfers threads(seed);
    threads.bug = Bug::two_handles;
    const CrashResult r = threads.run();
    if (!r.ok()) found = r.text();
  }
  EXPECT_THAT(found, testing::ContainsRegex("transfer|the map"));
}

}  // namespace
}  // namespace tenuto::test
