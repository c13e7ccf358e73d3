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

// A call of another thread that is inside the user's function: it stores "new" when it is let go.
class CallThatWaits {
 public:
  explicit CallThatWaits(const Store& store)
      : thread_([this, c = Collection(store)]() mutable {
          EXPECT_EQ(c.merge("key",
                            [this, first = true](auto) mutable {
                              if (std::exchange(first, false)) {
                                inside_.set_value();
                                release_.get_future().wait();
                              }
                              return std::optional<std::string>("new");
                            }),
                    Status::ok);
        }) {
    inside_.get_future().wait();
  }
  void end() {
    release_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> inside_, release_;
  std::thread thread_;  // last: it uses the others
};

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
  CallThatWaits call(s);
  EXPECT_EQ(s.close(), Status::busy);
  call.end();
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
  CallThatWaits call(other);
  EXPECT_EQ(s.close(), Status::ok);
  call.end();
}

// A collection that is made while the close begins is closed with the others.
TEST_P(KvCloseTest, collections_that_transactions_make_meanwhile) {
  for (int round = 0; round < kRounds; ++round) {
    const std::string name = "made" + std::to_string(round);
    std::uint64_t count = 0;
    Status committed = Status::closed;
    {
      Store s = opened();
      std::promise<void> begins;
      std::thread other([&, tx = s.begin()]() mutable {
        Result<Collection> made = tx.create(name, {});
        ASSERT_TRUE(made);
        for (int i = 0; i < 300; ++i) EXPECT_EQ(tx.put({*made, key_of(i)}, "value"), Status::ok);
        begins.set_value();
        committed = tx.commit();
        EXPECT_TRUE(committed == Status::ok || committed == Status::closed);
        if (committed == Status::ok) count = count_up(*made, "count", 0);
      });
      begins.get_future().wait();
      std::this_thread::sleep_for(std::chrono::microseconds(30 * round));
      EXPECT_EQ(s.close(), Status::ok);
      other.join();
    }
    Store s = opened();
    EXPECT_TRUE(s.pool().info().was_clean);
    expect_valid(s);
    const Result<Collection> made = s.collection(name, {.create_if_missing = false});
    ASSERT_EQ(made.error(), committed == Status::ok ? Status::ok : Status::not_found);
    if (made) {
      int records = 0;
      Iterator it = made->iterator();
      for (it.seek_first(); it.valid(); it.next()) ++records;
      EXPECT_EQ(records, 300 + (count != 0 ? 1 : 0));
      EXPECT_EQ(made->get("count").value_or("0"), std::to_string(count));
    }
  }
}

// Calls of a transaction and a snapshot that walk or copy: each returns as if alone, or closed.
TEST_P(KvCloseTest, transactions_and_snapshots_beside_it) {
  for (int round = 0; round < kRounds; ++round) {
    Store s = opened();
    Collection pairs = *s.collection("pairs", {.duplicates = true, .expires = true});
    for (int i = 0; i < 60; ++i) {
      const Status put = pairs.put("key", key_of(i) + std::string(900, 'v'));
      ASSERT_TRUE(put == Status::ok || put == Status::exists);
    }
    const auto expected = [](Status got) {
      EXPECT_TRUE(got == Status::ok || got == Status::closed || got == Status::not_found ||
                  got == Status::conflict || got == Status::expired)
          << status_name(got);
      return got != Status::closed;
    };
    // Begun before: a transaction begins by a call of the store itself.
    const auto transactions = [&s] {
      std::vector<StoreTransaction> all;
      for (int i = 0; i < 200; ++i) all.push_back(s.begin());
      return all;
    };
    std::vector<std::thread> threads;
    threads.emplace_back([&, c = pairs, all = transactions()]() mutable {
      for (StoreTransaction& tx : all) {
        if (!expected(tx.touch({c, "key"}, 100'000)) || !expected(tx.erase({c, "key"}))) return;
        tx.rollback();
      }
    });
    threads.emplace_back([&, c = pairs, all = transactions()]() mutable {
      std::string value;
      for (StoreTransaction& tx : all) {
        if (!expected(tx.get({c, "key"}, value)) || !expected(tx.get_for_update("plain", value)))
          return;
        tx.rollback();
      }
    });
    threads.emplace_back([&, all = transactions()]() mutable {
      for (StoreTransaction& tx : all) {
        if (!expected(tx.create("gone", {}).error())) return;
        tx.rollback();
      }
    });
    threads.emplace_back([&, c = pairs, snapshot = *s.snapshot()] {
      std::string value;
      while (expected(snapshot.contains({c, "key"})) && expected(snapshot.get({c, "key"}, value))) {
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
    EXPECT_EQ(s.close(), Status::ok);
    for (std::thread& t : threads) t.join();
  }
  Store s = opened();
  EXPECT_TRUE(s.pool().info().was_clean);
  expect_valid(s);
}

// A call in a function of another call: each pool waits for its own.
TEST_P(KvCloseTest, calls_in_the_function_of_another_call_are_waited_for) {
  const TempPath other_path("kv-close-other");
  const auto busy_while = [&](bool close_other, const auto& outer) {
    Store s = opened();
    Store other = *Store::open(other_path.str(), options_);
    ASSERT_EQ(s.put("key", "value"), Status::ok);
    ASSERT_EQ(other.put("key", "value"), Status::ok);
    std::promise<void> inside;
    std::promise<void> release;
    const auto rest = [&] {
      inside.set_value();
      release.get_future().wait();
    };
    std::thread thread(
        [&, a = Collection(s), b = Collection(other)]() mutable { outer(a, b, rest); });
    inside.get_future().wait();
    EXPECT_EQ((close_other ? other : s).close(), Status::busy);
    release.set_value();
    thread.join();
    EXPECT_EQ(s.close(), Status::ok);
    EXPECT_EQ(other.close(), Status::ok);
  };
  const std::vector<std::string_view> keys = {"key"};
  // A write inside a read, and its end, hide neither pool.
  busy_while(false, [&](Collection& a, Collection& b, const auto& rest) {
    EXPECT_EQ(a.multi_get(keys,
                          [&](std::size_t, Status, std::string_view) {
                            EXPECT_EQ(a.put("other", "value"), Status::ok);
                            EXPECT_EQ(b.put("other", "value"), Status::ok);
                            rest();
                          }),
              Status::ok);
  });
  // A read of another store inside a write.
  busy_while(true, [&](Collection& a, Collection& b, const auto& rest) {
    EXPECT_EQ(a.merge("key",
                      [&](auto) {
                        EXPECT_EQ(b.multi_get(keys, [&](auto, auto, auto) { rest(); }), Status::ok);
                        return std::optional<std::string>("new");
                      }),
              Status::ok);
  });
}

TEST_P(KvCloseTest, pairs_are_not_looked_for_in_a_closed_store) {
  Store s = opened();
  Collection pairs = *s.collection("pairs", {.duplicates = true, .expires = true});
  ASSERT_EQ(pairs.put("key", "value"), Status::ok);
  ASSERT_EQ(s.close(), Status::ok);
  EXPECT_EQ(pairs.erase("key"), Status::closed);
  EXPECT_EQ(pairs.touch("key", {.ttl_ms = 1000}), Status::closed);
  EXPECT_EQ(pairs.erase_range("a", "z").error(), Status::closed);
}

}  // namespace
}  // namespace tenuto::test
