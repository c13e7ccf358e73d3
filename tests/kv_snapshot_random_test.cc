// Random operations beside a model of versions: puts, erases, batches, transactions, conditional
// writes and erased ranges, while snapshots are taken and released in any order. Each snapshot is
// compared with a copy of the map from the time it was taken. TENUTO_SEED repeats a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/kv_fixture.h"
#include "support/seed.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using Model = std::map<std::string, std::string>;

struct Mix {
  int keys;
  int operations;
  std::size_t snapshots_max;
};

class KvSnapshotRandomTest : public test::KvFixture, public testing::WithParamInterface<Mix> {
 protected:
  struct Held {
    Snapshot snapshot;
    Model model;
    int time = 0;
  };

  void SetUp() override {
    rng_.seed(test::test_seed());
    options_.pool.size = 64u << 20;
    store_.emplace(opened());
  }

  std::uint64_t below(std::uint64_t n) { return rng_() % n; }
  std::string random_key() {
    const auto n = static_cast<int>(below(static_cast<std::uint64_t>(GetParam().keys)));
    return (n % 5 == 0 ? std::string(80, 'p') : std::string()) + test::key_of(n);
  }
  std::string random_value() {
    return std::string(below(20) == 0 ? below(3000) : below(60),
                       static_cast<char>('a' + below(26)));
  }

  void put(const std::string& key) {
    const std::string value = random_value();
    ASSERT_EQ(store_->put(key, value), Status::ok);
    model_[key] = value;
  }
  void erase(const std::string& key) {
    ASSERT_EQ(store_->erase(key), model_.erase(key) == 1 ? Status::ok : Status::not_found);
  }
  void batch() {
    WriteBatch b;
    for (std::uint64_t n = below(below(8) == 0 ? 300 : 20); n > 0; --n) {
      const std::string key = random_key();
      if (below(2) == 0) {
        b.erase(key);
        model_.erase(key);
      } else {
        model_[key] = random_value();
        b.put(key, model_[key]);
      }
    }
    ASSERT_EQ(store_->write(b), Status::ok);
  }
  void erase_range() {
    auto at = model_.lower_bound(random_key());
    for (std::uint64_t n = below(150); n > 0 && at != model_.end(); --n) {
      ASSERT_EQ(store_->erase(at->first), Status::ok);
      at = model_.erase(at);
    }
  }
  // Commits, rolls back, or gets a conflict. Reads its own writes on the way.
  void transaction() {
    Model mine = model_;
    StoreTransaction tx = store_->begin();
    ASSERT_NO_FATAL_FAILURE(expect_same(tx, mine, random_key()));
    for (std::uint64_t n = below(20); n > 0; --n) {
      const std::string key = random_key();
      if (below(3) == 0) {
        ASSERT_EQ(tx.erase(key), Status::ok);
        mine.erase(key);
      } else {
        mine[key] = random_value();
        ASSERT_EQ(tx.put(key, mine[key]), Status::ok);
      }
      ASSERT_NO_FATAL_FAILURE(expect_same(tx, mine, below(2) == 0 ? key : random_key()));
    }
    Iterator it = tx.iterator();
    ASSERT_NO_FATAL_FAILURE(walk(it, mine, 30));
    switch (below(3)) {
      case 0:
        return tx.rollback();
      case 1: {  // a write from outside to a key that it read
        const std::string key = random_key();
        ASSERT_NO_FATAL_FAILURE(expect_same(tx, mine, key));
        ASSERT_NO_FATAL_FAILURE(put(key));
        const Status s = tx.commit();
        if (s == Status::conflict) return;
        // The transaction read only its own write of that key, or wrote nothing.
        ASSERT_EQ(s, Status::ok);
        return resync();
      }
      default:
        ASSERT_EQ(tx.commit(), Status::ok);
        model_ = mine;
    }
  }
  // Takes the model from the store after an outcome that the model cannot predict. Later snapshots
  // check it.
  void resync() {
    model_.clear();
    Iterator it = store_->iterator();
    for (it.seek_first(); it.valid(); it.next()) model_.emplace(it.key(), it.value());
  }

  template <class Reader>
  void expect_same(Reader& reader, const Model& model, const std::string& key) {
    const Result<std::string> value = reader.get(key);
    const auto at = model.find(key);
    ASSERT_EQ(value.has_value(), at != model.end()) << key << ' ' << status_name(value.error());
    ASSERT_TRUE(!value || *value == at->second) << key;
    ASSERT_EQ(reader.contains(key), at != model.end() ? Status::ok : Status::not_found);
  }
  void walk(Iterator& it, const Model& model, int moves) {
    const std::string from = random_key();
    auto at = model.end();
    if (below(2) == 0) {
      it.seek(from);
      at = model.lower_bound(from);
    } else {
      it.seek_for_prev(from);
      at = model.upper_bound(from);
      at = at == model.begin() ? model.end() : std::prev(at);
    }
    const bool forward = below(2) == 0;
    for (int m = 0; m < moves; ++m) {
      ASSERT_EQ(it.valid(), at != model.end());
      if (at == model.end()) break;
      ASSERT_EQ(it.key(), at->first);
      ASSERT_TRUE(it.value() == at->second) << at->first;
      if ((below(8) == 0) != forward) {
        it.next();
        ++at;
      } else {
        it.prev();
        at = at == model.begin() ? model.end() : std::prev(at);
      }
    }
    ASSERT_EQ(it.status(), Status::ok);
  }
  void expect_all(const Held& h) {
    Iterator it = h.snapshot.iterator();
    auto at = h.model.begin();
    for (it.seek_first(); it.valid(); it.next(), ++at) {
      ASSERT_NE(at, h.model.end()) << it.key();
      ASSERT_EQ(it.key(), at->first);
      ASSERT_TRUE(it.value() == at->second) << at->first;
    }
    ASSERT_EQ(it.status(), Status::ok);
    ASSERT_EQ(at, h.model.end());
    for (it.seek_last(); it.valid(); it.prev()) ASSERT_EQ(it.key(), (--at)->first);
    ASSERT_EQ(at, h.model.begin());
  }

