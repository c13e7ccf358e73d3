// Transactions over several collections, and transactions that make and drop them. isolation_stress
// tests that concurrent ones are serialisable. collection_crash tests that a crash leaves all of
// one or nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pm/plant.h"
#include "support/collection_fixture.h"
#include "support/seed.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::Keys;

using CollectionTransactionTest = test::CollectionFixture;

TEST_F(CollectionTransactionTest, a_transaction_reads_and_writes_many_collections) {
  Collection a = made({}, "a");
  Collection b = made({.order = KeyOrder::reverse}, "b");
  ASSERT_EQ(a.put("x", "10"), Status::ok);
  const auto move = [&](StoreTransaction& tx) -> Status {
    std::string value;
    TENUTO_TRY(tx.get_for_update({a, "x"}, value));
    TENUTO_TRY(tx.erase({a, "x"}));
    TENUTO_TRY(tx.put({b, "x"}, value));
    return tx.put("log", "moved");
  };
  ASSERT_EQ(s_->run(move), Status::ok);
  EXPECT_EQ(a.contains("x"), Status::not_found);
  EXPECT_EQ(*b.get("x"), "10");
  EXPECT_EQ(*s_->get("log"), "moved");
  // The same key in two collections: neither hides the other.
  StoreTransaction tx = s_->begin();
  ASSERT_EQ(tx.put({a, "x"}, "mine"), Status::ok);
  EXPECT_EQ(*tx.get({b, "x"}), "10");
  const StoreTransaction::Savepoint point = tx.savepoint();
  ASSERT_EQ(tx.erase({b, "x"}), Status::ok);
  EXPECT_EQ(tx.contains({b, "x"}), Status::not_found);
  ASSERT_EQ(tx.rollback_to(point), Status::ok);
  EXPECT_EQ(*tx.get({b, "x"}), "10");
  ASSERT_EQ(b.put("x", "11"), Status::ok);
  EXPECT_EQ(tx.commit(), Status::conflict);
  EXPECT_EQ(a.contains("x"), Status::not_found);
}

TEST_F(CollectionTransactionTest, a_cursor_over_what_is_not_committed_yet_asks_again) {
  reopen();
  StoreTransaction tx = s_->begin();
  const Result<Collection> c = tx.create("fresh", {});
  ASSERT_TRUE(c);
  Iterator it = c->iterator();
  it.seek("a");
  EXPECT_EQ(it.status(), Status::not_found);
  ASSERT_EQ(tx.commit(), Status::ok);
  it.seek_pair("a", "b");
  EXPECT_EQ(it.status(), Status::invalid_argument);
  it.seek("a");
  EXPECT_EQ(it.status(), Status::ok);
}

TEST_F(CollectionTransactionTest, an_erase_that_is_refused_begins_no_moment) {
  Collection c = made({.duplicates = true});
  ASSERT_EQ(c.put("k", "1"), Status::ok);
  StoreTransaction reader = s_->begin({.read_only = true});
  EXPECT_EQ(reader.erase({c, "k"}), Status::read_only);
  EXPECT_EQ(reader.erase({c, "nothing"}), Status::read_only);
  ASSERT_EQ(c.erase("k"), Status::ok);
  EXPECT_EQ(reader.contains({c, "k"}), Status::not_found);
}

TEST_F(CollectionTransactionTest,
       a_transactions_cursor_sees_its_own_writes_in_the_collections_order) {
  Collection b = made({.order = KeyOrder::reverse});
  for (const char* k : {"a", "c"}) ASSERT_EQ(b.put(k, "old"), Status::ok);
  StoreTransaction tx = s_->begin();
  ASSERT_EQ(tx.put({b, "b"}, "own"), Status::ok);
  ASSERT_EQ(tx.erase({b, "c"}), Status::ok);
  {
    Iterator it = tx.iterator(b);
    it.seek_first();
    EXPECT_EQ(keys(it), (Keys{"b", "a"}));
  }
  ASSERT_EQ(b.put("aa", "new"), Status::ok);  // where the cursor walked
  EXPECT_EQ(tx.commit(), Status::conflict);
}

