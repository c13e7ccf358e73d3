// The end of a tree (store/tree/tree_end.h) while others may still look at it: snapshots and
// transactions that keep its old versions, a release that sweeps them, readers, compactions, a full
// pool. Also a bulk load, which ends the old shape of a tree. The ASan build shows best if memory
// is freed too early.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/collection_fixture.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;

class TreeEndTest : public test::CollectionFixture {
 protected:
  TreeEndTest() { options_.pool.size = 32u << 20; }

  static void fill(Collection c, int from, int to, const std::string& value) {
    for (int i = from; i < to; ++i) ASSERT_EQ(c.put(key_of(i), value), Status::ok);
  }
  static Snapshot taken(Store& s) {
    Result<Snapshot> snapshot = s.snapshot();
    EXPECT_TRUE(snapshot);
    return std::move(*snapshot);
  }
  // Uses the list heads that the dropped collection gave back, and reads through them.
  void expect_others_keep_their_versions(const std::string& tag) {
    Collection z = made({}, "z" + tag);
    fill(z, 0, 200, "old");
    Snapshot at = taken(*s_);
    fill(z, 0, 200, "new");
    for (int i = 0; i < 200; ++i) ASSERT_EQ(*at.get({z, key_of(i)}), "old");
  }
};

TEST_F(TreeEndTest, a_collection_is_dropped_while_a_snapshot_keeps_a_version_of_it) {
  Collection y = made({}, "y");
  Collection z = made({}, "z");
  ASSERT_EQ(y.put("k", "old"), Status::ok);
  ASSERT_EQ(z.put("k", "old"), Status::ok);
  Snapshot at = taken(*s_);
  ASSERT_EQ(y.put("k", "new"), Status::ok);
  ASSERT_EQ(s_->drop("y"), Status::ok);
  ASSERT_EQ(z.put("k", "new"), Status::ok);  // takes the list head that y gave back
  EXPECT_EQ(*at.get({z, "k"}), "old");
  EXPECT_EQ(at.get({y, "k"}).error(), Status::not_found);
  expect_others_keep_their_versions("1");
}

TEST_F(TreeEndTest, drops_that_an_iterator_holds_back_are_all_over_after_it) {
  constexpr int kCollections = 40;
  const auto allocated = [&] { return s_->stats().pool.allocated_bytes; };
  const auto name_of = [](int i) { return "c" + key_of(i); };
  made({}, "first");
  const std::uint64_t before = allocated();
  std::uint64_t with = 0;
  {
    for (int i = 0; i < kCollections; ++i) fill(made({}, name_of(i)), 0, 100, "value");
    with = allocated();
    Iterator it = made({}, name_of(kCollections / 2)).iterator();
    it.seek_first();
    for (int i = 0; i < kCollections; ++i) ASSERT_EQ(s_->drop(name_of(i)), Status::ok);
    EXPECT_GT(allocated(), before + (with - before) / 2);
    ASSERT_TRUE(it.valid());
    EXPECT_EQ(it.key(), key_of(0));
    EXPECT_EQ(it.value(), "value");
  }
  made({}, "last");
  ASSERT_EQ(s_->drop("last"), Status::ok);
  EXPECT_LT(allocated(), before + (with - before) / 10);
  expect_valid(*s_);
}

TEST_F(TreeEndTest, a_collection_is_dropped_while_a_transaction_keeps_a_version_of_it) {
  Collection y = made({}, "y");
  Collection z = made({}, "z");
  fill(y, 0, 300, "old");
  fill(z, 0, 300, "old");
  StoreTransaction tx = s_->begin();
  ASSERT_EQ(*tx.get({z, key_of(0)}), "old");
  fill(y, 0, 300, "new");
  ASSERT_EQ(s_->drop("y"), Status::ok);
  fill(z, 0, 300, "new");
  ASSERT_EQ(*tx.get({z, key_of(7)}), "old");
  ASSERT_EQ(tx.put({z, key_of(7)}, "mine"), Status::ok);
  EXPECT_EQ(tx.commit(), Status::conflict);
  expect_others_keep_their_versions("2");
}

TEST_F(TreeEndTest, a_rename_replaces_a_collection_of_which_versions_are_kept) {
  Collection y = made({}, "y");
  Collection z = made({}, "z");
  fill(y, 0, 300, "old");
  fill(z, 0, 300, "old");
  Snapshot at = taken(*s_);
  fill(y, 0, 300, "new");
  ASSERT_EQ(s_->rename("z", "y", {.replace = true}), Status::ok);
  fill(z, 0, 300, "new");
  for (int i = 0; i < 300; ++i) ASSERT_EQ(*at.get({z, key_of(i)}), "old");
  EXPECT_EQ(y.get(key_of(0)).error(), Status::not_found);
  expect_others_keep_their_versions("3");
}

