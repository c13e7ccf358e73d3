// Each allocation of a call fails once, one after the other: snapshots, cursors, reclaiming,
// objects, calls that describe the store, a thread's first call. The call is done or not done.
// Nothing is lost or stays locked, and the call can be made again.
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "support/no_memory_fixture.h"
#include "tenuto/actions.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"
#include "tenuto/tx.h"

namespace tenuto {
namespace {

using test::key_of;
using NoMemoryCallsTest = test::NoMemoryCallsFixture;

// Also the end of the snapshot: the versions that it held are freed then or later.
TEST_F(NoMemoryCallsTest, a_snapshot_from_its_begin_to_its_end) {
  fill(200);
  Collection a = made("a", 60);
  int round = 0;
  every_allocation_fails_once([&] {
    Result<Snapshot> snapshot = s_->snapshot();
    if (!snapshot) return;
    for (int i = 0; i < 40; ++i) (void)s_->put(key_of(i), std::to_string(round));
    for (int i = 40; i < 120; ++i) (void)s_->erase(key_of(i));
    for (int i = 0; i < 20; ++i) (void)a.put(key_of(i), std::to_string(round++));
    std::string value;
    (void)snapshot->get(key_of(3), value);
    (void)snapshot->contains({a, key_of(3)});
    Iterator it = snapshot->iterator(a);
    for (it.seek_last(); it.valid(); it.prev()) continue;
  });
  EXPECT_EQ(s_->stats().snapshot_versions, 0u);
}

// The end of the last snapshot also removes the emptied leaves.
TEST_F(NoMemoryCallsTest, a_snapshots_end) {
  std::optional<Snapshot> snapshot;
  every_allocation_fails_once(
      [&] { snapshot.reset(); },
      [&] { EXPECT_EQ(s_->snapshot().value().contains(key_of(0)), Status::not_found); },
      [&] {
        fill(400);
        snapshot.reset();
        snapshot = *s_->snapshot();
        for (int i = 0; i < next_; ++i) (void)s_->erase(key_of(i));
        next_ = 0;
      });
}

// A call of a transaction that threw has no part in the commit. Earlier writes do.
TEST_F(NoMemoryCallsTest, a_transactions_write_is_done_whole_or_not_at_all) {
  Collection pairs = std::move(*s_->collection("pairs", {.duplicates = true}));
  const std::string key(60, 'k');  // too long for a string's own buffer
  bool again = true;
  for (long n = 1; again; ++n) {
    for (int what = 0; what < 4; ++what) {
      ASSERT_EQ(s_->put(key, "before"), Status::ok);
      for (const char* v : {"a", "b", "c"}) ASSERT_EQ(pairs.put(key, v), Status::ok);
      StoreTransaction tx = s_->begin();
      ASSERT_EQ(tx.put(key, "first"), Status::ok);
      const auto point = tx.savepoint();
      if (what == 3) {
        ASSERT_EQ(tx.put(key, "taken back"), Status::ok);
      }
      bool threw = false;
      test::fail_allocation(n);
      try {
        if (what == 0) (void)tx.put(key, "second");
        if (what == 1) (void)tx.erase(key);
        if (what == 2) (void)tx.erase({pairs, key});
        if (what == 3) (void)tx.rollback_to(point);
      } catch (const std::bad_alloc&) {
        threw = true;
      }
      const bool failed = test::failed_allocation();
      ASSERT_EQ(tx.commit(), Status::ok);
      std::string value = "none";
      const Status found = s_->get(key, value);
      const bool whole = !threw && what < 2;
      EXPECT_EQ(found, whole && what == 1 ? Status::not_found : Status::ok);
      EXPECT_EQ(value, !whole ? "first" : what == 0 ? "second" : "none") << n << " " << what;
      EXPECT_EQ(pairs.stats().records, !threw && what == 2 ? 0u : 3u) << n;
      if (what == 2) again = failed;  // this call allocates most
    }
    works();
  }
}

TEST_F(NoMemoryCallsTest, cursors) {
  fill(300);
  Collection pairs = made("pairs", 0, {.duplicates = true});
  Collection last_first = made("last first", 200, {.order = KeyOrder::reverse});
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(pairs.put(key_of(i / 10), std::to_string(i)), Status::ok);
  }
  const auto walk = [](Iterator it, const std::string& to) {
    it.seek(to);
    for (int i = 0; i < 100 && it.valid(); ++i) it.next();
    it.seek_for_prev(to);
    for (int i = 0; i < 60 && it.valid(); ++i) it.prev();
    it.seek_last();
    if (it.valid()) it.prev_key();
    it.seek_first();
    if (it.valid()) it.next_key();
    const Iterator moved = std::move(it);
    const bool over = moved.status() == Status::expired;  // no memory for an old version
    EXPECT_TRUE(moved.valid() || moved.status() == Status::ok || over);
  };
  every_allocation_fails_once([&] {
    IteratorOptions bounds;
    bounds.prefix = "k";
    walk(s_->iterator(bounds), key_of(100));
    walk(pairs.iterator(), key_of(7));
    bounds = {};
    bounds.lower = key_of(150);
    bounds.upper = key_of(20);
    walk(last_first.iterator(bounds), key_of(90));
    const Snapshot snapshot = *s_->snapshot();
    (void)s_->put(key_of(4), std::string(100, 'x'));
    walk(snapshot.iterator(), key_of(100));
    StoreTransaction tx = s_->begin();
    for (int i = 0; i < 30; ++i) (void)tx.put(key_of(i * 3) + "t", "own");
    walk(tx.iterator(), key_of(20));
    walk(tx.iterator(pairs), key_of(7));
  });
}

// A cursor can be moved again after a failed call.
TEST_F(NoMemoryCallsTest, a_cursor_goes_on_after_a_failure) {
  fill(600);
  for (long n = 1; n < 20; ++n) {
    Iterator it = s_->iterator();
    int i = 0;
    test::fail_allocation(n);
    try {
      for (it.seek_first(); it.valid(); it.next()) ++i;
    } catch (const std::bad_alloc&) {
    }
    (void)test::failed_allocation();
    i = 0;
    for (it.seek_first(); it.valid(); it.next()) ++i;
    EXPECT_EQ(it.status(), Status::ok);
    EXPECT_EQ(i, 600);
  }
}

// After an exception the cursor is not valid. It may not stand at a record that its transaction has
// not noted, nor at a record with the key of another one.
TEST_F(NoMemoryCallsTest, a_cursor_stands_nowhere_after_a_failure) {
  fill(200);
  Collection pairs = made("pairs", 0, {.duplicates = true});
  for (int i = 0; i < 200; ++i) ASSERT_EQ(pairs.put(key_of(i / 4), key_of(i)), Status::ok);
  using Move = std::function<void(Iterator&)>;
  const std::vector<Move> moves = {
      [](Iterator& it) { it.seek_first(); },
      [](Iterator& it) { it.seek_last(); },
      [](Iterator& it) { it.seek(key_of(3)); },
      [](Iterator& it) { it.seek_for_prev(key_of(30)); },
      [](Iterator& it) { it.next(); },
      [](Iterator& it) { it.prev(); },
      [](Iterator& it) { it.next_key(); },
      [](Iterator& it) { it.prev_key(); },
      [](Iterator& it) { it.seek_pair(key_of(7), key_of(29)); },
  };
  int failed = 0;
  for (const bool duplicates : {false, true}) {
    for (std::size_t m = 0; m < moves.size(); ++m) {
      for (long n = 1, met = 1; met != 0; ++n) {
        SCOPED_TRACE("move " + std::to_string(m) + ", allocation " + std::to_string(n));
        StoreTransaction tx = s_->begin();
        if (n % 2 == 0) {
          ASSERT_EQ(tx.put(key_of(21), "own"), Status::ok);
        }
        Iterator it = duplicates ? tx.iterator(pairs) : tx.iterator();
        it.seek(key_of(20));
        ASSERT_TRUE(it.valid());
        test::fail_allocation(n);
        bool threw = false;
        try {
          moves[m](it);
        } catch (const std::bad_alloc&) {
          threw = true;
        }
        met = test::failed_allocation() ? 1 : 0;
        failed += threw;
        ASSERT_FALSE(threw && it.valid()) << it.key();
        it.seek(key_of(20));
        ASSERT_TRUE(it.valid() && it.key() == key_of(20));
        it.prev();
        ASSERT_TRUE(it.valid());
        ASSERT_EQ(it.key(), key_of(19));
        EXPECT_EQ(tx.commit(), Status::ok);
      }
    }
  }
  EXPECT_GT(failed, 15);
}

TEST_F(NoMemoryCallsTest, a_backup_lets_go_of_what_it_read) {
  const test::TempPath to("no-memory-backup");
  every_allocation_fails_once([&] { (void)s_->backup(to.str(), {.size = kPoolBytesMin}); },
                              [&] {
                                ::unlink(to.str().c_str());
                                EXPECT_EQ(s_->drop("a"), Status::ok);
                              },
                              [&] { made("a", 60); });
}

TEST_F(NoMemoryCallsTest, what_expired_is_reclaimed) {
  Collection c = made("c", 0, {.expires = true});
  every_allocation_fails_once([&] { (void)s_->reclaim(); },
                              [&] {
                                const Result<std::uint64_t> rest = s_->reclaim();
                                EXPECT_TRUE(rest);
                                EXPECT_EQ(c.stats().records, 10u);
                                EXPECT_EQ(contents(c).size(), 10u);
                              },
                              [&] {
                                for (int i = 0; i < 10; ++i)
                                  EXPECT_EQ(c.put(key_of(1000 + i), "stays"), Status::ok);
                                for (int i = 0; i < 200; ++i) {
                                  EXPECT_EQ(c.put(key_of(i), "goes", {.ttl_ms = 1000}), Status::ok);
                                }
                                now_ += 2000;
                              });
}

TEST_F(NoMemoryCallsTest, what_tells_about_the_store) {
  fill(100);
  made("a", 60);
  every_allocation_fails_once([&] {
    (void)s_->collections();
    (void)s_->stats();
    (void)s_->approximate_count(key_of(3), key_of(40));
    (void)s_->validate();
    (void)s_->pool().stats();
    (void)s_->pool().validate();
    (void)s_->pool().trim();
    (void)s_->sync();
  });
}

// A batch replaces more records than there are chunks for, and there is no memory for another
// chunk. The close leaves the pool unclean, and the next open finds the blocks that were not noted.
TEST_F(NoMemoryCallsTest, what_could_not_be_noted_is_the_next_opens) {
  fill(6000);
  WriteBatch batch;
  for (int i = 0; i < 6000; ++i) batch.put(key_of(i), "replaced");
  Status s = Status::conflict;
  for (long n = 1; s != Status::ok; ++n) {
    test::fail_allocations_from(n);
    try {
      s = s_->write(batch);
    } catch (const std::bad_alloc&) {
    }
    ASSERT_TRUE(test::failed_allocation());
  }
  EXPECT_EQ(s_->close(), Status::ok);
  s_.emplace(opened());
  EXPECT_FALSE(s_->pool().info().was_clean);
  EXPECT_EQ(contents().size(), 6000u);
  works();
}

struct Objects {
  Ptr<std::uint64_t> one, two;
  Ptr<std::uint64_t> many[40];
  std::uint64_t numbers[400];
};

TEST_F(NoMemoryCallsTest, objects) {
  Pool& pool = s_->pool();
  Objects& root = **pool.root<Objects>("objects");
  int done = 0;
  every_allocation_fails_once(
      [&] {
        (void)pool.malloc_to(root.one);
        (void)pool.malloc_to(5u << 20, root.two);
        (void)pool.malloc_to(8, std::span(root.many));
        (void)pool.run([&](Transaction& tx) -> Status {
          for (std::uint64_t& n : root.numbers) TENUTO_TRY(tx.add(n));
          for (std::uint64_t& n : root.numbers) n += 1;
          TENUTO_TRY(tx.on_commit([&done] { done += 1; }));
          const Result<void*> block = tx.alloc(300);
          if (!block) return block.error();
          return tx.free(*block);
        });
        if (root.two) (void)pool.free_from(root.two);
      },
      [&] {
        for (const std::uint64_t& n : root.numbers) EXPECT_EQ(n, root.numbers[0]);
        if (root.one) {
          EXPECT_EQ(pool.free_from(root.one), Status::ok);
        }
        if (root.two) {
          EXPECT_EQ(pool.free_from(root.two), Status::ok);
        }
        for (auto& p : root.many) {
          if (p) {
            EXPECT_EQ(pool.free_from(p), Status::ok);
          }
        }
      });
}

// A thread's first call makes its state in the library.
TEST_F(NoMemoryCallsTest, a_threads_first_calls) {
  fill(100);
  made("a", 60);
  int n = 0;
  const auto in_a_thread = [&](
                               const Call& call, const Call& before = [] {}) {
    long left = 1;
    for (bool met = true; met && !HasFailure(); ++left) {
      SCOPED_TRACE("allocation " + std::to_string(left));
      before();
      ::alarm(60);
      std::thread([&] {
        test::fail_allocation(left);
        try {
          call();
        } catch (const std::bad_alloc&) {
        }
        met = test::failed_allocation();
        EXPECT_EQ(s_->put("retry", "x"), Status::ok);
      }).join();
      works();
      ::alarm(0);
    }
    EXPECT_GT(left, 2);
  };
  in_a_thread([&] { (void)s_->put(key_of(500 + n++), std::string(100, 'x')); });
  in_a_thread([&] { (void)s_->get(key_of(1)); });
  in_a_thread([&] { (void)s_->erase(key_of(n++)); });
  in_a_thread([&] { (void)s_->view(key_of(1)); });
  in_a_thread([&] {
    const Result<Snapshot> snapshot = s_->snapshot();
    if (snapshot) (void)snapshot->get(key_of(1));
  });
  in_a_thread([&] {
    Iterator it = s_->iterator();
    it.seek_first();
  });
  in_a_thread([&] { (void)s_->pool().run([](Transaction&) { return Status::ok; }); });
  in_a_thread([&] { (void)s_->collection("b" + std::to_string(n++)); });
  // The end of the actions cancels what was reserved, and may not throw.
  in_a_thread([&] { (void)Actions(s_->pool()).reserve(100); });
  std::optional<Actions> of_another;
  const auto reserve = [&] {
    of_another.emplace(s_->pool());
    ASSERT_TRUE(of_another->reserve(100));
  };
  in_a_thread([&] { of_another.reset(); }, reserve);
}

// A drop frees what other threads wrote, and nothing twice.
TEST_F(NoMemoryCallsTest, a_threads_first_call_is_a_drop) {
  for (long n = 1, met = 1; met != 0 && !HasFailure(); ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    Collection c = made("dropped", 200);
    for (int i = 0; i < 200; ++i) ASSERT_EQ(c.erase(key_of(i)), Status::ok);
    std::thread([&] {
      test::fail_allocation(n);
      try {
        (void)s_->drop("dropped");
      } catch (const std::bad_alloc&) {
      }
      met = test::failed_allocation() ? 1 : 0;
    }).join();
    (void)s_->drop("dropped");
    works();
  }
}

// The thread's first call destroys a handle that another thread made, and frees what the handle
// held.
TEST_F(NoMemoryCallsTest, a_threads_first_call_is_the_end_of_anothers) {
  fill(200);
  std::optional<Snapshot> snapshot;
  std::optional<Iterator> it;
  std::optional<StoreTransaction> tx;
  // A snapshot, a transaction's cursor, both, or a transaction that has written.
  for (const int what : {0, 1, 2, 3}) {
    long failed = 0;
    for (long n = 1, met = 1; met != 0 && !HasFailure(); ++n) {
      SCOPED_TRACE("what " + std::to_string(what) + ", allocation " + std::to_string(n));
      if (what == 0) snapshot = *s_->snapshot();
      if (what != 0) {
        tx = s_->begin();
        if (what != 3) {
          it = tx->iterator();
          it->seek_first();
        }
        if (what == 1) tx.reset();
        if (what == 3) {
          ASSERT_EQ(tx->put("of it alone", "1"), Status::ok);
        }
      }
      for (int i = 0; i < 200; ++i) ASSERT_EQ(s_->put(key_of(i), std::to_string(n)), Status::ok);
      ::alarm(60);
      std::thread([&] {
        test::fail_allocation(n);
        it.reset();
        tx.reset();
        snapshot.reset();
        met = test::failed_allocation() ? 1 : 0;
        failed += met;
      }).join();
      works();
      ::alarm(0);
    }
    EXPECT_GT(failed, 0);
  }
}

// A transaction that is begun has its end, whichever allocation fails: those that it is moved from
// are empty.
TEST_F(NoMemoryCallsTest, a_threads_first_call_is_the_end_of_an_empty_transaction) {
  for (long n = 1, met = 1; met != 0 && !HasFailure(); ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    std::thread([&] {
      test::fail_allocation(n);
      try {
        StoreTransaction first = s_->begin();
        const StoreTransaction second = std::move(first);
      } catch (const std::bad_alloc&) {
      }
      met = test::failed_allocation() ? 1 : 0;
    }).join();
    works();
  }
}

}  // namespace
}  // namespace tenuto
