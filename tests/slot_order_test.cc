// The order of a leaf's slots. Every change of a leaf keeps it or loses it; a wrong one shows in
// validate, which compares it with the keys, and in a walk.
#include "store/tree/slot_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "store/tree/leaf_reader.h"
#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"

namespace tenuto {
namespace {

using test::key_of;
using test::Keys;
using Rng = std::mt19937_64;

// Few different bytes, so that keys share heads, and differ in trailing zeros.
std::string tricky(Rng& rng, std::size_t bytes_max) {
  static constexpr char kBytes[] = {'\0', '\x01', 'a', '\x7f', '\x80', '\xff'};
  std::string s;
  for (std::size_t n = rng() % (bytes_max + 1); n > 0; --n) s += kBytes[rng() % sizeof kBytes];
  return s;
}

TEST(SlotHeadTest, heads_sort_as_the_four_bytes_behind_the_prefix) {
  Rng rng(1);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t prefix = rng() % 4;
    const std::string start = tricky(rng, 3);
    store::SlotHeads heads;
    std::vector<std::string> keys;
    const auto head_of = [&](const std::string& key) { return store::slot_head(key, prefix); };
    const auto four = [&](const std::string& key) {
      std::string rest = key.substr(std::min(prefix, key.size()), 4);
      rest.resize(4);
      return rest;
    };
    for (store::SlotHead& head : heads.of) {
      keys.push_back(start + tricky(rng, 7));
      head = head_of(keys.back());
    }
    const std::string key = start + tricky(rng, 7);
    const store::ComparedHeads compared = store::compare_heads(heads, head_of(key));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(compared.lower >> i & 1, four(keys[i]) < four(key) ? 1u : 0u);
      ASSERT_EQ(compared.equal >> i & 1, four(keys[i]) == four(key) ? 1u : 0u);
    }
  }
}

TEST(SlotHeadTest, all_keys_between_two_share_what_those_share) {
  Rng rng(2);
  int with_prefix = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string start = tricky(rng, 4);
    std::string low = start + tricky(rng, 3);
    std::string end = start + tricky(rng, 3);
    if (end < low) std::swap(low, end);
    const store::KeyRange range{low, end};
    const std::string key = start + tricky(rng, 5);
    if (!range.has(key)) continue;
    const std::size_t prefix = range.prefix();
    with_prefix += prefix > 0;
    ASSERT_GE(key.size(), prefix);
    ASSERT_EQ(key.substr(0, prefix), low.substr(0, prefix));
  }
  EXPECT_GT(with_prefix, 1000);
}

struct SlotOrderTest : test::KvFixture {
  void expect_keys(const Store& s, const std::set<std::string>& expected) {
    expect_valid(s);
    Iterator it = s.iterator();
    it.seek_first();
    ASSERT_EQ(keys(it), Keys(expected.begin(), expected.end()));
  }
};

// One leaf, whose keys have the same head.
TEST_F(SlotOrderTest, an_insert_takes_its_place) {
  for (const int step : {1, 5, 17, 31, 47}) {
    std::remove(path_.str().c_str());
    Store s = opened();
    std::set<std::string> expected;
    for (int i = 0; i < 48; ++i) {
      const std::string key = key_of(i * step % 48);
      ASSERT_EQ(s.put(key, "v"), Status::ok);
      expected.insert(key);
      expect_keys(s, expected);
    }
    ASSERT_EQ(s.stats().leaves, 1u);
  }
}

TEST_F(SlotOrderTest, a_slot_that_is_used_again_has_the_place_of_its_new_key) {
  Store s = opened();
  constexpr int kCount = 48;
  std::set<std::string> expected;
  for (int i = 0; i < kCount; ++i) {
    expected.insert(key_of(10 * i));
    ASSERT_EQ(s.put(key_of(10 * i), "v"), Status::ok);
  }
  for (int round = 0; round < 40; ++round) {
    const auto gone = std::next(expected.begin(), round * 7 % kCount);
    const std::string key = key_of(10 * (round * 29 % kCount) + 1 + round % 9);
    ASSERT_EQ(s.erase(*gone), Status::ok);
    expected.erase(gone);
    expect_keys(s, expected);
    ASSERT_EQ(s.put(key, "v"), Status::ok);
    expected.insert(key);
    expect_keys(s, expected);
  }
  ASSERT_EQ(s.stats().leaves, 1u);
}

