// Every public call on a moved-from, closed or empty handle returns an error. So do calls that get
// a handle of another store.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/collection_fixture.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

class MovedFromTest : public test::CollectionFixture {
 protected:
  void SetUp() override {
    c_ = made({.duplicates = true, .expires = true});
    ASSERT_EQ(s_->put("k", "v"), Status::ok);
    ASSERT_EQ(c_.put("k", "v"), Status::ok);
  }
  Collection c_;
  std::string value_;
};

// NOLINTBEGIN(bugprone-use-after-move): that is what these are about.

TEST_F(MovedFromTest, an_iterator) {
  Iterator it = c_.iterator();
  it.seek_first();
  ASSERT_TRUE(it.valid());
  Iterator other = std::move(it);
  EXPECT_TRUE(other.valid());
  it.seek_first();
  it.seek_last();
  it.seek("k");
  it.seek_for_prev("k");
  it.seek_pair("k", "v");
  it.next();
  it.prev();
  it.next_key();
  it.prev_key();
  EXPECT_FALSE(it.valid());
  EXPECT_EQ(it.status(), Status::closed);
  EXPECT_EQ(it.key(), "");
  EXPECT_EQ(it.value(), "");
  EXPECT_EQ(it.ttl_ms(), 0u);
  it = std::move(other);
  EXPECT_EQ(it.key(), "k");
}

TEST_F(MovedFromTest, a_view_and_a_batch) {
  Result<View> view = s_->view("k");
  ASSERT_TRUE(view);
  View other = std::move(*view);
  EXPECT_EQ(view->value(), "");
  EXPECT_EQ(other.value(), "v");
  other = std::move(*view);
  EXPECT_EQ(other.value(), "");

  WriteBatch batch;
  batch.put({c_, "b"}, "1");
  WriteBatch moved = std::move(batch);
  EXPECT_EQ(batch.count(), 0u);
  batch.put("later", "2");
  EXPECT_EQ(s_->write(moved), Status::ok);
  EXPECT_EQ(s_->write(batch), Status::ok);
  EXPECT_EQ(*s_->get("later"), "2");
  EXPECT_EQ(c_.contains("b"), Status::ok);
}

// Of a collection a move is a copy.
TEST_F(MovedFromTest, a_collection_and_what_never_was_one) {
  Collection from = c_;
  const Collection to = std::move(from);
  EXPECT_EQ(to.status(), Status::ok);
  EXPECT_EQ(from.contains("k"), Status::ok);
  Store gone = *Store::open(path_.str() + ".gone", options_);
  const Store heir = std::move(gone);
  for (Collection c : {Collection(), Collection(gone)}) {
    EXPECT_EQ(c.status(), Status::closed);
    EXPECT_EQ(c.get("k", value_), Status::closed);
    EXPECT_EQ(c.get("k").error(), Status::closed);
    EXPECT_EQ(c.view("k").error(), Status::closed);
    EXPECT_EQ(c.contains("k"), Status::closed);
    EXPECT_EQ(c.put("k", "v"), Status::closed);
    EXPECT_EQ(c.erase("k"), Status::closed);
    EXPECT_EQ(c.put_if_absent("k", "v"), Status::closed);
    EXPECT_EQ(c.compare_and_swap("k", {}, {}), Status::closed);
    EXPECT_EQ(c.merge("k", [](auto) { return std::nullopt; }), Status::closed);
    EXPECT_EQ(c.erase_range({}, {}).error(), Status::closed);
    EXPECT_EQ(c.bulk_load({}), Status::closed);
    EXPECT_EQ(c.multi_get(std::vector<std::string_view>{"k"})[0].error(), Status::closed);
    EXPECT_EQ(c.lower_bound("k").error(), Status::closed);
    EXPECT_EQ(c.upper_bound("k").error(), Status::closed);
    EXPECT_EQ(c.approximate_count({}, {}), 0u);
    EXPECT_EQ(c.contains_pair("k", "v"), Status::closed);
    EXPECT_EQ(c.erase_pair("k", "v"), Status::closed);
    EXPECT_EQ(c.count("k").error(), Status::closed);
    EXPECT_EQ(c.ttl_ms("k").error(), Status::closed);
    EXPECT_EQ(c.name() + c.codec(), "");
    EXPECT_EQ(c.stats().records, 0u);
    Iterator it = c.iterator();
    it.seek_first();
    it.seek("k");
    it.seek_pair("k", "v");
    EXPECT_FALSE(it.valid());
    EXPECT_NE(it.status(), Status::ok);
    WriteBatch batch;
    batch.put({c, "k"}, "v");
    EXPECT_EQ(s_->write(batch), Status::closed);
    StoreTransaction tx = s_->begin();
    EXPECT_EQ(tx.get({c, "k"}, value_), Status::closed);
    EXPECT_EQ(tx.put({c, "k"}, "v"), Status::closed);
    EXPECT_EQ(tx.drop(c), Status::closed);
    EXPECT_EQ(tx.iterator(c).status(), Status::closed);
    const Snapshot snapshot = *s_->snapshot();
    EXPECT_EQ(snapshot.get({c, "k"}, value_), Status::closed);
    EXPECT_EQ(snapshot.iterator(c).status(), Status::closed);
  }
}

