// The lookup cache (store/tree/lookup_cache.h): its table alone, and a store whose gets use it
// beside everything that changes, moves or drops records.
#include "store/tree/lookup_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/iterator.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

using store::KeyHash;
using store::LookupBudget;
using store::LookupCache;

KeyHash hash_of(int n) { return store::hash_key(key_of(n)); }
PoolOffset record_of(int n) { return {static_cast<std::uint64_t>(n + 1) * 64}; }

class LookupTableTest : public testing::Test {
 protected:
  LookupTableTest() { budget_.set_limit(64 << 20); }
  static bool knows(const LookupCache& cache, int n) {
    return cache.names(hash_of(n), record_of(n));
  }
  static void enter(const LookupCache& cache, int n) {
    cache.enter(cache.look(hash_of(n)), record_of(n));
  }

  LookupBudget budget_;
};

TEST_F(LookupTableTest, knows_what_was_entered_until_it_changes) {
  LookupCache cache(budget_);
  EXPECT_FALSE(knows(cache, 1));
  enter(cache, 1);  // there is no table yet
  EXPECT_TRUE(cache.wants_to_grow());
  cache.grow(100);
  enter(cache, 1);
  enter(cache, 2);
  EXPECT_TRUE(knows(cache, 1));
  cache.forget(hash_of(1));
  EXPECT_FALSE(knows(cache, 1));
  EXPECT_TRUE(knows(cache, 2));
  {
    LookupCache::Change change(cache, hash_of(2));
    EXPECT_FALSE(knows(cache, 2));
    change.becomes(record_of(7));
    EXPECT_FALSE(cache.names(hash_of(2), record_of(7)));
  }
  EXPECT_TRUE(cache.names(hash_of(2), record_of(7)));
  EXPECT_FALSE(knows(cache, 2));
}

// A reader finds a record, a writer replaces it, and the reader enters what it found.
TEST_F(LookupTableTest, what_was_replaced_since_the_look_does_not_enter) {
  LookupCache cache(budget_);
  cache.grow(100);
  const LookupCache::Look before = cache.look(hash_of(1));
  cache.forget(hash_of(1));  // though the key has no entry
  cache.enter(before, record_of(1));
  EXPECT_FALSE(knows(cache, 1));
  {
    const LookupCache::Change change(cache, hash_of(1));
    const LookupCache::Look during = cache.look(hash_of(1));
    cache.enter(during, record_of(1));
  }
  EXPECT_FALSE(knows(cache, 1));
}

TEST_F(LookupTableTest, grows_with_what_is_read_and_not_beyond_the_budget) {
  constexpr int kKeys = 100'000;
  budget_.set_limit(1 << 20);
  LookupCache cache(budget_);
  cache.grow(1);
  const std::uint64_t least = cache.bytes();
  std::uint64_t growths = 0;
  for (int round = 0; round < 20; ++round) {
    for (int n = 0; n < kKeys; ++n) {
      if (!knows(cache, n)) enter(cache, n);
      if (!cache.wants_to_grow()) continue;
      const std::uint64_t before = cache.bytes();
      cache.grow(kKeys);
      growths += cache.bytes() != before ? 1 : 0;
      ASSERT_GE(cache.bytes(), before);
    }
  }
  EXPECT_GE(growths, 1u);
  EXPECT_GT(cache.bytes(), least);
  EXPECT_LE(cache.bytes(), 1u << 20);
  LookupCache other(budget_);
  other.grow(kKeys);
  EXPECT_LE(cache.bytes() + other.bytes(), 1u << 20);
}

// A writer that holds a bucket of a table that is replaced meanwhile must not stop others.
TEST_F(LookupTableTest, a_change_outlives_its_table) {
  LookupCache cache(budget_);
  cache.grow(1);
  LookupCache::Change change(cache, hash_of(1));
  const LookupCache::Look old = cache.look(hash_of(2));
  cache.grow(1000);
  change.becomes(record_of(1));
  change.end();
  cache.enter(old, record_of(2));
  EXPECT_FALSE(knows(cache, 1));
  EXPECT_FALSE(knows(cache, 2));
  cache.forget(hash_of(1));
}