// The leaf of the keys "left..." had a prefix in common with its neighbour, which is unlinked. The
// keys that come then have not.
TEST_F(SlotOrderTest, a_leaf_whose_neighbour_is_unlinked_takes_keys_without_its_prefix) {
  Store s = opened();
  std::set<std::string> expected;
  const auto put = [&](const std::string& key) {
    ASSERT_EQ(s.put(key, "v"), Status::ok);
    expected.insert(key);
  };
  for (int i = 0; i < 200; ++i) put("left" + key_of(i));
  ASSERT_GE(s.stats().leaves, 4u);
  for (int i = 70; i < 200; ++i) {
    ASSERT_EQ(s.erase("left" + key_of(i)), Status::ok);
    expected.erase("left" + key_of(i));
  }
  ASSERT_LE(s.stats().leaves, 3u);
  for (const char* const key : {"z", "x", "y", "zz", "leg", "lefu", "m"}) {
    put(key);
    expect_keys(s, expected);
  }
}

// A snapshot keeps the versions in the list of an empty leaf, so it is not unlinked. Then a merge
// gives its range to its left neighbour, and moves no key.
TEST_F(SlotOrderTest, a_leaf_that_takes_the_range_of_an_empty_one_takes_keys_without_its_prefix) {
  Store s = opened();
  std::set<std::string> expected;
  for (int i = 0; i < 200; ++i) ASSERT_EQ(s.put("left" + key_of(i), "v"), Status::ok);
  const std::uint64_t leaves = s.stats().leaves;
  ASSERT_GE(leaves, 4u);
  Result<Snapshot> snapshot = s.snapshot();
  ASSERT_TRUE(snapshot);
  for (int i = 0; i < 80; ++i) expected.insert("left" + key_of(i));  // more than a merged leaf has
  for (int i = 80; i < 200; ++i) ASSERT_EQ(s.erase("left" + key_of(i)), Status::ok);
  ASSERT_EQ(s.stats().leaves, leaves);
  const Result<CompactStats> done = s.compact();
  ASSERT_TRUE(done);
  ASSERT_GT(done->leaves_merged, 0u);
  for (const char* const key : {"z", "x", "y", "zz", "leg", "lefu", "m"}) {
    ASSERT_EQ(s.put(key, "v"), Status::ok);
    expected.insert(key);
    expect_keys(s, expected);
  }
}

// Each round's changes: puts and erases of one key, of several at once, and of whole ranges.
void change(Store& s, Rng& rng, std::set<std::string>& expected) {
  const std::string key = tricky(rng, 6);
  switch (rng() % 8) {
    case 0:
    case 1: {
      ASSERT_EQ(s.erase(key), expected.erase(key) != 0 ? Status::ok : Status::not_found);
      break;
    }
    case 2: {
      WriteBatch batch;
      for (int n = 0; n < 20; ++n) {
        const std::string other = tricky(rng, 6);
        if (rng() % 3 == 0) {
          batch.erase(other);
          expected.erase(other);
        } else {
          batch.put(other, "w");
          expected.insert(other);
        }
      }
      ASSERT_EQ(s.write(batch), Status::ok);
      break;
    }
    case 3: {
      if (rng() % 8 != 0) break;
      const auto from = expected.lower_bound(key);
      const auto to = expected.lower_bound(key + '\xff');
      Keys gone(from, to);
      for (const std::string& k : gone) ASSERT_EQ(s.erase(k), Status::ok);
      expected.erase(from, to);
      break;
    }
    default:
      ASSERT_EQ(s.put(key, "v"), Status::ok);
      expected.insert(key);
  }
}

TEST_F(SlotOrderTest, random_changes_keep_the_order) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::remove(path_.str().c_str());
    Rng rng(seed);
    std::set<std::string> expected;
    Store s = opened();
    for (int round = 0; round < 60; ++round) {
      for (int n = 0; n < 40; ++n) ASSERT_NO_FATAL_FAILURE(change(s, rng, expected));
      expect_valid(s);
      if (round % 4 == 0) expect_keys(s, expected);
      if (round % 16 == 7) {
        ASSERT_TRUE(s.compact());
        expect_keys(s, expected);
      }
      if (round % 16 == 15) {
        ASSERT_EQ(s.close(), Status::ok);
        s = opened();
      }
    }
  }
}

