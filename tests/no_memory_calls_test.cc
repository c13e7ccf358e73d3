// Each allocation of a call fails once, one after the other: collections that come and go, bulk
// loads, compactions, snapshots, transactions, cursors, objects, a thread's first call. The call
// was done or was not; nothing is lost or locked, and it can be made again.
#include <cinttypes>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "support/no_memory_fixture.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"
#include "tenuto/tx.h"

namespace tenuto {
namespace {

using test::key_of;

class NoMemoryCallsTest : public test::NoMemoryFixture {
 protected:
  using Contents = std::map<std::string, std::string>;

  NoMemoryCallsTest() {
    options_.pool.size = 16u << 20;
    options_.pool.recovery_threads = 1;  // bulk loads by this thread, whose allocations fail
    options_.clock_ms = [this] { return now_; };
    options_.reclaim_every_ms = 0;
  }
  void TearDown() override {
    if (s_) {
      EXPECT_EQ(s_->close(), Status::ok);
    }
    s_.reset();
    if (HasFailure()) return;
    s_.emplace(opened());  // what was lost in a clean close is found here
    expect_valid(*s_);
    NoMemoryFixture::TearDown();
  }

  Collection made(const std::string& name, int records, const CollectionOptions& options = {}) {
    Result<Collection> c = s_->collection(name, options, &report_);
    EXPECT_TRUE(c) << report_.text();
    for (int i = 0; i < records; ++i) EXPECT_EQ(c->put(key_of(i), name), Status::ok);
    return *c;
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const CollectionInfo& info : s_->collections().value_or({})) out.push_back(info.name);
    return out;
  }
  static Contents contents(const Collection& c) {
    Contents out;
    Iterator it = c.iterator();
    for (it.seek_first(); it.valid(); it.next()) out.emplace(it.key(), it.value());
    EXPECT_EQ(it.status(), Status::ok);
    return out;
  }
  Contents contents() { return contents(s_->default_collection()); }
  static CollectionOptions there() { return {.create_if_missing = false}; }

