// A map in a pool beside one of the standard library: random transactions of inserts, assignments
// and erases that commit, abort or are killed. After each the two are equal, and exactly the map's
// blocks are allocated.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "support/tx_parts.h"
#include "tenuto/tx.h"

namespace tenuto::test {

template <class Map>
class MapsRandom {
 public:
  // `collected`: with Consistency::gc, and after a kill a collection by the map's references.
  explicit MapsRandom(std::uint64_t seed, bool collected = false)
      : path_("maps" + std::to_string(seed)), rng_(seed) {
    if (collected) {
      options_.consistency = Consistency::gc;
      options_.root_filter = reference_filter<Map>();
    }
    EXPECT_EQ(parts_.create(path_.str(), options_), Status::ok) << parts_.report.text();
    map_ = &parts_.make_root<Map>(0);
  }

  void run(int transactions) {
    for (int i = 0; i < transactions; ++i) {
      // Phases in which it grows, and in which it shrinks.
      if (!phase_ && below(60) == 0) growing_ = below(100) < 55;
      if (!phase_ && below(200) == 0) keys_ = 1 + (below(2) == 0 ? below(40) : below(8000));
      one();
      if (::testing::Test::HasFatalFailure()) return;
      if (i % 16 == 0 || below(20) == 0) compare();
      if (::testing::Test::HasFatalFailure()) return;
      largest = std::max<std::size_t>(largest, model_.size());
    }
    compare();
  }

  // Only grows, or shrinks, with this number of keys. Returns how many there are then.
  std::size_t phase(bool growing, std::uint64_t keys, int transactions) {
    phase_ = true;
    growing_ = growing;
    keys_ = keys;
    run(transactions);
    return model_.size();
  }

  int commits = 0, aborts = 0, kills = 0, clears = 0;
  std::size_t largest = 0;

 private:
  std::uint64_t below(std::uint64_t n) { return rng_() % n; }

  void one() {
    const auto before = model_;
    const std::uint64_t end = below(100);
    tx::Txn& txn = parts_.engine->mine();
    ASSERT_EQ(txn.begin(), Status::ok);
    {
      Transaction tx(txn);  // joins, so that it has left before a kill
      const std::uint64_t operations = 1 + below(below(4) == 0 ? 60 : 6);
      for (std::uint64_t i = 0; i < operations; ++i) {
        operate(tx);
        if (below(20) == 0) go_back(tx);
      }
      ASSERT_EQ(tx.commit(), Status::ok);
    }
    if (end < 85) {
      ASSERT_EQ(txn.commit(), Status::ok);
      commits += 1;
      return;
    }
    model_ = before;
    if (end < 97) {
      txn.abort();
      aborts += 1;
      return;
    }
    static_cast<void>(txn.ready());
    parts_.crash();
    kills += 1;
    ASSERT_EQ(parts_.open(path_.str(), options_), Status::ok) << parts_.report.text();
    map_ = &parts_.get_root<Map>(0);
  }

  // Operations after a savepoint, which are undone.
  void go_back(Transaction& tx) {
    const auto before = model_;
    const Result<Transaction::Savepoint> point = tx.savepoint();
    ASSERT_TRUE(point);
    for (std::uint64_t i = below(8); i > 0; --i) operate(tx);
    ASSERT_EQ(tx.rollback_to(*point), Status::ok);
    model_ = before;
    Report r;
    ASSERT_EQ(map_->validate(&r), Status::ok) << r.text();
  }

  void operate(Transaction& tx) {
    const std::uint64_t key = below(keys_), value = rng_();
    const bool there = model_.contains(key);
    const std::uint64_t what = below(100);
    if (!phase_ && what == 0 && below(60) == 0) {  // a phase is to be long
      ASSERT_EQ(map_->clear(tx), Status::ok);
      model_.clear();
      clears += 1;
    } else if (what < 10) {
      ASSERT_EQ(map_->insert_or_assign(tx, key, value), Status::ok);
      model_[key] = value;
    } else if (what < 15) {
      const auto at = map_->get_or_insert(tx, key);
      ASSERT_TRUE(at);
      ASSERT_EQ(**at, there ? model_[key] : 0);
      model_.try_emplace(key);
    } else if (what < 20) {
      const auto at = map_->edit(tx, key);
      ASSERT_EQ(at.error(), there ? Status::ok : Status::not_found);
      if (at) model_[key] = ** at = value;
    } else if (what < (growing_ ? 80 : 25)) {
      ASSERT_EQ(map_->insert(tx, key, value), there ? Status::exists : Status::ok);
      model_.try_emplace(key, value);
    } else {
      ASSERT_EQ(map_->erase(tx, key), there ? Status::ok : Status::not_found);
      model_.erase(key);
    }
    const auto* const found = map_->get(key);
    const auto at = model_.find(key);
    ASSERT_EQ(found != nullptr, at != model_.end());
    if (found != nullptr) {
      ASSERT_EQ(*found, at->second);
    }
  }

  void compare() {
    Report r;
    ASSERT_EQ(map_->validate(&r), Status::ok) << r.text();
    ASSERT_EQ(map_->size(), model_.size());
    std::size_t n = 0;
    if constexpr (requires { map_->lower_bound(1); }) {
      auto at = model_.begin();
      for (const auto& [key, value] : *map_) {
        ASSERT_EQ(key, at->first);
        ASSERT_EQ(value, (at++)->second);
      }
      auto back = map_->end();
      for (auto from = model_.rbegin(); from != model_.rend(); ++from) {
        ASSERT_EQ((--back)->key, from->first);
      }
      ASSERT_TRUE(back == map_->begin());
      const std::uint64_t key = below(keys_);
      const auto low = map_->lower_bound(key), up = map_->upper_bound(key);
      const auto want_low = model_.lower_bound(key), want_up = model_.upper_bound(key);
      ASSERT_EQ(low == map_->end(), want_low == model_.end());
      ASSERT_EQ(up == map_->end(), want_up == model_.end());
      if (want_low != model_.end()) {
        ASSERT_EQ(low->key, want_low->first);
      }
      if (want_up != model_.end()) {
        ASSERT_EQ(up->key, want_up->first);
      }
    } else {
      for (const auto& [key, value] : *map_) {
        const auto at = model_.find(key);
        ASSERT_NE(at, model_.end());
        ASSERT_EQ(value, at->second);
        n += 1;
      }
      ASSERT_EQ(n, model_.size());
    }
    std::set<std::uint64_t> named = {parts_.file->offset_of(map_).value};
    map_->for_each_block([&](const void* b) { named.insert(parts_.file->offset_of(b).value); });
    const auto allocated = parts_.allocated_blocks();
    for (const PoolOffset b : allocated) {
      ASSERT_TRUE(named.contains(b.value)) << "a block leaked";
    }
    ASSERT_EQ(allocated.size(), named.size());
  }

  TempPath path_;
  PoolOptions options_ = PoolParts::small_options();
  TxParts parts_;
  std::mt19937_64 rng_;
  Map* map_ = nullptr;
  std::map<std::uint64_t, std::uint64_t> model_;
  bool growing_ = true;
  bool phase_ = false;
  std::uint64_t keys_ = 3000;
};

}  // namespace tenuto::test