TEST_F(CollectionTransactionTest, what_a_transaction_makes_is_nobody_elses_before_its_commit) {
  made({}, "other");
  StoreTransaction tx = s_->begin();
  Result<Collection> fresh = tx.create("fresh", {});
  ASSERT_TRUE(fresh);
  ASSERT_EQ(tx.put({*fresh, "k"}, "mine"), Status::ok);
  EXPECT_EQ(*tx.get({*fresh, "k"}), "mine");
  EXPECT_EQ(fresh->put("lost", "v"), Status::not_found);
  EXPECT_EQ(fresh->contains("k"), Status::not_found);
  EXPECT_EQ(fresh->bulk_load(std::vector<BulkRecord>{{"a", "v"}}), Status::not_found);
  EXPECT_EQ(fresh->status(), Status::not_found);
  WriteBatch batch;
  batch.put({*fresh, "lost"}, "v");
  EXPECT_EQ(s_->write(batch), Status::not_found);
  Iterator it = fresh->iterator();
  {
    StoreTransaction another = s_->begin();
    EXPECT_EQ(another.put({*fresh, "lost"}, "v"), Status::not_found);
    it.seek_first();
    EXPECT_EQ(it.status(), Status::not_found);
    Iterator own = tx.iterator(*fresh);
    own.seek_first();
    EXPECT_EQ(keys(own), Keys{"k"});
  }
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(fresh->put("then", "v"), Status::ok);
  EXPECT_EQ(*fresh->get("k"), "mine");
  it.seek_first();
  EXPECT_EQ(keys(it), (Keys{"k", "then"})) << "the iterator of before looks again";
  EXPECT_EQ(fresh->stats().records, 2u);
}

TEST_F(CollectionTransactionTest, a_name_is_created_once_in_a_transaction) {
  Collection old = made({}, "old");
  StoreTransaction tx = s_->begin();
  Result<Collection> first = tx.create("twice", {});
  ASSERT_TRUE(first);
  EXPECT_EQ(tx.create("twice", {.order = KeyOrder::reverse}, &report_).error(), Status::exists);
  EXPECT_NE(report_.text().find("twice"), std::string::npos) << report_.text();
  // A transaction may make a new collection, once, under the name of one that it drops.
  ASSERT_EQ(tx.drop(old), Status::ok);
  Result<Collection> again = tx.create("old", {});
  ASSERT_TRUE(again);
  EXPECT_EQ(tx.create("old", {}).error(), Status::exists);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(tx.put({*first, test::key_of(i)}, "v"), Status::ok);
  }
  ASSERT_EQ(tx.commit(), Status::ok);
  ASSERT_EQ(first->put("later", "v"), Status::ok);
  ASSERT_EQ(again->put("later", "v"), Status::ok);
  expect_valid(*s_);
  reopen();
  Collection c = made({}, "twice");
  EXPECT_EQ(c.stats().records, 1001u);
  EXPECT_EQ(*c.get("later"), "v");
  EXPECT_EQ(*made({}, "old").get("later"), "v");
}

// One transaction reads a collection and writes a key. The other reads that key and drops the
// collection. No serial order explains both.
TEST_F(CollectionTransactionTest, a_drop_and_a_reader_of_the_collection_do_not_both_commit) {
  constexpr int kRounds = 1500;
  int reads = 0;
  int drops = 0;
  for (int round = 0; round < kRounds; ++round) {
    Collection y = made({}, "y");
    ASSERT_EQ(y.put("k", "v"), Status::ok);
    std::atomic<int> ready{0};
    const auto meet = [&] {
      ready.fetch_add(1);
      while (ready.load() < 2) std::this_thread::yield();
    };
    Status read = Status::ok;
    std::thread reader([&] {
      StoreTransaction tx = s_->begin();
      EXPECT_EQ(*tx.get({y, "k"}), "v");
      EXPECT_EQ(tx.put("m", "read"), Status::ok);
      meet();
      read = tx.commit();
    });
    StoreTransaction tx = s_->begin();
    std::string value;
    EXPECT_NE(tx.get("m", value), Status::conflict);
    EXPECT_EQ(tx.drop(y), Status::ok);
    meet();
    const Status drop = tx.commit();
    reader.join();
    ASSERT_FALSE(read == Status::ok && drop == Status::ok) << "round " << round;
    reads += read == Status::ok ? 1 : 0;
    drops += drop == Status::ok ? 1 : 0;
  }
  EXPECT_GT(reads + drops, kRounds / 2) << reads << " reads, " << drops << " drops";
}