// A growth gives the old table's pages back, so its versions begin anew. A reader that has found a
// record before it was replaced then sees the version that it remembers.
TEST_F(LookupTableTest, what_was_replaced_does_not_enter_a_table_that_is_gone) {
  LookupCache cache(budget_);
  cache.grow(1);
  const LookupCache::Look before = cache.look(hash_of(1));
  cache.forget(hash_of(1));
  LookupCache::Look late = cache.look(hash_of(1));
  cache.grow(1000);
  cache.enter(before, record_of(1));
  EXPECT_FALSE(late.next());
}

TEST_F(LookupTableTest, a_tree_that_ends_gives_its_share_back) {
  std::uint64_t alone = 0;
  {
    LookupCache cache(budget_);
    cache.grow(1u << 30);
    alone = cache.bytes();
    EXPECT_EQ(alone, 32u << 20);
    LookupCache next(budget_);
    next.grow(1u << 30);
    EXPECT_EQ(next.bytes(), 16u << 20);  // each leaves half of the rest to others
  }
  LookupCache cache(budget_);
  cache.grow(1u << 30);
  EXPECT_EQ(cache.bytes(), alone);
}

// --- in a store ----------------------------------------------------------------------------------

class LookupCacheTest : public KvFixture {
 protected:
  using Model = std::map<std::string, std::string>;

  // Every key through every call that may use the cache.
  static void expect_all(Store& s, const Model& model, int keys) {
    std::vector<std::string> names;
    for (int n = 0; n < keys; ++n) names.push_back(key_of(n));
    const std::vector<std::string_view> views(names.begin(), names.end());
    std::string value;
    for (const std::string& name : names) {
      const auto at = model.find(name);
      const Status there = at == model.end() ? Status::not_found : Status::ok;
      ASSERT_EQ(s.get(name, value), there) << name;
      if (there == Status::ok) {
        ASSERT_EQ(value, at->second) << name;
      }
      ASSERT_EQ(s.contains(name), there) << name;
      const Result<View> view = s.view(name);
      ASSERT_EQ(view ? Status::ok : view.error(), there) << name;
      if (view) {
        ASSERT_EQ(view->value(), at->second) << name;
      }
    }
    const auto all = s.multi_get(views);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto at = model.find(names[i]);
      ASSERT_EQ(all[i] ? Status::ok : all[i].error(),
                at == model.end() ? Status::not_found : Status::ok);
      if (all[i]) {
        ASSERT_EQ(*all[i], at->second) << names[i];
      }
    }
  }
};

TEST_F(LookupCacheTest, gets_follow_every_kind_of_change) {
  constexpr int kKeys = 700;
  for (const std::uint64_t bytes : {std::uint64_t{4096}, std::uint64_t{1} << 20}) {
    options_.lookup_cache_bytes = bytes;
    TempPath path("lookup");
    Result<Store> made = Store::open(path.str(), options_, &report_);
    ASSERT_TRUE(made) << report_.text();
    Store& s = *made;
    Model model;
    std::mt19937_64 rng(5);
    const auto put = [&](int n) {
      model[key_of(n)] = std::string(rng() % 200, static_cast<char>('a' + rng() % 26));
      ASSERT_EQ(s.put(key_of(n), model[key_of(n)]), Status::ok);
    };
    for (int n = 0; n < kKeys; ++n) put(n);
    expect_all(s, model, kKeys + 1);
    EXPECT_GT(s.stats().lookup_cache_bytes, 0u);
    EXPECT_LE(s.stats().lookup_cache_bytes, bytes);
    for (int n = 0; n < kKeys; n += 3) put(n);
    for (int n = 1; n < kKeys; n += 5) {
      model.erase(key_of(n));
      ASSERT_NE(s.erase(key_of(n)), Status::corrupt);
    }
    expect_all(s, model, kKeys + 1);
    WriteBatch batch;
    for (int n = 0; n < kKeys; n += 7) {
      model[key_of(n)] = "of a batch " + std::to_string(n);
      batch.put(key_of(n), model[key_of(n)]);
      batch.erase(key_of(n + 1));
      model.erase(key_of(n + 1));
    }
    ASSERT_EQ(s.write(batch), Status::ok);
    expect_all(s, model, kKeys + 1);
    StoreTransaction tx = s.begin();
    for (int n = 3; n < kKeys; n += 11) {
      model[key_of(n)] = "of a transaction";
      ASSERT_EQ(tx.put(key_of(n), model[key_of(n)]), Status::ok);
    }
    expect_all(s, {}, 0);
    ASSERT_EQ(tx.commit(), Status::ok);
    expect_all(s, model, kKeys + 1);
    for (int n = 0; n < kKeys; n += 2) {
      ASSERT_EQ(s.merge(key_of(n),
                        [&](std::optional<std::string_view> old) -> std::optional<std::string> {
                          if (!old) return std::nullopt;
                          return model[key_of(n)] = std::string(*old) + "!";
                        }),
                Status::ok);
    }
    expect_all(s, model, kKeys + 1);
    const std::string from = key_of(100);
    const std::string to = key_of(200);
    ASSERT_TRUE(s.erase_range(from, to));
    model.erase(model.lower_bound(from), model.lower_bound(to));
    expect_all(s, model, kKeys + 1);
    expect_valid(s);
  }
}