TEST_F(MovedFromTest, a_snapshot_and_a_transaction) {
  Snapshot from = *s_->snapshot();
  Snapshot to = std::move(from);
  EXPECT_EQ(to.contains("k"), Status::ok);
  EXPECT_EQ(from.get("k", value_), Status::closed);
  EXPECT_EQ(from.get({c_, "k"}, value_), Status::closed);
  EXPECT_EQ(from.get("k").error(), Status::closed);
  EXPECT_EQ(from.contains("k"), Status::closed);
  EXPECT_EQ(from.contains({c_, "k"}), Status::closed);
  EXPECT_EQ(from.iterator().status(), Status::closed);
  EXPECT_EQ(from.iterator(c_).status(), Status::closed);
  from.release();

  StoreTransaction first = s_->begin();
  ASSERT_EQ(first.put("t", "1"), Status::ok);
  StoreTransaction tx = std::move(first);
  EXPECT_EQ(first.get("k", value_), Status::closed);
  EXPECT_EQ(first.contains("k"), Status::closed);
  EXPECT_EQ(first.get_for_update("k", value_), Status::closed);
  EXPECT_EQ(first.put("k", "v"), Status::closed);
  EXPECT_EQ(first.erase("k"), Status::closed);
  EXPECT_EQ(first.erase_pair({c_, "k"}, "v"), Status::closed);
  EXPECT_EQ(first.iterator().status(), Status::closed);
  EXPECT_EQ(first.create("new", {}).error(), Status::closed);
  EXPECT_EQ(first.drop(c_), Status::closed);
  EXPECT_EQ(first.rollback_to(first.savepoint()), Status::closed);
  EXPECT_EQ(first.commit(), Status::closed);
  first.rollback();
  EXPECT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(*s_->get("t"), "1");
}