// The same with a batch and a transaction that write to the collection without reading it.
TEST_F(CollectionTransactionTest, a_drop_and_a_blind_write_do_not_both_commit) {
  constexpr int kRounds = 1000;
  for (int round = 0; round < kRounds; ++round) {
    Collection y = made({}, "y");
    std::atomic<int> ready{0};
    const auto meet = [&] {
      ready.fetch_add(1);
      while (ready.load() < 2) std::this_thread::yield();
    };
    const std::string mine = std::to_string(round);
    Status write = Status::ok;
    std::thread writer([&] {
      meet();
      if (round % 2 == 0) {
        WriteBatch batch;
        batch.put({y, "k"}, mine);
        batch.put("m", mine);
        write = s_->write(batch);
      } else {
        StoreTransaction tx = s_->begin();
        EXPECT_EQ(tx.put("m", mine), Status::ok);
        write = tx.put({y, "k"}, mine);
        if (write == Status::ok) write = tx.commit();
      }
    });
    // The transaction that drops must have seen what the other one wrote, if both commit.
    StoreTransaction tx = s_->begin();
    std::string value;
    (void)tx.get("m", value);
    EXPECT_EQ(tx.drop(y), Status::ok);
    meet();
    const Status drop = tx.commit();
    writer.join();
    const bool seen = value == mine;
    ASSERT_FALSE(write == Status::ok && drop == Status::ok && !seen) << "round " << round;
  }
}

// A write found the collection, and waits before its leaf. The transaction that drops the
// collection has read that leaf. If both succeeded, the write would come before the drop and after
// the drop's read.
TEST_F(CollectionTransactionTest, a_write_does_not_pass_a_drop_that_read_its_key) {
  for (const bool planted : {false, true}) {
#ifndef TENUTO_DEBUG_CHECKS
    if (planted) break;
#endif
    if (planted) plant("store_write_life_not_validated");
    Collection y = made({}, "y");
    StoreTransaction tx = s_->begin();
    std::string value;
    EXPECT_EQ(tx.get({y, "k"}, value), Status::not_found);
    EXPECT_EQ(tx.drop(y), Status::ok);
    std::promise<void> found;
    std::promise<void> dropped;
    Status write = Status::ok;
    std::thread writer([&] {
      write = y.merge("k", [&](std::optional<std::string_view>) {
        found.set_value();
        dropped.get_future().wait();
        return std::string("v");
      });
    });
    found.get_future().wait();
    EXPECT_EQ(tx.commit(), Status::ok);
    dropped.set_value();
    writer.join();
    EXPECT_EQ(write, planted ? Status::ok : Status::not_found);
    unplant_all();
  }
}

// A drop and the writes of its batch are seen together or not at all.
TEST_F(CollectionTransactionTest, a_reader_sees_a_drop_and_the_writes_beside_it_or_neither) {
  constexpr int kRounds = 1000;
  for (int round = 0; round < kRounds; ++round) {
    Collection y = made({}, "y");
    ASSERT_EQ(y.put("k", "v"), Status::ok);
    ASSERT_EQ(s_->put("m", "before"), Status::ok);
    std::atomic<int> ready{0};
    const auto meet = [&] {
      ready.fetch_add(1);
      while (ready.load() < 2) std::this_thread::yield();
    };
    std::thread reader([&] {
      meet();
      StoreTransaction tx = s_->begin();
      std::string m;
      std::string k;
      const bool m_first = round % 2 == 0;
      if (m_first) {
        EXPECT_EQ(tx.get("m", m), Status::ok);
      }
      const Status there = tx.get({y, "k"}, k);
      if (!m_first) {
        EXPECT_EQ(tx.get("m", m), Status::ok);
      }
      if (tx.commit() != Status::ok) return;
      EXPECT_EQ(there == Status::ok, m == "before") << "round " << round;
    });
    StoreTransaction tx = s_->begin();
    EXPECT_EQ(tx.put("m", "after"), Status::ok);
    EXPECT_EQ(tx.drop(y), Status::ok);
    meet();
    EXPECT_EQ(tx.commit(), Status::ok);
    reader.join();
  }
}

