// What transactions on keys promise, one promise a test. isolation_stress tests that concurrent
// ones are serialisable.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace {
thread_local unsigned yields = 0;
}

// Replaces libc's, and counts.
extern "C" int sched_yield() noexcept {
  ++yields;
  return static_cast<int>(::syscall(SYS_sched_yield));
}

namespace tenuto {
namespace {

using test::key_of;
using test::Keys;

class KvTransactionTest : public test::KvFixture {
 protected:
  void SetUp() override {
    for (int i = 0; i < 10; ++i) ASSERT_EQ(s_.put(key_of(i), "old"), Status::ok);
  }
  void TearDown() override { expect_valid(s_); }

  Store s_ = opened();
  std::string value_;
};

TEST_F(KvTransactionTest, its_writes_are_its_own_until_the_commit) {
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(tx.put(key_of(1), "mine"), Status::ok);
  EXPECT_EQ(tx.put("new", "mine"), Status::ok);
  EXPECT_EQ(tx.erase(key_of(2)), Status::ok);
  EXPECT_EQ(*tx.get(key_of(1)), "mine");
  EXPECT_EQ(*tx.get("new"), "mine");
  EXPECT_EQ(tx.contains(key_of(2)), Status::not_found);
  EXPECT_EQ(*s_.get(key_of(1)), "old");
  EXPECT_EQ(s_.contains("new"), Status::not_found);
  EXPECT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(*s_.get(key_of(1)), "mine");
  EXPECT_EQ(*s_.get("new"), "mine");
  EXPECT_EQ(s_.contains(key_of(2)), Status::not_found);
}

TEST_F(KvTransactionTest, a_rollback_and_an_end_without_commit_change_nothing) {
  {
    StoreTransaction tx = s_.begin();
    EXPECT_EQ(tx.put(key_of(1), "mine"), Status::ok);
    tx.rollback();
    EXPECT_EQ(tx.put(key_of(1), "mine"), Status::closed);
    EXPECT_EQ(tx.get(key_of(1)).error(), Status::closed);
    EXPECT_EQ(tx.commit(), Status::closed);
  }
  {
    StoreTransaction tx = s_.begin();
    EXPECT_EQ(tx.put(key_of(1), "mine"), Status::ok);
  }
  EXPECT_EQ(*s_.get(key_of(1)), "old");
  EXPECT_EQ(s_.stats().snapshots, 0u);
}

TEST_F(KvTransactionTest, reads_are_of_one_moment) {
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(*tx.get(key_of(1)), "old");
  ASSERT_EQ(s_.put(key_of(2), "new"), Status::ok);
  EXPECT_EQ(*tx.get(key_of(2)), "old");
  EXPECT_EQ(tx.commit(), Status::ok) << "it wrote nothing, and what it saw was so at one moment";
}

TEST_F(KvTransactionTest, a_key_that_was_read_and_changed_is_a_conflict) {
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(*tx.get(key_of(1)), "old");
  EXPECT_EQ(tx.put(key_of(5), "mine"), Status::ok);
  ASSERT_EQ(s_.put(key_of(1), "new"), Status::ok);
  EXPECT_EQ(tx.commit(), Status::conflict);
  EXPECT_EQ(*s_.get(key_of(5)), "old");
}

TEST_F(KvTransactionTest, a_key_that_was_missed_and_appeared_is_a_conflict) {
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(tx.contains("none"), Status::not_found);
  EXPECT_EQ(tx.put(key_of(5), "mine"), Status::ok);
  ASSERT_EQ(s_.put("none", "new"), Status::ok);
  EXPECT_EQ(tx.commit(), Status::conflict);
}

TEST_F(KvTransactionTest, changes_elsewhere_are_no_conflict) {
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(*tx.get(key_of(1)), "old");
  EXPECT_EQ(tx.put(key_of(5), "mine"), Status::ok);
  ASSERT_EQ(s_.put(key_of(2), "new"), Status::ok);      // in the same leaf
  ASSERT_EQ(s_.put(key_of(5), "another"), Status::ok);  // the transaction writes it without a read
  EXPECT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(*s_.get(key_of(5)), "mine");
}

TEST_F(KvTransactionTest, write_skew_is_refused) {
  StoreTransaction a = s_.begin();
  StoreTransaction b = s_.begin();
  EXPECT_EQ(*a.get(key_of(1)), "old");
  EXPECT_EQ(*b.get(key_of(2)), "old");
  EXPECT_EQ(a.put(key_of(2), "a"), Status::ok);
  EXPECT_EQ(b.put(key_of(1), "b"), Status::ok);
  EXPECT_EQ(a.commit(), Status::ok);
  EXPECT_EQ(b.commit(), Status::conflict);
}

TEST_F(KvTransactionTest, a_phantom_is_a_conflict) {
  for (const bool backwards : {false, true}) {
    for (const bool inside : {false, true}) {
      StoreTransaction tx = s_.begin();
      Iterator it = tx.iterator();
      if (backwards) {
        for (it.seek_for_prev(key_of(7)); it.valid() && it.key() != key_of(4); it.prev()) {
        }
      } else {
        for (it.seek(key_of(4)); it.valid() && it.key() != key_of(7); it.next()) {
        }
      }
      EXPECT_EQ(tx.put("result", "mine"), Status::ok);
      const std::string key = key_of(inside ? 5 : 8) + (backwards ? "b" : "f");
      ASSERT_EQ(s_.put(key, "new"), Status::ok);
      EXPECT_EQ(tx.commit(), inside ? Status::conflict : Status::ok) << backwards << inside;
    }
  }
}

TEST_F(KvTransactionTest, the_end_of_a_walk_is_read_too) {
  StoreTransaction tx = s_.begin();
  Iterator it = tx.iterator();
  int n = 0;
  for (it.seek(key_of(4)); it.valid(); it.next()) ++n;
  EXPECT_EQ(n, 6);
  EXPECT_EQ(tx.put("a", "mine"), Status::ok);
  ASSERT_EQ(s_.put("z", "behind all"), Status::ok);
  EXPECT_EQ(tx.commit(), Status::conflict);
}

// What a cursor walked over stays read when the cursor turns round: write skew is refused in both
// directions.
TEST_F(KvTransactionTest, a_cursor_that_turns_round_has_still_read_both_ways) {
  using Walk = void (*)(Iterator&);
  struct Case {
    const char* name;
    Walk walk;
    std::vector<int> read;
  };
  const Case cases[] = {
      {"next next prev",
       [](Iterator& it) {
         it.seek(key_of(3));
         it.next();
         it.next();
         it.prev();
       },
       {3, 4, 5}},
      {"prev prev next",
       [](Iterator& it) {
         it.seek_for_prev(key_of(5));
         it.prev();
         it.prev();
         it.next();
       },
       {3, 4, 5}},
      {"seek_last prev next",
       [](Iterator& it) {
         it.seek_last();
         it.prev();
         it.next();
       },
       {8, 9, 10}},
      {"off the end and in again",
       [](Iterator& it) {
         it.seek_last();
         it.prev();
         it.prev();
         it.next();
       },
       {7, 8, 9, 10}},
  };
  for (const Case& c : cases) {
    for (const int key : c.read) {
      SCOPED_TRACE(std::string(c.name) + ", key " + std::to_string(key));
      StoreTransaction tx = s_.begin();
      {
        Iterator it = tx.iterator();
        c.walk(it);
        ASSERT_TRUE(it.valid());
      }
      EXPECT_EQ(tx.put("sum", "mine"), Status::ok);
      ASSERT_EQ(s_.put(key_of(key), "other"), Status::ok);
      EXPECT_EQ(tx.commit(), Status::conflict);
      if (key == 10) {
        ASSERT_EQ(s_.erase(key_of(key)), Status::ok);
      }
    }
  }
}

// Two transactions each sum two counters, one forwards and one backwards, turn round at the end,
// and raise one counter.
TEST_F(KvTransactionTest, two_counters_read_by_turning_cursors_are_not_skewed) {
  StoreTransaction up = s_.begin();
  StoreTransaction down = s_.begin();
  {
    Iterator it = up.iterator();
    it.seek(key_of(1));
    it.next();
    it.next();
    it.prev();
    ASSERT_EQ(it.key(), key_of(2));
  }
  {
    Iterator it = down.iterator();
    it.seek_for_prev(key_of(2));
    it.prev();
    it.prev();
    it.next();
    ASSERT_EQ(it.key(), key_of(1));
  }
  EXPECT_EQ(up.put(key_of(2), "up"), Status::ok);
  EXPECT_EQ(down.put(key_of(1), "down"), Status::ok);
  EXPECT_EQ(up.commit(), Status::ok);
  EXPECT_EQ(down.commit(), Status::conflict);
}

// A range over many leaves, some of which the commit itself splits, with changes of other keys
// around it.
TEST_F(KvTransactionTest, ranges_over_many_leaves_are_validated) {
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(s_.put(key_of(i), "old"), Status::ok);
  for (const int changed : {-1, 100, 500, 899, 950}) {
    StoreTransaction tx = s_.begin();
    IteratorOptions o;
    o.lower = key_of(100);
    o.upper = key_of(900);
    Iterator it = tx.iterator(o);
    int n = 0;
    for (it.seek_first(); it.valid(); it.next()) ++n;
    EXPECT_EQ(n, 800);
    for (int i = 300; i < 400; ++i) {
      ASSERT_EQ(tx.put(key_of(i) + std::to_string(changed), "mine"), Status::ok);
    }
    const Status between = changed >= 0 ? s_.put(key_of(changed), "new") : Status::ok;
    ASSERT_EQ(between, Status::ok);
    const bool hit = changed >= 100 && changed < 900;
    EXPECT_EQ(tx.commit(), hit ? Status::conflict : Status::ok) << changed;
    for (int i = 300; i < 400 && !hit; ++i) {
      ASSERT_EQ(s_.erase(key_of(i) + std::to_string(changed)), Status::ok);
    }
  }
}

TEST_F(KvTransactionTest, cursors_merge_its_writes) {
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(tx.erase(key_of(0)), Status::ok);
  EXPECT_EQ(tx.erase(key_of(9)), Status::ok);
  EXPECT_EQ(tx.put(key_of(3) + "a", "mine"), Status::ok);
  EXPECT_EQ(tx.put(key_of(4), "mine"), Status::ok);
  EXPECT_EQ(tx.put("z", "mine"), Status::ok);
  const Keys expected = {key_of(1), key_of(2), key_of(3), key_of(3) + "a", key_of(4),
                         key_of(5), key_of(6), key_of(7), key_of(8),       "z"};
  Iterator it = tx.iterator();
  it.seek_first();
  EXPECT_EQ(keys(it), expected);
  Keys back;
  for (it.seek_last(); it.valid(); it.prev()) back.insert(back.begin(), std::string(it.key()));
  EXPECT_EQ(back, expected);
  it.seek(key_of(4));
  EXPECT_EQ(it.value(), "mine");
  EXPECT_EQ(tx.commit(), Status::ok);
  it.next();
  it.seek_first();
  EXPECT_EQ(it.status(), Status::closed);
}

TEST_F(KvTransactionTest, many_own_writes_in_one_leaf_are_merged) {
  StoreTransaction tx = s_.begin();
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(tx.put(key_of(1) + key_of(i * 7 % 500), "mine"), Status::ok);
  }
  Iterator it = tx.iterator();
  it.seek_first();
  EXPECT_EQ(keys(it).size(), 510u);
  EXPECT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(s_.stats().records, 510u);
}

TEST_F(KvTransactionTest, a_savepoint_brings_back_what_was_written_then) {
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(tx.put("a", "1"), Status::ok);
  const auto one = tx.savepoint();
  EXPECT_EQ(tx.put("a", "2"), Status::ok);
  EXPECT_EQ(tx.put("b", "2"), Status::ok);
  EXPECT_EQ(tx.erase(key_of(1)), Status::ok);
  const auto two = tx.savepoint();
  EXPECT_EQ(tx.erase("a"), Status::ok);
  EXPECT_EQ(tx.rollback_to(two), Status::ok);
  EXPECT_EQ(*tx.get("a"), "2");
  EXPECT_EQ(tx.put("a", "3"), Status::ok);
  EXPECT_EQ(tx.rollback_to(one), Status::ok);
  EXPECT_EQ(*tx.get("a"), "1");
  EXPECT_EQ(tx.contains("b"), Status::not_found);
  EXPECT_EQ(*tx.get(key_of(1)), "old");
  EXPECT_EQ(tx.put("c", "4"), Status::ok);
  EXPECT_EQ(tx.rollback_to(one), Status::ok);
  EXPECT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(*s_.get("a"), "1");
  EXPECT_EQ(s_.contains("b"), Status::not_found);
  EXPECT_EQ(s_.contains("c"), Status::not_found);
}

TEST_F(KvTransactionTest, a_key_for_update_is_refused_to_others_at_once) {
  StoreTransaction a = s_.begin();
  StoreTransaction b = s_.begin();
  EXPECT_EQ(a.get_for_update(key_of(1), value_), Status::ok);
  EXPECT_EQ(value_, "old");
  EXPECT_EQ(a.get_for_update("none", value_), Status::not_found);
  EXPECT_EQ(b.get_for_update(key_of(1), value_), Status::conflict);
  EXPECT_EQ(b.put(key_of(1), "b"), Status::conflict);
  EXPECT_EQ(b.erase("none"), Status::conflict);
  EXPECT_EQ(*b.get(key_of(1)), "old");
  EXPECT_EQ(a.put(key_of(1), "a"), Status::ok);
  EXPECT_EQ(a.commit(), Status::ok);
  StoreTransaction c = s_.begin();
  EXPECT_EQ(c.get_for_update(key_of(1), value_), Status::ok);
  EXPECT_EQ(value_, "a");
}

TEST_F(KvTransactionTest, a_key_for_update_that_changed_meanwhile_is_refused) {
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(*tx.get(key_of(1)), "old");
  ASSERT_EQ(s_.put(key_of(2), "new"), Status::ok);
  EXPECT_EQ(tx.get_for_update(key_of(2), value_), Status::conflict);
  EXPECT_EQ(tx.put(key_of(3), "mine"), Status::ok);
  EXPECT_EQ(tx.commit(), Status::conflict);
}

TEST_F(KvTransactionTest, bad_keys_and_read_only_are_refused_at_once) {
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(tx.put(std::string(kKeyBytesMax + 1, 'k'), "v"), Status::too_large);
  TransactionOptions o;
  o.read_only = true;
  StoreTransaction reader = s_.begin(o);
  EXPECT_EQ(reader.put("a", "1"), Status::read_only);
  EXPECT_EQ(*reader.get(key_of(1)), "old");
  EXPECT_EQ(reader.commit(), Status::ok);
}

TEST_F(KvTransactionTest, run_begins_anew_after_conflicts_and_gives_up_in_the_end) {
  int calls = 0;
  EXPECT_EQ(s_.run([&](StoreTransaction& tx) -> Status {
    TENUTO_TRY(tx.get(key_of(1), value_));
    const bool meddle = ++calls < 4;
    const Status between = meddle ? s_.put(key_of(1), "new" + std::to_string(calls)) : Status::ok;
    EXPECT_EQ(between, Status::ok);
    return tx.put(key_of(2), value_);
  }),
            Status::ok);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(*s_.get(key_of(2)), "new3");
  EXPECT_EQ(s_.run([&](StoreTransaction&) { return Status::aborted; }), Status::aborted);
  TransactionOptions o;
  o.attempts_max = 3;
  calls = 0;
  EXPECT_EQ(s_.run(
                [&](StoreTransaction&) {
                  ++calls;
                  return Status::conflict;
                },
                o),
            Status::conflict);
  EXPECT_EQ(calls, 3);
}

TEST_F(KvTransactionTest, its_own_commit_keeps_nothing) {
  StoreTransaction tx = s_.begin();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(*tx.get(key_of(i)), "old");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(tx.put(key_of(i), "mine"), Status::ok);
  Iterator it = tx.iterator();  // keeps the snapshot beyond the commit
  EXPECT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(s_.stats().snapshot_versions, 0u);
  EXPECT_EQ(s_.stats().snapshots, 1u);
}

TEST_F(KvTransactionTest, one_that_expired_does_not_commit) {
  ASSERT_EQ(s_.close(), Status::ok);
  options_.snapshot_bytes_max = 1;
  s_ = opened();
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(*tx.get(key_of(1)), "old");
  EXPECT_EQ(tx.put(key_of(2), "mine"), Status::ok);
  ASSERT_EQ(s_.put(key_of(1), "new"), Status::ok);
  EXPECT_EQ(tx.get(key_of(3)).error(), Status::expired);
  EXPECT_EQ(tx.commit(), Status::expired);
  EXPECT_EQ(*s_.get(key_of(2)), "old");
}

TEST_F(KvTransactionTest, outlives_its_store) {
  StoreTransaction tx = s_.begin();
  EXPECT_EQ(tx.get_for_update(key_of(1), value_), Status::ok);
  EXPECT_EQ(tx.put(key_of(1), "mine"), Status::ok);
  ASSERT_EQ(s_.close(), Status::ok);
  EXPECT_EQ(tx.get(key_of(1)).error(), Status::closed);
  EXPECT_EQ(tx.put("a", "b"), Status::closed);
  EXPECT_EQ(tx.commit(), Status::closed);
  EXPECT_EQ(s_.begin().get("a").error(), Status::closed);
  s_ = opened();
  EXPECT_EQ(*s_.get(key_of(1)), "old");
}

// Two commits each hold a leaf that the other one has read. One of them gives up after at most 100
// yields. Here the other one waits in the clock, which a commit calls under its locks.
TEST_F(KvTransactionTest, a_commit_that_meets_a_locked_leaf_gives_up_soon) {
  std::atomic<std::thread::id> stops{};
  std::atomic<bool> stands = false;
  ASSERT_EQ(s_.close(), Status::ok);
  options_.clock_ms = [&]() -> std::uint64_t {
    const auto own = std::this_thread::get_id();
    if (stops.load() == own) stands = true;
    while (stops.load() == own) std::this_thread::yield();
    return 1'700'000'000'000;
  };
  s_ = opened();
  Collection expires = s_.collection("expires", {.expires = true}).value();
  ASSERT_EQ(expires.put("key", "value", {.ttl_ms = 1000}), Status::ok);
  StoreTransaction tx = s_.begin();
  ASSERT_EQ(tx.get(key_of(1), value_), Status::ok);
  ASSERT_EQ(tx.put({expires, "other"}, "value"), Status::ok);
  std::thread holder([&] {
    StoreTransaction holding = s_.begin();
    std::string value;
    EXPECT_EQ(holding.get({expires, "key"}, value), Status::ok);
    EXPECT_EQ(holding.put(key_of(1), "new"), Status::ok);
    stops = std::this_thread::get_id();
    EXPECT_EQ(holding.commit(), Status::ok);
  });
  ::alarm(60);
  while (!stands) std::this_thread::yield();
  yields = 0;
  EXPECT_EQ(tx.commit(), Status::conflict);
  EXPECT_LE(yields, 100u);
  stops = std::thread::id();
  holder.join();
  ::alarm(0);
}

TEST_F(KvTransactionTest, threads_that_move_money_lose_none) {
  for (int i = 0; i < 10; ++i) ASSERT_EQ(s_.put(key_of(i), "100"), Status::ok);
  const auto add = [](StoreTransaction& tx, const std::string& key, int amount) -> Status {
    std::string v;
    TENUTO_TRY(tx.get(key, v));
    return tx.put(key, std::to_string(std::stoi(v) + amount));
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const int from = (i * 7 + t) % 10, to = (i * 3 + t * 5) % 10;
        EXPECT_EQ(s_.run([&](StoreTransaction& tx) -> Status {
          TENUTO_TRY(add(tx, key_of(from), -1));
          return add(tx, key_of(to), 1);
        }),
                  Status::ok);
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 500; ++i) {
      StoreTransaction tx = s_.begin();
      int sum = 0;
      Iterator it = tx.iterator();
      for (it.seek_first(); it.valid(); it.next()) sum += std::stoi(std::string(it.value()));
      EXPECT_EQ(sum, 1000);
    }
  });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(s_.stats().snapshot_versions, 0u);
}

}  // namespace
}  // namespace tenuto