TEST_F(MovedFromTest, a_store_and_its_pool) {
  Store to = std::move(*s_);
  EXPECT_EQ(s_->get("k", value_), Status::closed);
  EXPECT_EQ(s_->view("k").error(), Status::closed);
  EXPECT_EQ(s_->contains("k"), Status::closed);
  EXPECT_EQ(s_->put("k", "v"), Status::closed);
  EXPECT_EQ(s_->erase("k"), Status::closed);
  EXPECT_EQ(s_->put_if_absent("k", "v"), Status::closed);
  EXPECT_EQ(s_->compare_and_swap("k", {}, {}), Status::closed);
  EXPECT_EQ(s_->erase_range({}, {}).error(), Status::closed);
  EXPECT_EQ(s_->lower_bound("k").error(), Status::closed);
  EXPECT_EQ(s_->approximate_count({}, {}), 0u);
  EXPECT_EQ(s_->write(WriteBatch()), Status::closed);
  EXPECT_EQ(s_->bulk_load({}), Status::closed);
  EXPECT_NE(s_->iterator().status(), Status::ok);
  EXPECT_EQ(s_->collection("c").error(), Status::closed);
  EXPECT_EQ(s_->collections().error(), Status::closed);
  EXPECT_EQ(s_->drop("c"), Status::closed);
  EXPECT_EQ(s_->rename("c", "d"), Status::closed);
  EXPECT_EQ(s_->snapshot().error(), Status::closed);
  EXPECT_EQ(s_->begin().put("k", "v"), Status::closed);
  EXPECT_EQ(s_->run([](StoreTransaction& tx) { return tx.put("k", "v"); }), Status::closed);
  EXPECT_EQ(s_->backup(path_.str() + ".copy"), Status::closed);
  EXPECT_EQ(s_->reclaim().error(), Status::closed);
  EXPECT_EQ(s_->compact().error(), Status::closed);
  EXPECT_EQ(s_->sync(), Status::closed);
  EXPECT_EQ(s_->validate(), Status::closed);
  EXPECT_EQ(s_->order(), KeyOrder::bytes);
  EXPECT_EQ(s_->status(), Status::closed);
  EXPECT_EQ(s_->stats().records, 0u);
  EXPECT_EQ(s_->close(), Status::closed);
  EXPECT_EQ(c_.contains("k"), Status::ok);  // handles belong to the store, also after it has moved
  *s_ = std::move(to);
  EXPECT_EQ(*s_->get("k"), "v");

  const test::TempPath elsewhere{"pool"};
  Pool pool = *Pool::create(elsewhere.str(), options_.pool);
  Pool moved = std::move(pool);
  PtrWord word{};
  EXPECT_EQ(pool.malloc_to(8, word), Status::closed);
  EXPECT_EQ(pool.free_from(word), Status::closed);
  EXPECT_EQ(pool.realloc_to(8, word), Status::closed);
  EXPECT_EQ(pool.reserve(8).error(), Status::closed);
  EXPECT_EQ(pool.cancel({}), Status::closed);
  EXPECT_EQ(pool.publish({}, word), Status::closed);
  EXPECT_EQ(pool.root("r", 8).error(), Status::closed);
  EXPECT_EQ(pool.first(1).error(), Status::closed);
  EXPECT_EQ(pool.next(&word, 1).error(), Status::closed);
  EXPECT_EQ(pool.sync(), Status::closed);
  EXPECT_EQ(pool.health(), Status::closed);
  EXPECT_EQ(pool.trim(), Status::closed);
  EXPECT_EQ(pool.validate(), Status::closed);
  EXPECT_EQ(pool.close(), Status::closed);
  EXPECT_FALSE(pool.contains(&word));
  EXPECT_EQ(pool.usable_size(&word), 0u);
  EXPECT_EQ(pool.type_of(&word), 0u);
  EXPECT_EQ(pool.at(PoolOffset{4096}), nullptr);
  EXPECT_EQ(pool.info().pool_id, 0u);
  EXPECT_EQ(pool.stats().file_bytes, 0u);
  EXPECT_EQ(pool.run([](Transaction&) { return Status::ok; }), Status::closed);
}
// NOLINTEND(bugprone-use-after-move)

// The timestamp of a snapshot means nothing in another store.
TEST_F(MovedFromTest, a_collection_of_another_store_is_refused) {
  const test::TempPath elsewhere{"elsewhere"};
  Store other = *Store::open(elsewhere.str(), options_, &report_);
  ASSERT_EQ(other.put("k", "theirs"), Status::ok);
  const Snapshot snapshot = *s_->snapshot();
  const Collection theirs = other;
  EXPECT_EQ(snapshot.get({theirs, "k"}, value_), Status::invalid_argument);
  EXPECT_EQ(snapshot.get({theirs, "k"}).error(), Status::invalid_argument);
  EXPECT_EQ(snapshot.contains({theirs, "k"}), Status::invalid_argument);
  Iterator it = snapshot.iterator(theirs);
  it.seek_first();
  EXPECT_FALSE(it.valid());
  EXPECT_EQ(it.status(), Status::invalid_argument);
  StoreTransaction tx = s_->begin();
  EXPECT_EQ(tx.iterator(theirs).status(), Status::invalid_argument);
  EXPECT_EQ(tx.get({theirs, "k"}, value_), Status::invalid_argument);
  ASSERT_EQ(other.close(), Status::ok);
  EXPECT_EQ(snapshot.get({theirs, "k"}, value_), Status::invalid_argument);
}

}  // namespace
}  // namespace tenuto
