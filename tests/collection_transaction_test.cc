// Transactions over several collections, and those that make and drop them. That many at once are
// serialisable: isolation_stress; that crashes leave all or nothing: collection_crash.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "support/collection_fixture.h"
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
    TENUTO_TRY(tx.get_for_update(a, "x", value));
    TENUTO_TRY(tx.erase(a, "x"));
    TENUTO_TRY(tx.put(b, "x", value));
    return tx.put("log", "moved");
  };
  ASSERT_EQ(s_->run(move), Status::ok);
  EXPECT_EQ(a.contains("x"), Status::not_found);
  EXPECT_EQ(*b.get("x"), "10");
  EXPECT_EQ(*s_->get("log"), "moved");
  // One key name, two collections: neither hides the other.
  StoreTransaction tx = s_->begin();
  ASSERT_EQ(tx.put(a, "x", "mine"), Status::ok);
  EXPECT_EQ(*tx.get(b, "x"), "10");
  const StoreTransaction::Savepoint point = tx.savepoint();
  ASSERT_EQ(tx.erase(b, "x"), Status::ok);
  EXPECT_EQ(tx.contains(b, "x"), Status::not_found);
  ASSERT_EQ(tx.rollback_to(point), Status::ok);
  EXPECT_EQ(*tx.get(b, "x"), "10");
  ASSERT_EQ(b.put("x", "11"), Status::ok);
  EXPECT_EQ(tx.commit(), Status::conflict);
  EXPECT_EQ(a.contains("x"), Status::not_found);
}

TEST_F(CollectionTransactionTest,
       a_transactions_cursor_sees_its_own_writes_in_the_collections_order) {
  Collection b = made({.order = KeyOrder::reverse});
  for (const char* k : {"a", "c"}) ASSERT_EQ(b.put(k, "old"), Status::ok);
  StoreTransaction tx = s_->begin();
  ASSERT_EQ(tx.put(b, "b", "own"), Status::ok);
  ASSERT_EQ(tx.erase(b, "c"), Status::ok);
  {
    Iterator it = tx.iterator(b);
    it.seek_first();
    EXPECT_EQ(keys(it), (Keys{"b", "a"}));
  }
  ASSERT_EQ(b.put("aa", "new"), Status::ok);  // where the cursor walked
  EXPECT_EQ(tx.commit(), Status::conflict);
}

TEST_F(CollectionTransactionTest, a_transaction_makes_and_drops_collections_with_its_commit) {
  Collection old = made({}, "old");
  ASSERT_EQ(old.put("k", "v"), Status::ok);
  {
    StoreTransaction tx = s_->begin();
    Result<Collection> fresh = tx.create("fresh", {.order = KeyOrder::reverse});
    ASSERT_TRUE(fresh);
    ASSERT_EQ(tx.put(*fresh, "a", "1"), Status::ok);
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
  for (int i = 0; i < 200; ++i) ASSERT_EQ(tx.put(fresh, test::key_of(i), "x"), Status::ok);
  ASSERT_EQ(tx.put(old, "lost", "x"), Status::ok);
  ASSERT_EQ(tx.drop(old), Status::ok);
  Collection again = *tx.create("again", {});
  StoreTransaction late = s_->begin();
  Collection twin = *late.create("fresh", {});
  ASSERT_EQ(late.put("by late", "x"), Status::ok);
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(late.commit(), Status::exists);
  EXPECT_EQ(s_->contains("by late"), Status::not_found);
  EXPECT_EQ(old.status(), Status::not_found);
  EXPECT_EQ(twin.status(), Status::not_found);
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
    return c ? tx.put(*c, "k", "new") : c.error();
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
  EXPECT_EQ(*tx.get(a, "x"), "1");
  ASSERT_EQ(tx.put("y", "1"), Status::ok);
  ASSERT_EQ(s_->drop("a"), Status::ok);
  EXPECT_EQ(tx.get(a, "x").error(), Status::not_found);
  EXPECT_EQ(tx.commit(), Status::not_found);
  EXPECT_EQ(s_->contains("y"), Status::not_found);
  test::TempPath elsewhere{"elsewhere"};
  Store other = std::move(*Store::open(elsewhere.str(), options_, &report_));
  StoreTransaction foreign = s_->begin();
  EXPECT_EQ(foreign.put(other.default_collection(), "k", "v"), Status::invalid_argument);
}

}  // namespace
}  // namespace tenuto