TEST_F(CollectionTransactionTest, a_transaction_makes_and_drops_collections_with_its_commit) {
  Collection old = made({}, "old");
  ASSERT_EQ(old.put("k", "v"), Status::ok);
  {
    StoreTransaction tx = s_->begin();
    Result<Collection> fresh = tx.create("fresh", {.order = KeyOrder::reverse});
    ASSERT_TRUE(fresh);
    ASSERT_EQ(tx.put({*fresh, "a"}, "1"), Status::ok);
    ASSERT_EQ(tx.drop(old), Status::ok);
    EXPECT_EQ(tx.drop(*fresh), Status::invalid_argument);
    EXPECT_EQ(s_->collections()->size(), 1u);
    expect_valid(*s_);
    tx.rollback();
    EXPECT_EQ(fresh->get("a").error(), Status::not_found);
    EXPECT_EQ(fresh->put("b", "2"), Status::not_found);
  }
  EXPECT_EQ(*old.get("k"), "v");
  expect_valid(*s_);
  StoreTransaction tx = s_->begin();
  Collection fresh = *tx.create("fresh", {.order = KeyOrder::reverse});
  for (int i = 0; i < 200; ++i) ASSERT_EQ(tx.put({fresh, test::key_of(i)}, "x"), Status::ok);
  ASSERT_EQ(tx.put({old, "lost"}, "x"), Status::ok);
  ASSERT_EQ(tx.drop(old), Status::ok);
  Collection again = *tx.create("again", {});
  StoreTransaction late = s_->begin();
  Collection other = *late.create("fresh", {});
  ASSERT_EQ(late.put("by late", "x"), Status::ok);
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(late.commit(), Status::exists);
  EXPECT_EQ(s_->contains("by late"), Status::not_found);
  EXPECT_EQ(old.status(), Status::not_found);
  EXPECT_EQ(other.status(), Status::not_found);
  ASSERT_EQ(again.put("k", "v"), Status::ok);
  EXPECT_EQ(fresh.stats().records, 200u);
  EXPECT_EQ(fresh.name(), "fresh");
  EXPECT_EQ(s_->begin().create("fresh", {}).error(), Status::exists);
  EXPECT_EQ(s_->begin().create("", {}).error(), Status::invalid_argument);
  expect_valid(*s_);
  reopen();
  EXPECT_EQ(s_->collections()->size(), 2u);
  EXPECT_EQ(made({}, "fresh").stats().records, 200u);
}

TEST_F(CollectionTransactionTest, a_transaction_replaces_a_collection_by_one_of_the_same_name) {
  Collection old = made({}, "c");
  ASSERT_EQ(old.put("k", "old"), Status::ok);
  EXPECT_EQ(s_->begin().create("c", {}).error(), Status::exists);
  ASSERT_EQ(s_->run([&](StoreTransaction& tx) -> Status {
    TENUTO_TRY(tx.drop(old));
    Result<Collection> c = tx.create("c", {.duplicates = true});
    return c ? tx.put({*c, "k"}, "new") : c.error();
  }),
            Status::ok);
  EXPECT_EQ(old.status(), Status::not_found);
  EXPECT_EQ(*made({}, "c").get("k"), "new");
  expect_valid(*s_);
  StoreTransaction open = s_->begin();
  Collection unnamed = *open.create("d", {});
  ASSERT_EQ(s_->close(), Status::ok);
  EXPECT_EQ(unnamed.put("k", "v"), Status::closed);
  EXPECT_EQ(open.commit(), Status::closed);
  s_.emplace(opened());
  EXPECT_EQ(s_->collections()->size(), 1u);
}

TEST_F(CollectionTransactionTest, a_dropped_collection_ends_the_transactions_that_use_it) {
  Collection a = made({}, "a");
  ASSERT_EQ(a.put("x", "1"), Status::ok);
  StoreTransaction tx = s_->begin();
  EXPECT_EQ(*tx.get({a, "x"}), "1");
  ASSERT_EQ(tx.put("y", "1"), Status::ok);
  ASSERT_EQ(s_->drop("a"), Status::ok);
  EXPECT_EQ(tx.get({a, "x"}).error(), Status::not_found);
  EXPECT_EQ(tx.commit(), Status::not_found);
  EXPECT_EQ(s_->contains("y"), Status::not_found);
  // A transaction that first uses the dropped collection now has no single snapshot, so it
  // conflicts. The next transaction does not.
  Collection b = made({}, "b");
  ASSERT_EQ(b.put("x", "1"), Status::ok);
  StoreTransaction late = s_->begin();
  EXPECT_EQ(late.contains("y"), Status::not_found);
  ASSERT_EQ(s_->drop("b"), Status::ok);
  EXPECT_EQ(late.get({b, "x"}).error(), Status::not_found);
  EXPECT_EQ(late.commit(), Status::conflict);
  StoreTransaction after = s_->begin();
  EXPECT_EQ(after.contains("y"), Status::not_found);
  EXPECT_EQ(after.get({b, "x"}).error(), Status::not_found);
  EXPECT_EQ(after.commit(), Status::ok);
  test::TempPath elsewhere{"elsewhere"};
  Store other = *Store::open(elsewhere.str(), options_, &report_);
  StoreTransaction foreign = s_->begin();
  EXPECT_EQ(foreign.put({other, "k"}, "v"), Status::invalid_argument);
}