// Records that a compaction moves: their old blocks are used again at once.
TEST_F(LookupCacheTest, a_compaction_moves_records_under_the_cache) {
  constexpr int kKeys = 6000;
  Store s = opened();
  Model model;
  for (int n = 0; n < kKeys; ++n) {
    model[key_of(n)] = std::string(100, static_cast<char>('a' + n % 26));
    ASSERT_EQ(s.put(key_of(n), model[key_of(n)]), Status::ok);
  }
  for (int n = 0; n < kKeys; ++n) {
    if (n % 4 == 0) continue;
    ASSERT_EQ(s.erase(key_of(n)), Status::ok);
    model.erase(key_of(n));
  }
  expect_all(s, model, kKeys);
  const Result<CompactStats> done = s.compact({});
  ASSERT_TRUE(done);
  EXPECT_GT(done->records_moved, 100u);
  for (int n = kKeys; n < 2 * kKeys; ++n) {  // takes the blocks that became free
    model[key_of(n)] = std::string(100, 'x');
    ASSERT_EQ(s.put(key_of(n), model[key_of(n)]), Status::ok);
  }
  expect_all(s, model, 2 * kKeys);
}

// One page of buckets for many keys: entries of other keys with the same tag.
TEST_F(LookupCacheTest, other_keys_with_the_same_tag_are_a_miss) {
  constexpr int kKeys = 60'000;
  options_.lookup_cache_bytes = 4096;
  options_.pool.size = 64u << 20;
  Store s = opened();
  for (int n = 0; n < kKeys; ++n) ASSERT_EQ(s.put(key_of(n), key_of(n)), Status::ok);
  std::string value;
  for (int round = 0; round < 4; ++round) {
    for (int n = 0; n < kKeys; ++n) {
      ASSERT_EQ(s.get(key_of(n), value), Status::ok);
      ASSERT_EQ(value, key_of(n));
    }
  }
}

TEST_F(LookupCacheTest, is_off_without_bytes_and_a_tree_ends_with_its_collection) {
  options_.lookup_cache_bytes = 0;
  {
    Store s = opened();
    ASSERT_EQ(s.put("a", "1"), Status::ok);
    std::string value;
    for (int i = 0; i < 10; ++i) ASSERT_EQ(s.get("a", value), Status::ok);
    EXPECT_EQ(s.stats().lookup_cache_bytes, 0u);
  }
  options_.lookup_cache_bytes = 2 * 4096;  // of the catalog and one collection
  Store s = opened();
  std::string value;
  for (int round = 0; round < 20; ++round) {
    Result<Collection> c = s.collection("c", {.create_if_missing = true});
    ASSERT_TRUE(c);
    ASSERT_EQ(c->get("k", value), Status::not_found) << round;
    ASSERT_EQ(c->put("k", std::to_string(round)), Status::ok);
    ASSERT_EQ(c->get("k", value), Status::ok);
    ASSERT_EQ(c->get("k", value), Status::ok);
    EXPECT_EQ(value, std::to_string(round));
    EXPECT_EQ(c->stats().lookup_cache_bytes, 4096u) << round;
    ASSERT_EQ(s.drop("c"), Status::ok);
    ASSERT_EQ(c->get("k", value), Status::not_found);
  }
}