  std::uint64_t now_ = 1'000'000'000'000;
};

// Some hundred leaves with separators that need blocks, all of them or none.
TEST_F(NoMemoryCallsTest, a_bulk_load) {
  std::vector<std::string> keys;
  for (int i = 0; i < 3000; ++i) keys.push_back(std::string(90, 'p') + key_of(i));
  std::vector<BulkRecord> records;
  for (const std::string& key : keys) records.push_back({key, "loaded"});
  Collection c;
  every_allocation_fails_once([&] { (void)c.bulk_load(records); },
                              [&] {
                                const std::size_t there = contents(c).size();
                                ASSERT_TRUE(there == 0 || there == records.size()) << there;
                                if (there == 0) {
                                  ASSERT_EQ(c.bulk_load(records), Status::ok);
                                }
                                EXPECT_EQ(contents(c).size(), records.size());
                                EXPECT_EQ(c.put("more", "x"), Status::ok);
                                EXPECT_EQ(s_->drop("c"), Status::ok);
                              },
                              [&] { c = made("c", 0); });
}

TEST_F(NoMemoryCallsTest, a_bulk_load_by_threads) {
  std::vector<std::string> keys;
  for (int i = 0; i < 20'000; ++i) keys.push_back(std::string(90, 'p') + key_of(i));
  std::vector<BulkRecord> records;
  for (const std::string& key : keys) records.push_back({key, "loaded"});
  s_.reset();
  options_.pool.recovery_threads = 2;
  s_.emplace(opened());
  for (long n = 1; !HasFailure(); n += 37) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    Collection c = made("c", 0);
    test::fail_allocation_anywhere(n);
    try {
      (void)c.bulk_load(records);
    } catch (const std::bad_alloc&) {
    }
    if (!test::failed_allocation_anywhere()) {
      EXPECT_GT(n, 900);
      break;
    }
    EXPECT_TRUE(contents(c).empty());
    ASSERT_EQ(c.bulk_load(records), Status::ok);
    EXPECT_EQ(s_->drop("c"), Status::ok);
    works();
  }
}

TEST_F(NoMemoryCallsTest, a_compaction) {
  const CollectionOptions plain;
  std::optional<Collection> c;
  every_allocation_fails_once([&] { (void)s_->compact(); },
                              [&] {
                                EXPECT_EQ(contents(*c).size(), 100u);
                                EXPECT_TRUE(s_->compact());
                                EXPECT_EQ(contents(*c).size(), 100u);
                              },
                              [&] {
                                c = made("sparse", 1000, plain);
                                for (int i = 0; i < 1000; ++i) {
                                  if (i % 10 != 0) (void)c->erase(key_of(i));
                                }
                              });
}

// Its lists go with the leaves that are merged, its records stay.
TEST_F(NoMemoryCallsTest, a_compaction_under_a_snapshot) {
  std::optional<Snapshot> snapshot;
  Collection c;
  every_allocation_fails_once(
      [&] { (void)s_->compact(); },
      [&] {
        std::string value;
        const Status s = snapshot->get(c, key_of(15), value);
        EXPECT_TRUE(s == Status::expired || (s == Status::ok && value == "sparse"));
        snapshot.reset();
        EXPECT_TRUE(s_->compact());
        EXPECT_EQ(contents(c).size(), 40u);
      },
      [&] {
        c = made("sparse", 400);
        snapshot = std::move(*s_->snapshot());
        for (int i = 0; i < 400; ++i) {
          if (i % 10 != 0) (void)c.erase(key_of(i));
        }
      });
}

// Of one that nobody has opened since the store was; of others a drop needs no memory.
TEST_F(NoMemoryCallsTest, a_drop) {
  every_allocation_fails_once([&] { (void)s_->drop("c"); },
                              [&] {
                                if (!names().empty()) {
                                  EXPECT_EQ(contents(*s_->collection("c", there())).size(), 300u);
                                  EXPECT_EQ(s_->drop("c"), Status::ok);
                                }
                                EXPECT_TRUE(names().empty());
                              },
                              [&] {
                                made("c", 300);
                                EXPECT_EQ(s_->close(), Status::ok);
                                s_.emplace(opened());
                              });
}

TEST_F(NoMemoryCallsTest, a_drop_under_a_snapshot_with_old_versions) {
  Collection c;
  std::optional<Snapshot> snapshot;
  every_allocation_fails_once([&] { (void)s_->drop("c"); },
                              [&] {
                                if (c.status() == Status::ok) {
                                  EXPECT_EQ(s_->drop("c"), Status::ok);
                                }
                                EXPECT_TRUE(names().empty());
                                snapshot.reset();
                              },
                              [&] {
                                c = made("c", 200);
                                snapshot = std::move(*s_->snapshot());
                                for (int i = 0; i < 200; i += 3)
                                  EXPECT_EQ(c.put(key_of(i), "new"), Status::ok);
                              });
}

TEST_F(NoMemoryCallsTest, a_rename) {
  const std::string from(100, 'f');
  const std::string to(120, 't');
  Collection c;
  every_allocation_fails_once([&] { (void)s_->rename(from, to); },
                              [&] {
                                const auto now = names();
                                ASSERT_EQ(now.size(), 1u);
                                EXPECT_TRUE(now[0] == from || now[0] == to);
                                EXPECT_EQ(c.name(), now[0]);
                                EXPECT_EQ(contents(*s_->collection(now[0], there())).size(), 60u);
                                if (now[0] == from) {
                                  EXPECT_EQ(s_->rename(from, to), Status::ok);
                                }
                                EXPECT_EQ(c.name(), to);
                                EXPECT_EQ(contents(c).size(), 60u);
                                EXPECT_EQ(s_->drop(to), Status::ok);
                              },
                              [&] { c = made(from, 60); });
}

TEST_F(NoMemoryCallsTest, a_rename_that_replaces) {
  Collection c, other;
  every_allocation_fails_once(
      [&] {
        (void)s_->rename("a collection's first name", "another collection's name",
                         {.replace = true});
      },
      [&] {
        if (other.status() == Status::ok) {
          EXPECT_EQ(names().size(), 2u);
          EXPECT_EQ(contents(other).size(), 20u);
          EXPECT_EQ(s_->rename("a collection's first name", "another collection's name",
                               {.replace = true}),
                    Status::ok);
        }
        EXPECT_EQ(names(), std::vector<std::string>{"another collection's name"});
        EXPECT_EQ(c.name(), "another collection's name");
        EXPECT_EQ(contents(c).size(), 60u);
        EXPECT_EQ(s_->drop("another collection's name"), Status::ok);
      },
      [&] {
        c = made("a collection's first name", 60);
        other = made("another collection's name", 20);
      });
}

// Collections that it makes, drops, reads and writes: all of it or nothing.
TEST_F(NoMemoryCallsTest, a_transaction_with_several_collections) {
  Collection a, gone;
  every_allocation_fails_once(
      [&] {
        StoreTransaction tx = s_->begin();
        std::string value;
        if (tx.get(a, key_of(3), value) != Status::ok) return;
        Result<Collection> fresh = tx.create("a collection that is made here", {});
        if (!fresh) return;
        for (int i = 0; i < 60; ++i) {
          if (tx.put(*fresh, key_of(i), value) != Status::ok) return;
          if (tx.put(a, key_of(i), "changed") != Status::ok) return;
        }
        if (tx.put("in the default one", "x") != Status::ok) return;
        if (tx.drop(gone) != Status::ok) return;
        (void)tx.commit();
      },
      [&] {
        const bool done = s_->contains("in the default one") == Status::ok;
        Result<Collection> fresh = s_->collection("a collection that is made here", there());
        EXPECT_EQ(static_cast<bool>(fresh), done);
        EXPECT_EQ(gone.status() == Status::not_found, done);
        for (const auto& [key, value] : contents(a)) EXPECT_EQ(value == "changed", done) << key;
        if (fresh) {
          EXPECT_EQ(contents(*fresh).size(), 60u);
          EXPECT_EQ(s_->drop("a collection that is made here"), Status::ok);
        }
        if (!done) {
          EXPECT_EQ(s_->drop("gone"), Status::ok);
        }
        EXPECT_EQ(s_->drop("a"), Status::ok);
        (void)s_->erase("in the default one");
        EXPECT_TRUE(names().empty());
      },
      [&] {
        a = made("a", 60);
        gone = made("gone", 60);
      });
}

TEST_F(NoMemoryCallsTest, a_transaction_that_rolls_back) {
  Collection a = made("a", 60);
  every_allocation_fails_once(
      [&] {
        StoreTransaction tx = s_->begin({.read_only = false});
        std::string value;
        (void)tx.get_for_update(a, key_of(3), value);
        Result<Collection> fresh = tx.create("fresh", {});
        if (fresh) (void)tx.put(*fresh, key_of(1), "x");
        const auto point = tx.savepoint();
        (void)tx.erase(a, key_of(5));
        (void)tx.rollback_to(point);
        tx.rollback();
      },
      [&] {
        EXPECT_EQ(names(), std::vector<std::string>{"a"});
        EXPECT_EQ(contents(a).size(), 60u);
        // Nothing is kept for update.
        EXPECT_EQ(s_->run([&](StoreTransaction& tx) { return tx.put(a, key_of(3), "a"); }),
                  Status::ok);
      });
}

TEST_F(NoMemoryCallsTest, a_batch_over_collections) {
  Collection a, b;
  every_allocation_fails_once(
      [&] {
        WriteBatch batch;
        for (int i = 0; i < 100; ++i) batch.put(a, key_of(1000 + i), "b");
        for (int i = 0; i < 60; ++i) batch.erase(b, key_of(i));
        (void)s_->write(batch);
      },
      [&] {
        const std::size_t in_a = contents(a).size();
        EXPECT_TRUE(in_a == 60 || in_a == 160) << in_a;
        EXPECT_EQ(contents(b).size(), in_a == 160 ? 0u : 60u);
        EXPECT_EQ(s_->drop("a"), Status::ok);
        EXPECT_EQ(s_->drop("b"), Status::ok);
      },
      [&] {
        a = made("a", 60);
        b = made("b", 60);
      });
}

// Its end, too: what it held is swept, now or later.
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
    (void)snapshot->contains(a, key_of(3));
    Iterator it = snapshot->iterator(a);
    for (it.seek_last(); it.valid(); it.prev()) continue;
  });
  EXPECT_EQ(s_->stats().snapshot_versions, 0u);
}

