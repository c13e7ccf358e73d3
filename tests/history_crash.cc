// Threads on the same keys of a store, interleaved by a seed and crashed by the explorer. What they
// saw and what recovery shows must be one linearizable history for each key. The histories of
// wrappers with bugs must be found wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tenuto/crash.h"
#include "tenuto/crash_history.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

constexpr int kThreads = 2;
constexpr int kOperations = 5;  // of each thread
const std::vector<std::string> kKeys = {"apple", "pear"};

enum class Bug : std::uint8_t { none, acknowledges_early, forgets_a_put };

StoreOptions small_store() {
  StoreOptions o;
  o.pool.size = kPoolBytesMin;
  o.pool.size_max = 4 * kPoolBytesMin;
  o.pool.medium = Medium::cache;
  o.pool.recovery_threads = 1;
  return o;
}

// Makes an empty store and closes it.
void setup(const std::string& path) {
  auto store = Store::open(path, small_store());
  ASSERT_TRUE(store);
  ASSERT_EQ(store->close(), Status::ok);
}

struct Threads {
  CrashHistory history;
  Bug bug = Bug::none;
  std::uint64_t seed = 1;

  void operator()(CrashContext& c) {
    history = {};
    auto store = Store::open(c.path(), small_store());
    ASSERT_TRUE(store);
    std::vector<std::function<void()>> bodies;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      bodies.emplace_back([this, &c, &s = *store, t] { work(c, s, t); });
    }
    c.interleave(bodies);
  }

  void work(CrashContext& c, Store& store, std::uint32_t t) {
    std::mt19937_64 rng(seed * 131 + t);
    for (std::uint64_t i = 1; i <= kOperations; ++i) {
      const std::string& key = kKeys[rng() % kKeys.size()];
      CrashHistory::Id id = 0;
      switch (rng() % 4) {
        case 0: {
          c.update([&] { id = history.erase(t, key); });
          const Status s = store.erase(key);
          ASSERT_TRUE(s == Status::ok || s == Status::not_found);
          c.update([&] { history.erased(id, s == Status::ok); });
          break;
        }
        case 1: {
          c.update([&] { id = history.get(t, key); });
          const std::uint64_t seen = number_of(store, key);
          c.update([&] { history.got(id, seen); });
          break;
        }
        default: {
          const std::uint64_t value = (t + 1) * 100 + i;
          c.update([&] { id = history.put(t, key, value); });
          if (bug == Bug::acknowledges_early) c.update([&] { history.returned(id); });
          if (bug != Bug::forgets_a_put || i != 4) {
            ASSERT_EQ(store.put(key, std::to_string(value)), Status::ok);
          }
          if (bug != Bug::acknowledges_early) c.update([&] { history.returned(id); });
        }
      }
    }
  }

  static std::uint64_t number_of(const Store& store, const std::string& key) {
    std::string value;
    const Status s = store.get(key, value);
    return s == Status::ok ? std::strtoull(value.c_str(), nullptr, 10) : kAbsent;
  }

  std::string check(const CrashImage& image) const {
    CrashHistory all = history;
    all.crash();
    Report report;
    auto store = Store::open(image.path(), small_store(), &report);
    if (!store) return "open: " + report.text();
    for (const std::string& key : kKeys) {
      const auto id = all.get(kThreads, key);
      all.got(id, number_of(*store, key));
    }
    if (store->validate(&report) != Status::ok) return "validate: " + report.text();
    return all.check();
  }

  CrashResult run() {
    CrashOptions o;
    o.seed = seed;
    o.findings_max = 1;
    o.minimise = false;
    o.product_max = 40;
    o.samples_max = 20;
    o.recovery_states_max = 2;
    return CrashRunner(o).run(
        setup, [this](CrashContext& c) { (*this)(c); },
        [this](const CrashImage& image) { return check(image); });
  }
};

TEST(history_crash, threads_on_the_same_keys_leave_linearizable_histories) {
  std::uint64_t checks = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Threads threads;
    threads.seed = seed;
    const CrashResult r = threads.run();
    EXPECT_TRUE(r.ok()) << "seed " << seed << "\n" << r.text();
    checks += r.checks;
  }
  EXPECT_GT(checks, 500u);
}

TEST(history_crash, a_put_that_is_acknowledged_early_is_found) {
  std::string found;
  for (std::uint64_t seed = 1; seed <= 6 && found.empty(); ++seed) {
    Threads threads;
    threads.seed = seed;
    threads.bug = Bug::acknowledges_early;
    const CrashResult r = threads.run();
    if (!r.ok()) found = r.text();
  }
  EXPECT_THAT(found, testing::ContainsRegex("a get saw|an erase (found|missed)"));
}

TEST(history_crash, a_put_that_is_forgotten_is_found) {
  std::string found;
  for (std::uint64_t seed = 1; seed <= 6 && found.empty(); ++seed) {
    Threads threads;
    threads.seed = seed;
    threads.bug = Bug::forgets_a_put;
    const CrashResult r = threads.run();
    if (!r.ok()) found = r.text();
  }
  EXPECT_THAT(found, testing::ContainsRegex("a get saw|an erase (found|missed)"));
}

}  // namespace
}  // namespace tenuto::test