TEST_F(TreeEndTest, a_transaction_that_drops_and_creates_leaves_other_versions_alone) {
  Collection y = made({}, "y");
  Collection z = made({}, "z");
  fill(y, 0, 100, "old");
  fill(z, 0, 100, "old");
  Snapshot at = taken(*s_);
  fill(y, 0, 100, "new");
  StoreTransaction tx = s_->begin();
  ASSERT_EQ(tx.drop(y), Status::ok);
  Result<Collection> fresh = tx.create("y", {}, nullptr);
  ASSERT_TRUE(fresh);
  ASSERT_EQ(tx.put({*fresh, "k"}, "v"), Status::ok);
  ASSERT_EQ(tx.commit(), Status::ok);
  {
    StoreTransaction back = s_->begin();
    ASSERT_TRUE(back.create("never", {}, nullptr));
  }
  fill(z, 0, 100, "new");
  for (int i = 0; i < 100; ++i) ASSERT_EQ(*at.get({z, key_of(i)}), "old");
  expect_others_keep_their_versions("4");
}

// An iterator of a snapshot still shows its leaf when its collection is dropped. After that leaf
// the walk ends, and the collection's memory is freed.
TEST_F(TreeEndTest, a_snapshots_iterator_leaves_a_dropped_collection_after_its_leaf) {
  Collection y = made({}, "y");
  fill(y, 0, 500, "old");
  {
    Snapshot at = taken(*s_);
    fill(y, 0, 500, "new");
    Iterator it = at.iterator(y);
    it.seek_first();
    ASSERT_EQ(s_->drop("y"), Status::ok);
    expect_others_keep_their_versions("5");
    int seen = 0;
    for (; it.valid(); it.next(), ++seen) ASSERT_EQ(it.value(), "old");
    EXPECT_GT(seen, 0);
    EXPECT_LE(seen, 48);
    EXPECT_EQ(it.status(), Status::not_found);
    expect_valid(*s_);
  }
  ASSERT_EQ(s_->drop("z5"), Status::ok);
  const auto bytes = [&] { return s_->pool().stats().allocated_bytes; };
  (void)s_->collection("a");  // frees what waited
  expect_valid(*s_);
  EXPECT_GT(bytes(), 0u);
}

// A thread releases a snapshot and sweeps many versions of the default collection, before or after
// the others. Meanwhile other trees, of which the snapshot also held versions, come to an end.
class TreeEndSweepTest : public TreeEndTest {
 protected:
  TreeEndSweepTest() { options_.pool.size = 64u << 20; }

  static constexpr int kMany = 40'000;
  static constexpr int kRounds = 8;

  void begin() {
    signal_ = made({}, "signal");
    fill(*s_, 0, kMany, "v0");
  }
  // Makes a version of each of many keys.
  void overwrite(int round) { fill(*s_, 0, kMany, "v" + std::to_string(round)); }
  // Calls f while another thread, as a rule, sweeps what the snapshot kept.
  template <class F>
  void while_swept(std::optional<Snapshot>& at, F&& f) {
    std::thread sweeper([&] { at.reset(); });
    // bulk_load returns `busy` until the release has begun. Unlike stats(), that does not sweep.
    const BulkRecord records[] = {{"k", "v"}};
    while (signal_.bulk_load(records) == Status::busy) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(rng_() % 20));
    f();
    sweeper.join();
    expect_valid(*s_);
    ASSERT_EQ(s_->drop("signal"), Status::ok);
    signal_ = made({}, "signal");
  }

  Collection signal_;
  std::mt19937 rng_{7};
};

TEST_F(TreeEndSweepTest, a_collection_is_dropped_while_a_release_sweeps_its_versions) {
  begin();
  for (int round = 1; round <= kRounds && !HasFailure(); ++round) {
    std::vector<std::string> names;
    std::vector<Collection> all;
    for (int n = 0; n < 6; ++n) {
      all.push_back(made({}, names.emplace_back("y" + std::to_string(n))));
      fill(all.back(), 0, 100, "old");
    }
    std::optional<Snapshot> at = taken(*s_);
    for (const Collection& c : all) fill(c, 0, 100, "new");
    overwrite(round);
    while_swept(at, [&] {
      for (const std::string& name : names) ASSERT_EQ(s_->drop(name), Status::ok);
    });
  }
}

