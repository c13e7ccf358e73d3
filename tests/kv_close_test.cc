// A close beside calls of other threads, made through copies of the store as a collection. A call
// that began before the close is done, and in the pool. One that begins later returns closed, and
// is not. The closed pool is whole.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "pm/sanitizer.h"
#include "support/kv_fixture.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

using namespace std::chrono_literals;

constexpr int kRounds = TENUTO_ASAN || TENUTO_TSAN ? 6 : 25;

class KvCloseTest : public KvFixture, public testing::WithParamInterface<Medium> {
 protected:
  KvCloseTest() { options_.pool.medium = GetParam(); }

  // Writes the numbers above `n` to `key` until the store is closed. Returns the last one.
  static std::uint64_t count_up(Collection in, const std::string& key, std::uint64_t n) {
    for (n += 1;; ++n) {
      const Status s = n % 3 == 0 ? in.merge(key, [&](auto) { return std::to_string(n); })
                                  : in.put(key, std::to_string(n));
      if (s == Status::ok) continue;
      EXPECT_EQ(s, Status::closed);
      return n - 1;
    }
  }
  // Fills and erases, so that leaves split and vanish.
  static void come_and_go(Collection in, const std::string& prefix) {
    for (int round = 0;; ++round) {
      for (int i = 0; i < 200; ++i) {
        const std::string key = prefix + key_of(i);
        const Status s = round % 2 == 0 ? in.put(key, std::string(100, 'v')) : in.erase(key);
        if (s == Status::closed) return;
        EXPECT_TRUE(s == Status::ok || s == Status::not_found) << status_name(s);
      }
    }
  }
  static void read(const Collection& in) {
    std::string value;
    for (int i = 0;; ++i) {
      const std::string key = "goes" + key_of(i % 200);
      const Status statuses[] = {
          in.get(key, value), in.contains(key), in.lower_bound(key).error(),
          in.multi_get(std::vector<std::string_view>{key, "count"}, [](auto, auto, auto) {})};
      for (const Status s : statuses) {
        if (s == Status::closed) return;
        EXPECT_TRUE(s == Status::ok || s == Status::not_found) << status_name(s);
      }
    }
  }
  // Erases in ranges and in batches of several leaves.
  static void erase(Collection in) {
    for (;;) {
      const Result<std::uint64_t> erased = in.erase_range("goes", "goet");
      if (erased) continue;
      if (erased.error() == Status::closed) return;
      EXPECT_EQ(erased.error(), Status::conflict);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(media, KvCloseTest,
                         testing::Values(Medium::cache, Medium::line, Medium::journal),
                         [](const auto& which) { return std::string(medium_name(which.param)); });

TEST_P(KvCloseTest, what_was_acknowledged_is_there_and_nothing_else) {
  std::uint64_t main_count = 0;
  std::uint64_t named_count = 0;
  for (int round = 0; round < kRounds; ++round) {
    {
      Store s = opened();
      const Result<Collection> named = s.collection("named");
      ASSERT_TRUE(named);
      std::vector<std::thread> threads;
      threads.emplace_back(
          [&, c = Collection(s)] { main_count = count_up(c, "count", main_count); });
      threads.emplace_back([&, c = *named] { named_count = count_up(c, "count", named_count); });
      threads.emplace_back([c = Collection(s)] { come_and_go(c, "goes"); });
      threads.emplace_back([c = Collection(s)] { read(c); });
      if (round % 2 == 0) threads.emplace_back([c = Collection(s)] { erase(c); });
      std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
      EXPECT_EQ(s.close(), Status::ok);
      for (std::thread& t : threads) t.join();
    }
    Store s = opened();
    EXPECT_TRUE(s.pool().info().was_clean);
    expect_valid(s);
    const Result<Collection> named = s.collection("named");
    ASSERT_TRUE(named);
    EXPECT_EQ(s.get("count").value_or("0"), std::to_string(main_count));
    EXPECT_EQ(named->get("count").value_or("0"), std::to_string(named_count));
    EXPECT_EQ(s.close(), Status::ok);
  }
}

// It began before the close, and commits after it.
TEST_P(KvCloseTest, a_transaction_that_commits_later_writes_nothing) {
  Store s = opened();
  StoreTransaction tx = s.begin();
  EXPECT_EQ(tx.put("key", "value"), Status::ok);
  EXPECT_TRUE(tx.create("new", {}));
  EXPECT_EQ(s.close(), Status::ok);
  EXPECT_EQ(tx.commit(), Status::closed);
  Store again = opened();
  EXPECT_EQ(again.contains("key"), Status::not_found);
  expect_valid(again);
}

// As a thread in a user's function that waits for something else.
TEST_P(KvCloseTest, a_close_is_busy_while_a_call_does_not_return) {
  Store s = opened();
  ASSERT_EQ(s.put("key", "old"), Status::ok);
  std::promise<void> inside;
  std::promise<void> release;
  std::thread other([&, c = Collection(s)]() mutable {
    EXPECT_EQ(c.merge("key",
                      [&, first = true](auto) mutable {
                        if (std::exchange(first, false)) {
                          inside.set_value();
                          release.get_future().wait();
                        }
                        return std::optional<std::string>("new");
                      }),
              Status::ok);
  });
  inside.get_future().wait();
  EXPECT_EQ(s.close(), Status::busy);
  release.set_value();
  other.join();
  EXPECT_EQ(s.put("later", "value"), Status::ok) << "a refused close leaves the store open";
  EXPECT_TRUE(s.snapshot());
  EXPECT_EQ(s.close(), Status::ok);
  Store again = opened();
  EXPECT_TRUE(again.pool().info().was_clean);
  EXPECT_EQ(again.get("key").value_or(""), "new");
  EXPECT_EQ(again.get("later").value_or(""), "value");
}

TEST_P(KvCloseTest, a_function_that_a_call_calls_cannot_close_the_store) {
  Store s = opened();
  EXPECT_EQ(s.merge("key",
                    [&](auto) {
                      EXPECT_EQ(s.close(), Status::busy);
                      return std::optional<std::string>("new");
                    }),
            Status::ok);
  const std::vector<std::string_view> keys = {"key"};
  EXPECT_EQ(s.multi_get(keys,
                        [&](std::size_t, Status got, std::string_view value) {
                          EXPECT_EQ(s.close(), Status::busy);
                          EXPECT_EQ(got, Status::ok);
                          EXPECT_EQ(value, "new");
                        }),
            Status::ok);
  EXPECT_EQ(s.put("later", "value"), Status::ok);
  EXPECT_EQ(s.close(), Status::ok);
  Store again = opened();
  EXPECT_TRUE(again.pool().info().was_clean);
  EXPECT_EQ(again.get("key").value_or(""), "new");
}

// A call of another store is no reason to wait.
TEST_P(KvCloseTest, a_close_does_not_wait_for_calls_of_another_store) {
  const TempPath other_path("kv-other");
  Store other = *Store::open(other_path.str(), options_);
  Store s = opened();
  std::promise<void> inside;
  std::promise<void> release;
  std::thread thread([&, c = Collection(other)]() mutable {
    EXPECT_EQ(c.merge("key",
                      [&, first = true](auto) mutable {
                        if (std::exchange(first, false)) {
                          inside.set_value();
                          release.get_future().wait();
                        }
                        return std::optional<std::string>("new");
                      }),
              Status::ok);
  });
  inside.get_future().wait();
  EXPECT_EQ(s.close(), Status::ok);
  release.set_value();
  thread.join();
}

}  // namespace
}  // namespace tenuto::test