// With a look at all writes since the point for each return this would take minutes.
// A cursor lays only some of them over the leaf at a time. All of them at each seek would take
// minutes here.
TEST_F(CollectionTransactionTest, a_cursor_walks_over_many_own_writes_of_one_leaf) {
  std::mt19937_64 random(test::fresh_seed());
  std::map<std::string, std::string> model;
  s_.emplace(opened());
  for (int i = 0; i < 12; ++i) {
    const std::string key = test::key_of(static_cast<int>(random() % 20000));
    ASSERT_EQ(s_->put(key, "committed"), Status::ok);
    model[key] = "committed";
  }
  StoreTransaction tx = s_->begin();
  Iterator seeks = tx.iterator();
  for (int i = 0; i < 10'000; ++i) {
    const std::string key = test::key_of(static_cast<int>(random() % 20000));
    if (random() % 4 == 0) {
      model.erase(key);
      ASSERT_EQ(tx.erase(key), Status::ok);
    } else {
      model[key] = "own" + std::to_string(i);
      ASSERT_EQ(tx.put(key, model[key]), Status::ok);
    }
    seeks.seek(key);
    const auto there = model.lower_bound(key);
    ASSERT_EQ(seeks.valid(), there != model.end());
    if (seeks.valid()) {
      ASSERT_EQ(seeks.key(), there->first);
    }
  }
  Iterator it = tx.iterator();
  auto at = model.begin();
  for (it.seek_first(); it.valid(); it.next(), ++at) ASSERT_EQ(it.key(), at->first);
  EXPECT_EQ(at, model.end());
  auto back = model.rbegin();
  for (it.seek_last(); it.valid(); it.prev(), ++back) ASSERT_EQ(it.key(), back->first);
  EXPECT_EQ(back, model.rend());
  for (int i = 0; i < 400; ++i) {
    const std::string key = test::key_of(static_cast<int>(random() % 20100));
    const bool up = random() % 2 == 0;
    up ? it.seek(key) : it.seek_for_prev(key);
    at = up ? model.lower_bound(key) : model.upper_bound(key);
    if (!up) at = at == model.begin() ? model.end() : std::prev(at);
    for (std::uint64_t steps = random() % 300, on = random() % 3;; --steps) {
      ASSERT_EQ(it.valid(), at != model.end()) << key;
      if (at == model.end() || steps == 0) break;
      ASSERT_EQ(it.key(), at->first);
      ASSERT_EQ(it.value(), at->second);
      const bool forward =
          on == 0 || (on == 1 && random() % 8 != 0) || (on == 2 && random() % 3 == 0);
      forward ? it.next() : it.prev();
      if (forward)
        ++at;
      else
        at = at == model.begin() ? model.end() : std::prev(at);
    }
  }
  EXPECT_EQ(it.status(), Status::ok);
  ASSERT_EQ(tx.commit(), Status::ok);
}

TEST_F(CollectionTransactionTest, a_savepoint_is_returned_to_many_times) {
  constexpr int kTimes = 50'000;
  const Collection c = made({});
  StoreTransaction tx = s_->begin();
  ASSERT_EQ(tx.put({c, "a"}, "1"), Status::ok);
  const auto one = tx.savepoint();
  for (int i = 0; i < kTimes; ++i) {
    ASSERT_EQ(tx.put({c, "a"}, "2"), Status::ok);
    const auto two = tx.savepoint();
    ASSERT_EQ(tx.erase({c, "a"}), Status::ok);
    ASSERT_EQ(tx.put({c, "b"}, "2"), Status::ok);
    ASSERT_EQ(tx.rollback_to(two), Status::ok);
    ASSERT_EQ(*tx.get({c, "a"}), "2");
    ASSERT_EQ(tx.contains({c, "b"}), Status::not_found);
    ASSERT_EQ(tx.rollback_to(one), Status::ok);
    ASSERT_EQ(*tx.get({c, "a"}), "1");
  }
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(*c.get("a"), "1");
}

}  // namespace
}  // namespace tenuto
