// Each allocation of a call fails once, one after the other: making and dropping collections, bulk
// loads, compactions, transactions and batches over several collections. The call is done or not
// done. Nothing is lost or stays locked, and the call can be made again.
#include <new>
#include <utility>
#include <vector>

#include "support/no_memory_fixture.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;
using NoMemoryCollectionsTest = test::NoMemoryCallsFixture;

// About a hundred leaves, whose separators need blocks: all of them or none.
TEST_F(NoMemoryCollectionsTest, a_bulk_load) {
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

TEST_F(NoMemoryCollectionsTest, a_bulk_load_by_threads) {
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

TEST_F(NoMemoryCollectionsTest, a_compaction) {
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

// Records of a store that was filled in no order move all; some have old versions, which stay.
TEST_F(NoMemoryCollectionsTest, a_compaction_in_key_order) {
  std::optional<Snapshot> snapshot;
  Collection c;
  const CompactOptions in_order = {.in_key_order = true};
  every_allocation_fails_once(
      [&] { (void)s_->compact(in_order); },
      [&] {
        std::string value;
        EXPECT_EQ(contents(c).size(), 600u);
        EXPECT_EQ(c.get(key_of(7), value), Status::ok);
        EXPECT_EQ(value, "new");
        const Status s = snapshot->get({c, key_of(7)}, value);
        EXPECT_TRUE(s == Status::expired || (s == Status::ok && value == "old")) << value;
        EXPECT_TRUE(s_->compact(in_order));
        EXPECT_EQ(contents(c).size(), 600u);
        snapshot.reset();
        EXPECT_EQ(s_->drop("shuffled"), Status::ok);
      },
      [&] {
        c = made("shuffled", 0);
        for (int i = 0; i < 600; ++i) (void)c.put(key_of(i * 7 % 600), "old");
        snapshot = *s_->snapshot();
        for (int i = 0; i < 600; i += 7) (void)c.put(key_of(i), "new");
        (void)c.put(key_of(7), "new");
      });
}

// Merged leaves may lose their old versions (the snapshot expires), but not their records.
TEST_F(NoMemoryCollectionsTest, a_compaction_under_a_snapshot) {
  std::optional<Snapshot> snapshot;
  Collection c;
  every_allocation_fails_once(
      [&] { (void)s_->compact(); },
      [&] {
        std::string value;
        const Status s = snapshot->get({c, key_of(15)}, value);
        EXPECT_TRUE(s == Status::expired || (s == Status::ok && value == "sparse"));
        snapshot.reset();
        EXPECT_TRUE(s_->compact());
        EXPECT_EQ(contents(c).size(), 40u);
      },
      [&] {
        c = made("sparse", 400);
        snapshot = *s_->snapshot();
        for (int i = 0; i < 400; ++i) {
          if (i % 10 != 0) (void)c.erase(key_of(i));
        }
      });
}

// Drops a collection that was not opened since the store was. Otherwise a drop needs no memory.
TEST_F(NoMemoryCollectionsTest, a_drop) {
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

TEST_F(NoMemoryCollectionsTest, a_drop_under_a_snapshot_with_old_versions) {
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
                                snapshot = *s_->snapshot();
                                for (int i = 0; i < 200; i += 3)
                                  EXPECT_EQ(c.put(key_of(i), "new"), Status::ok);
                              });
}

TEST_F(NoMemoryCollectionsTest, a_rename) {
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

TEST_F(NoMemoryCollectionsTest, a_rename_that_replaces) {
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

// One that makes, drops, reads and writes collections: all of it or nothing.
TEST_F(NoMemoryCollectionsTest, a_transaction_with_several_collections) {
  Collection a, gone;
  every_allocation_fails_once(
      [&] {
        StoreTransaction tx = s_->begin();
        std::string value;
        if (tx.get({a, key_of(3)}, value) != Status::ok) return;
        Result<Collection> fresh = tx.create("a collection that is made here", {});
        if (!fresh) return;
        for (int i = 0; i < 60; ++i) {
          if (tx.put({*fresh, key_of(i)}, value) != Status::ok) return;
          if (tx.put({a, key_of(i)}, "changed") != Status::ok) return;
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

TEST_F(NoMemoryCollectionsTest, a_transaction_that_rolls_back) {
  Collection a = made("a", 60);
  every_allocation_fails_once(
      [&] {
        StoreTransaction tx = s_->begin({.read_only = false});
        std::string value;
        (void)tx.get_for_update({a, key_of(3)}, value);
        Result<Collection> fresh = tx.create("fresh", {});
        if (fresh) (void)tx.put({*fresh, key_of(1)}, "x");
        const auto point = tx.savepoint();
        (void)tx.erase({a, key_of(5)});
        (void)tx.rollback_to(point);
        tx.rollback();
      },
      [&] {
        EXPECT_EQ(names(), std::vector<std::string>{"a"});
        EXPECT_EQ(contents(a).size(), 60u);
        // No key stays locked for update.
        EXPECT_EQ(s_->run([&](StoreTransaction& tx) {
          return tx.put({a, key_of(3)}, "a");
        }),
                  Status::ok);
      });
}

TEST_F(NoMemoryCollectionsTest, a_batch_over_collections) {
  Collection a, b;
  every_allocation_fails_once(
      [&] {
        WriteBatch batch;
        for (int i = 0; i < 100; ++i) batch.put({a, key_of(1000 + i)}, "b");
        for (int i = 0; i < 60; ++i) batch.erase({b, key_of(i)});
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

}  // namespace
}  // namespace tenuto
