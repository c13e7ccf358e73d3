// Threads on the same keys of a store, interleaved by a seed and crashed by the explorer. What they
// saw and what recovery shows must be one linearizable history for each key. The histories of
// wrappers with bugs must be found wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/key_history.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

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

std::string name_of(std::uint64_t key) { return "key " + std::to_string(key); }

std::uint64_t number_of(const Store& store, std::uint64_t key) {
  std::string value;
  const Status s = store.get(name_of(key), value);
  return s == Status::ok ? std::strtoull(value.c_str(), nullptr, 10) : kAbsent;
}

KeyedNumbers numbers_of(Store& store, Bug bug) {
  return {[&store, bug](std::uint64_t key, std::uint64_t value) {
            const bool forgets = bug == Bug::forgets_a_put && value % 100 == 4;
            return forgets ? Status::ok : store.put(name_of(key), std::to_string(value));
          },
          [&store](std::uint64_t key) { return store.erase(name_of(key)); },
          [&store](std::uint64_t key) { return number_of(store, key); }};
}

CrashResult run(std::uint64_t seed, Bug bug) {
  KeyHistory history(seed, bug == Bug::acknowledges_early);
  const auto workload = [&](CrashContext& c) {
    auto store = Store::open(c.path(), small_store());
    ASSERT_TRUE(store);
    history.run(c, [&](std::uint32_t) { return numbers_of(*store, bug); });
  };
  const auto check = [&](const CrashImage& image) -> std::string {
    Report report;
    auto store = Store::open(image.path(), small_store(), &report);
    if (!store) return "open: " + report.text();
    std::string wrong = history.check([&](std::uint64_t key) { return number_of(*store, key); });
    if (store->validate(&report) != Status::ok) return "validate: " + report.text();
    return wrong;
  };
  return CrashRunner(few_states(seed)).run(setup, workload, check);
}

TEST(history_crash, threads_on_the_same_keys_leave_linearizable_histories) {
  EXPECT_GT(checks_of_seeds(6, [](std::uint64_t seed) { return run(seed, Bug::none); }), 500u);
}

TEST(history_crash, a_put_that_is_acknowledged_early_is_found) {
  const auto early = [](std::uint64_t seed) { return run(seed, Bug::acknowledges_early); };
  EXPECT_THAT(first_finding(6, early), testing::ContainsRegex(kWrongHistory));
}

TEST(history_crash, a_put_that_is_forgotten_is_found) {
  const auto forgets = [](std::uint64_t seed) { return run(seed, Bug::forgets_a_put); };
  EXPECT_THAT(first_finding(6, forgets), testing::ContainsRegex(kWrongHistory));
}

}  // namespace
}  // namespace tenuto::test