// The last one's end takes the emptied leaves away.
TEST_F(NoMemoryCallsTest, a_snapshots_end) {
  std::optional<Snapshot> snapshot;
  every_allocation_fails_once(
      [&] { snapshot.reset(); },
      [&] { EXPECT_EQ(s_->snapshot().value().contains(key_of(0)), Status::not_found); },
      [&] {
        fill(400);
        snapshot.reset();
        snapshot = std::move(*s_->snapshot());
        for (int i = 0; i < next_; ++i) (void)s_->erase(key_of(i));
        next_ = 0;
      });
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
    const bool over = moved.status() == Status::expired;  // there was no memory for an old version
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
    const Snapshot snapshot = std::move(*s_->snapshot());
    (void)s_->put(key_of(4), std::string(100, 'x'));
    walk(snapshot.iterator(), key_of(100));
    StoreTransaction tx = s_->begin();
    for (int i = 0; i < 30; ++i) (void)tx.put(key_of(i * 3) + "t", "own");
    walk(tx.iterator(), key_of(20));
    walk(tx.iterator(pairs), key_of(7));
  });
}

// One that met a failure goes on where it is sent.
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
        (void)pool.malloc_to(root.two, 5u << 20);
        (void)pool.malloc_to(std::span<Ptr<std::uint64_t>>(root.many));
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

// What a thread has of the library is made by its first call.
TEST_F(NoMemoryCallsTest, a_threads_first_calls) {
  fill(100);
  made("a", 60);
  int n = 0;
  const auto in_a_thread = [&](const Call& call) {
    long left = 1;
    for (bool met = true; met && !HasFailure(); ++left) {
      SCOPED_TRACE("allocation " + std::to_string(left));
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
}

}  // namespace
}  // namespace tenuto