  void step() {
    const std::uint64_t dice = below(100);
    if (dice < 35) return put(random_key());
    if (dice < 60) return erase(random_key());
    if (dice < 66) return batch();
    if (dice < 68) return erase_range();
    if (dice < 74) return transaction();
    if (dice < 78 && held_.size() < GetParam().snapshots_max) {
      Result<Snapshot> s = store_->snapshot();
      ASSERT_TRUE(s);
      held_.push_back({std::move(*s), model_, 0});
      return;
    }
    if (held_.empty()) return;
    const std::size_t i = below(held_.size());
    if (dice < 80) {
      ASSERT_NO_FATAL_FAILURE(expect_all(held_[i]));
      std::swap(held_[i], held_.back());
      held_.pop_back();
      return;
    }
    if (dice < 82) return expect_all(held_[i]);
    if (dice < 88) {
      Iterator it = held_[i].snapshot.iterator();
      return walk(it, held_[i].model, 60);
    }
    expect_same(held_[i].snapshot, held_[i].model, random_key());
  }

  // The value of a key between two of its changes needs a version if a snapshot was taken between
  // them.
  std::uint64_t versions_needed() const {
    std::uint64_t n = 0;
    for (const auto& [key, changes] : changes_) {
      for (std::size_t i = 0; i < changes.size(); ++i) {
        const int birth = i == 0 ? -1 : changes[i - 1];
        const int death = changes[i];
        n += std::any_of(held_.begin(), held_.end(),
                         [&](const Held& h) { return birth < h.time && h.time <= death; });
      }
    }
    return n;
  }

  std::mt19937_64 rng_;
  std::optional<Store> store_;
  Model model_;
  std::vector<Held> held_;
  std::map<std::string, std::vector<int>> changes_;  // when each key changed
};

TEST_P(KvSnapshotRandomTest, every_snapshot_stays_what_it_was) {
  for (int i = 0; i < GetParam().operations; ++i) {
    ASSERT_NO_FATAL_FAILURE(step()) << "step " << i;
    if (i % 500 == 0) {
      expect_valid(*store_);
      for (const Held& h : held_) ASSERT_NO_FATAL_FAILURE(expect_all(h)) << "step " << i;
    }
  }
  while (!held_.empty()) {
    ASSERT_NO_FATAL_FAILURE(expect_all(held_.back()));
    const std::size_t i = below(held_.size());
    std::swap(held_[i], held_.back());
    held_.pop_back();
  }
  const StoreStats stats = store_->stats();
  EXPECT_EQ(stats.snapshot_versions, 0u);
  EXPECT_EQ(stats.snapshot_bytes, 0u);
  EXPECT_EQ(stats.snapshots, 0u);
  EXPECT_EQ(stats.records, model_.size());
  expect_valid(*store_);
  const Held now{*store_->snapshot(), model_, 0};
  expect_all(now);
}

TEST_P(KvSnapshotRandomTest, no_more_versions_are_kept_than_are_needed) {
  for (int i = 0; i < GetParam().operations / 4; ++i) {
    const std::string key = random_key();
    changes_[key].push_back(i);
    if (below(3) == 0 && model_.contains(key)) {
      ASSERT_NO_FATAL_FAILURE(erase(key));
    } else {
      ASSERT_NO_FATAL_FAILURE(put(key));
    }
    if (i % 40 == 0 && held_.size() < GetParam().snapshots_max) {
      held_.push_back({*store_->snapshot(), model_, i + 1});
    }
    if (i % 60 == 0 && !held_.empty()) {
      std::swap(held_[below(held_.size())], held_.back());
      held_.pop_back();
    }
    // There may be fewer, where a key came and went between two snapshots.
    if (i % 50 != 0) continue;
    ASSERT_LE(store_->stats().snapshot_versions, versions_needed()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Mixes, KvSnapshotRandomTest,
                         testing::Values(Mix{60, 4000, 4}, Mix{400, 6000, 10}, Mix{4000, 8000, 6}),
                         [](const testing::TestParamInfo<Mix>& i) {
                           return "keys_" + std::to_string(i.param.keys);
                         });

}  // namespace
}  // namespace tenuto