TEST_F(TreeEndSweepTest, a_bulk_load_meets_a_release_that_sweeps) {
  std::vector<BulkRecord> records;
  std::vector<std::string> keys;
  for (int i = 0; i < 400; ++i) keys.push_back(key_of(i));
  for (const std::string& key : keys) records.push_back({key, "loaded"});
  begin();
  for (int round = 1; round <= kRounds && !HasFailure(); ++round) {
    std::vector<Collection> all;
    for (int n = 0; n < 6; ++n) all.push_back(made({}, "b" + std::to_string(n)));
    for (const Collection& c : all) fill(c, 0, 40, "v");
    std::optional<Snapshot> at = taken(*s_);
    for (Collection& c : all) {  // leaves one empty leaf with a list of versions
      for (int i = 0; i < 40; ++i) ASSERT_EQ(c.erase(key_of(i)), Status::ok);
    }
    overwrite(round);
    while_swept(at, [&] {
      for (Collection& c : all) ASSERT_EQ(c.bulk_load(records), Status::ok);
    });
    Snapshot later = taken(*s_);
    for (Collection& c : all) {
      ASSERT_EQ(c.put("j", "in the first leaf"), Status::ok);  // walks the leaf's list
      ASSERT_EQ(c.put(key_of(3), "new"), Status::ok);
      ASSERT_EQ(*later.get({c, key_of(3)}), "loaded");
      ASSERT_EQ(later.contains({c, "j"}), Status::not_found);
    }
    for (int n = 0; n < 6; ++n) ASSERT_EQ(s_->drop("b" + std::to_string(n)), Status::ok);
  }
}