// --- beside other threads ------------------------------------------------------------------------

// Writers raise numbers; readers must see nothing go back.
class LookupRaceTest : public LookupCacheTest {
 protected:
  static constexpr int kRounds = 20'000;

  static int number(Store& s, const std::string& key) {
    std::string value;
    EXPECT_EQ(s.get(key, value), Status::ok);
    return std::stoi(value);
  }
  // Runs `write(n)` for n = 1.. in one thread and `look` in this one, until the writer has ended.
  template <class Write, class Look>
  static void race(const Write& write, const Look& look) {
    std::atomic<bool> done{false};
    std::thread writer([&] {
      for (int n = 1; n <= kRounds && !testing::Test::HasFailure(); ++n) write(n);
      done = true;
    });
    int looks = 0;
    while ((!done || looks < 100) && !testing::Test::HasFailure()) {
      look();
      looks += 1;
    }
    writer.join();
  }
  // Far apart, so that they are in different leaves.
  Store two_keys() {
    Store s = opened();
    for (int n = 0; n < 500; ++n) EXPECT_EQ(s.put(key_of(n), "0"), Status::ok);
    return s;
  }
  const std::string a_ = key_of(0);
  const std::string b_ = key_of(499);
};

TEST_F(LookupRaceTest, a_get_never_sees_an_older_record_than_the_one_before) {
  Store s = two_keys();
  std::atomic<int> written{0};
  race(
      [&](int n) {
        ASSERT_EQ(s.put(a_, std::to_string(n)), Status::ok);
        written = n;
      },
      [&] {
        const int least = written;
        ASSERT_GE(number(s, a_), least);
      });
}

TEST_F(LookupRaceTest, the_keys_of_a_batch_change_together) {
  Store s = two_keys();
  race(
      [&](int n) {
        WriteBatch batch;
        batch.put(a_, std::to_string(n));
        batch.put(b_, std::to_string(n));
        ASSERT_EQ(s.write(batch), Status::ok);
      },
      [&] {
        const int a = number(s, a_);
        ASSERT_GE(number(s, b_), a);
        const int b = number(s, b_);
        ASSERT_GE(number(s, a_), b);
      });
}

// What a get sees after a snapshot was taken is not older than what the snapshot sees.
TEST_F(LookupRaceTest, a_get_is_not_older_than_a_snapshot_before_it) {
  Store s = two_keys();
  race([&](int n) { ASSERT_EQ(s.put(a_, std::to_string(n)), Status::ok); },
       [&] {
         const Result<Snapshot> snapshot = s.snapshot();
         ASSERT_TRUE(snapshot);
         const int now = number(s, a_);
         std::string then;
         ASSERT_EQ(snapshot->get(a_, then), Status::ok);
         ASSERT_GE(now, std::stoi(then));
       });
}

TEST_F(LookupRaceTest, an_erased_key_stays_erased) {
  Store s = two_keys();
  std::atomic<int> gone{0};
  race(
      [&](int n) {
        const std::string key = key_of(1000 + n);
        ASSERT_EQ(s.put(key, key), Status::ok);
        std::string value;
        ASSERT_EQ(s.get(key, value), Status::ok);
        ASSERT_EQ(s.erase(key), Status::ok);
        gone = n;
      },
      [&] {
        const int n = gone;
        std::string value;
        if (n != 0) {
          ASSERT_EQ(s.get(key_of(1000 + n), value), Status::not_found);
        }
      });
}

}  // namespace
}  // namespace tenuto::test