TEST_F(SlotOrderTest, a_bulk_load_leaves_an_order) {
  Rng rng(7);
  std::set<std::string> expected;
  while (expected.size() < 1000) expected.insert("a" + tricky(rng, 8));
  std::vector<BulkRecord> records;
  for (const std::string& key : expected) records.push_back({key, "v"});
  Store s = opened();
  ASSERT_EQ(s.bulk_load(records), Status::ok);
  expect_keys(s, expected);
  for (int n = 0; n < 2000; ++n) {
    const std::string key = tricky(rng, 8);
    ASSERT_EQ(s.put(key, "w"), Status::ok);
    expected.insert(key);
    if (n % 20 == 0) expect_valid(s);
  }
  expect_keys(s, expected);
}

// --- over a clean close --------------------------------------------------------------------------

Keys shuffled(Rng& rng, int count) {
  Keys out;
  for (int i = 0; i < count; ++i) out.push_back(key_of(i));
  std::shuffle(out.begin(), out.end(), rng);
  return out;
}

// Who does not know the order reads the keys of the whole leaf.
TEST_F(SlotOrderTest, a_walk_after_a_close_reads_only_what_it_hands_out) {
  for (const bool killed : {false, true}) {
    std::remove(path_.str().c_str());
    Rng rng(8);
    PoolOffset behind{};
    {
      Store s = opened();
      for (const std::string& key : shuffled(rng, 400)) ASSERT_EQ(s.put(key, "v"), Status::ok);
      const Result<View> view = s.view(key_of(15));
      ASSERT_TRUE(view);
      behind = s.pool().offset_of(view->value().data());
      if (killed) {
        const test::Bytes b = test::read_image(path_.str());
        ASSERT_EQ(s.close(), Status::ok);
        test::write_image(path_.str(), b);
      } else {
        ASSERT_EQ(s.close(), Status::ok);
      }
    }
    test::Bytes b = test::read_image(path_.str());
    b[behind.value - 1] ^= 1;  // the end of its key
    test::write_image(path_.str(), b);
    Store s = opened();
    Iterator it = s.iterator();
    int n = 0;
    for (it.seek_first(); it.valid() && n < 10; it.next()) ASSERT_EQ(it.key(), key_of(n++));
    EXPECT_EQ(it.status(), killed ? Status::corrupt : Status::ok);
    EXPECT_EQ(n, killed ? 0 : 10);
    while (it.valid()) it.next();
    EXPECT_EQ(it.status(), Status::corrupt);
  }
}

// Few leaves are come to between two closes. New leaves move the others in their node.
TEST_F(SlotOrderTest, closes_keep_the_orders_of_leaves_that_others_are_split_beside) {
  Rng rng(9);
  std::set<std::string> expected;
  {
    Store s = opened();
    for (const std::string& key : shuffled(rng, 4000)) ASSERT_EQ(s.put(key, "v"), Status::ok);
    for (int i = 0; i < 4000; ++i) expected.insert(key_of(i));
    ASSERT_EQ(s.close(), Status::ok);
  }
  for (int round = 0; round < 12; ++round) {
    Store s = opened();
    ASSERT_EQ(s.stats().shadow_leaves, 0u);
    for (int n = 0; n < 60; ++n) {
      const std::string key = key_of(1500 + round * 100) + std::to_string(rng() % 1000);
      ASSERT_EQ(s.put(key, "v"), Status::ok);
      expected.insert(key);
    }
    ASSERT_LT(s.stats().shadow_leaves, s.stats().leaves / 2);
    if (round % 3 == 2) expect_keys(s, expected);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

// After a kill no order is known. A close keeps that, too.
TEST_F(SlotOrderTest, a_close_keeps_what_is_not_known) {
  Rng rng(10);
  test::Bytes killed;
  std::set<std::string> expected;
  {
    Store s = opened();
    for (const std::string& key : shuffled(rng, 1000)) ASSERT_EQ(s.put(key, "v"), Status::ok);
    for (int i = 0; i < 1000; ++i) expected.insert(key_of(i));
    killed = test::read_image(path_.str());
    ASSERT_EQ(s.close(), Status::ok);
  }
  test::write_image(path_.str(), killed);
  {
    Store s = opened();
    std::string value;
    for (int i = 0; i < 500; ++i) ASSERT_EQ(s.get(key_of(i), value), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  Store s = opened();
  expect_keys(s, expected);
}

}  // namespace
}  // namespace tenuto