// Names come and go in the catalog's leaves, and a compaction merges and moves those leaves.
TEST_F(TreeEndTest, a_compaction_runs_while_collections_are_listed_reclaimed_and_validated) {
  const auto name = [](int i) { return "name-" + std::to_string(100'000 + i); };
  made({}, "a");
  for (int i = 0; i < 600; i += 6) made({}, name(i));
  std::atomic<bool> done = false;
  std::thread compacting([&] {
    for (int round = 0; round < 30; ++round) {
      for (int i = 0; i < 600; ++i) {
        if (i % 6 != 0) {
          EXPECT_TRUE(s_->collection(name(i)));
        }
      }
      for (int i = 0; i < 600; ++i) {
        if (i % 6 != 0) {
          EXPECT_EQ(s_->drop(name(i)), Status::ok);
        }
      }
      EXPECT_TRUE(s_->compact());
    }
    done = true;
  });
  Report report;
  for (int n = 0; !done && !HasFailure(); ++n) {
    const auto all = s_->collections(&report);
    EXPECT_TRUE(all) << status_name(all.error()) << ": " << report.text();
    if (!all) break;
    const auto kept = [](const CollectionInfo& c) {
      return c.name == "a" || std::stoi(c.name.substr(5)) % 6 == 4;  // 100'000 % 6 is 4
    };
    EXPECT_EQ(std::count_if(all->begin(), all->end(), kept), 101);
    EXPECT_TRUE(s_->reclaim());
    if (n % 50 == 49) {
      EXPECT_EQ(s_->validate(&report), Status::ok) << report.text();
    }
  }
  compacting.join();
}

// Making and dropping a collection is not a record write: a validation makes it wait, also while
// the validation looks at the heap and empties the other thread's caches.
TEST_F(TreeEndTest, collections_are_made_and_dropped_while_the_store_is_validated) {
  made({}, "a");
  std::atomic<int> rounds = 0;
  std::atomic<bool> done = false;
  std::thread dropping([&] {
    while (!done) {
      for (int i = 0; i < 40; ++i) EXPECT_TRUE(s_->collection("x" + std::to_string(i)));
      for (int i = 0; i < 40; ++i) EXPECT_EQ(s_->drop("x" + std::to_string(i)), Status::ok);
      rounds += 1;
    }
  });
  Report report;
  for (int n = 0; (n < 300 || rounds < 20) && !HasFailure(); ++n) {
    EXPECT_EQ(s_->validate(&report), Status::ok) << report.text();
  }
  done = true;
  dropping.join();
}

// Random operations of one thread in a pool that is too small for them, beside a map of maps.
class TreeEndRandomTest : public TreeEndTest, public testing::WithParamInterface<unsigned> {
 protected:
  using Model = std::map<std::string, std::map<std::string, std::string>>;
  struct Moment {
    Snapshot at;
    Model model;
  };

  TreeEndRandomTest() { options_.pool.size = options_.pool.size_max = 8u << 20; }

  Collection some() {
    if (model_.empty()) return {};
    auto at = model_.begin();
    std::advance(at, rng_() % model_.size());
    name_ = at->first;
    const Result<Collection> c = s_->collection(name_, {.create_if_missing = false});
    EXPECT_TRUE(c);
    return *c;
  }

  void make() {
    const std::string name = "c" + std::to_string(rng_() % 6);
    const Result<Collection> c = s_->collection(name);
    if (!c) {
      ASSERT_EQ(c.error(), Status::full);
      return;
    }
    model_.try_emplace(name);
  }
  void write() {
    Collection c = some();
    if (model_.empty()) return;
    const int from = static_cast<int>(rng_() % 400);
    for (int i = from; i < from + 60; ++i) {
      const std::string value(rng_() % 12'000, static_cast<char>('a' + rng_() % 26));
      const Status s = rng_() % 4 == 0 ? c.erase(key_of(i)) : c.put(key_of(i), value);
      if (s == Status::full) {
        ++full_;
        return;
      }
      const bool erased = model_[name_].erase(key_of(i)) != 0;
      if (s == Status::not_found) {
        ASSERT_FALSE(erased);
        continue;
      }
      ASSERT_EQ(s, Status::ok);
    }
  }
  void run(unsigned steps);
  void step();
  void look(const Moment& m);

  std::mt19937_64 rng_{GetParam()};
  Model model_;
  int full_ = 0;
  std::string name_;
  std::vector<Moment> moments_;
  std::vector<Iterator> walks_;
};

void TreeEndRandomTest::look(const Moment& m) {
  for (const auto& [name, records] : m.model) {
    const Result<Collection> c = s_->collection(name, {.create_if_missing = false});
    if (!c || !model_.contains(name)) continue;
    std::string value;
    for (const auto& [key, old] : records) {
      const Status s = m.at.get({*c, key}, value);
      if (s == Status::expired) return;
      ASSERT_EQ(s, Status::ok);
      ASSERT_EQ(value, old);
    }
  }
}

void TreeEndRandomTest::step() {
  const unsigned what = static_cast<unsigned>(rng_() % 20);
  if (what < 8) return write();
  if (what < 11) return make();
  if (what == 11 && moments_.size() < 4) moments_.push_back({taken(*s_), model_});
  if (what == 12 && !moments_.empty()) {
    moments_.erase(moments_.begin() + static_cast<std::ptrdiff_t>(rng_() % moments_.size()));
  }
  if (what == 13 || what == 14) {
    (void)some();
    if (model_.empty()) return;
    ASSERT_EQ(s_->drop(name_), Status::ok);
    model_.erase(name_);
    // A later collection of that name is another collection.
    for (Moment& m : moments_) m.model.erase(name_);
  }
  if (what == 15 && model_.size() > 1) {
    const std::string from = model_.begin()->first;
    const std::string to = model_.rbegin()->first;
    const Status s = s_->rename(from, to, {.replace = true});
    if (s == Status::full) return;
    ASSERT_EQ(s, Status::ok);
    model_[to] = std::move(model_[from]);
    model_.erase(from);
    for (Moment& m : moments_) {
      m.model.erase(to);
      const auto at = m.model.find(from);
      if (at == m.model.end()) continue;
      m.model[to] = std::move(at->second);
      m.model.erase(from);
    }
  }
  if (what == 16) {
    ASSERT_TRUE(s_->compact());
  }
  if (what == 17 && !moments_.empty() && !model_.empty()) {
    walks_.push_back(moments_.back().at.iterator(some()));
    walks_.back().seek_first();
  }
  if (what == 18 && !walks_.empty()) {
    for (Iterator& it : walks_) {
      for (int i = 0; i < 30 && it.valid(); ++i) it.next();
    }
    if (rng_() % 2 == 0) walks_.clear();
  }
  if (what == 19) {
    if (!moments_.empty()) look(moments_[rng_() % moments_.size()]);
    expect_valid(*s_);
  }
}

TEST_P(TreeEndRandomTest, a_full_pool_with_snapshots_and_drops_stays_whole) {
  made({}, "c0");
  model_["c0"];
  for (int i = 0; (i < 300 || full_ == 0) && !HasFailure(); ++i) step();
  walks_.clear();
  moments_.clear();
  expect_valid(*s_);
  EXPECT_GT(full_, 0);
}

INSTANTIATE_TEST_SUITE_P(seeds, TreeEndRandomTest, testing::Range(1u, 13u));

}  // namespace
}  // namespace tenuto
