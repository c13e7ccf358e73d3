// Cursors: every seek, bounds and prefixes, changes of direction, and writes under the cursor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/kv.h"

namespace tenuto {
namespace {

using test::key_of;
using test::Keys;

class KvIteratorTest : public test::KvFixture {};

TEST_F(KvIteratorTest, iterator_of_an_empty_store_finds_nothing) {
  Store s = opened();
  Iterator it = s.iterator();
  EXPECT_FALSE(it.valid());
  it.seek_first();
  EXPECT_FALSE(it.valid());
  it.seek_last();
  EXPECT_FALSE(it.valid());
  it.seek("x");
  EXPECT_FALSE(it.valid());
  it.seek_for_prev("x");
  EXPECT_FALSE(it.valid());
  EXPECT_EQ(it.status(), Status::ok);
  ASSERT_EQ(s.put("", "v"), Status::ok);
  it.seek_last();
  ASSERT_TRUE(it.valid());
  EXPECT_EQ(it.key(), "");
  it.prev();
  EXPECT_FALSE(it.valid());
}

TEST_F(KvIteratorTest, every_seek_lands_where_lower_bound_does) {
  Store s = opened();
  constexpr int kCount = 1000;  // even numbers: odd ones are between them
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(s.put(key_of(2 * i), std::to_string(i)), Status::ok);
  Iterator it = s.iterator();
  for (int n = 0; n <= 2 * kCount; ++n) {
    it.seek(key_of(n));
    ASSERT_EQ(it.valid(), n <= 2 * kCount - 2) << n;
    if (it.valid()) {
      ASSERT_EQ(it.key(), key_of(n + n % 2));
    }
    it.seek_for_prev(key_of(n));
    ASSERT_TRUE(it.valid());
    ASSERT_EQ(it.key(), key_of(std::min(n - n % 2, 2 * kCount - 2)));
    it.prev();
    if (n < 2) {
      ASSERT_FALSE(it.valid());
      continue;
    }
    ASSERT_TRUE(it.valid());
    it.next();
    ASSERT_EQ(it.key(), key_of(std::min(n - n % 2, 2 * kCount - 2)));
  }
  it.seek_for_prev("a");
  EXPECT_FALSE(it.valid());
  it.seek(std::string("k"));
  ASSERT_TRUE(it.valid());
  it.seek(it.key());  // the target may be the cursor's own key
  EXPECT_EQ(it.key(), key_of(0));
}

TEST_F(KvIteratorTest, iterator_walks_across_leaves_both_ways_and_turns_anywhere) {
  Store s = opened();
  for (int i = 0; i < 500; ++i) ASSERT_EQ(s.put(key_of(i), "v"), Status::ok);
  ASSERT_GT(s.stats().leaves, 8u);
  Iterator it = s.iterator();
  for (int turn = 0; turn < 499; ++turn) {
    it.seek(key_of(turn));
    it.next();
    ASSERT_EQ(it.key(), key_of(turn + 1));
    it.prev();
    ASSERT_EQ(it.key(), key_of(turn));
    it.next();
    ASSERT_EQ(it.key(), key_of(turn + 1));
  }
  int n = 499;
  for (it.seek_last(); it.valid(); it.prev()) ASSERT_EQ(it.key(), key_of(n--));
  EXPECT_EQ(n, -1);
}

TEST_F(KvIteratorTest, bounds_are_inclusive_below_and_exclusive_above) {
  Store s = opened();
  for (int i = 0; i < 300; ++i) ASSERT_EQ(s.put(key_of(i), "v"), Status::ok);
  IteratorOptions o;
  o.lower = key_of(100);
  o.upper = key_of(200);
  Iterator it = s.iterator(o);
  it.seek_first();
  Keys seen = keys(it);
  ASSERT_EQ(seen.size(), 100u);
  EXPECT_EQ(seen.front(), key_of(100));
  EXPECT_EQ(seen.back(), key_of(199));
  it.seek_last();
  ASSERT_TRUE(it.valid());
  EXPECT_EQ(it.key(), key_of(199));
  it.next();
  EXPECT_FALSE(it.valid());
  it.seek(key_of(5));
  ASSERT_TRUE(it.valid());
  EXPECT_EQ(it.key(), key_of(100));
  it.prev();
  EXPECT_FALSE(it.valid());
  it.seek(key_of(200));
  EXPECT_FALSE(it.valid());
  it.seek_for_prev(key_of(99));
  EXPECT_FALSE(it.valid());
  it.seek_for_prev(key_of(250));
  ASSERT_TRUE(it.valid());
  EXPECT_EQ(it.key(), key_of(199));

  for (const auto& [lower, upper] : std::vector<std::pair<int, int>>{{200, 100}, {100, 100}}) {
    IteratorOptions none;
    none.lower = key_of(lower);
    none.upper = key_of(upper);
    Iterator empty = s.iterator(none);
    empty.seek_first();
    EXPECT_FALSE(empty.valid());
    empty.seek_last();
    EXPECT_FALSE(empty.valid());
    empty.seek(key_of(150));
    EXPECT_FALSE(empty.valid());
    empty.seek_for_prev(key_of(150));
    EXPECT_FALSE(empty.valid());
  }
  IteratorOptions below_all;
  below_all.upper = "";
  Iterator empty = s.iterator(below_all);
  empty.seek_first();
  EXPECT_FALSE(empty.valid());
  empty.seek_last();
  EXPECT_FALSE(empty.valid());
}

TEST_F(KvIteratorTest, prefix_shows_what_starts_with_it_even_of_0xff) {
  Store s = opened();
  const std::string ff(1, '\xff');
  const Keys all = {"",   "a", "ab", "ab\xff", "ab\xff\xff",  "abc",
                    "ac", "b", ff,   ff + ff,  ff + ff + "x", ff + ff + ff};
  for (const std::string& k : all) ASSERT_EQ(s.put(k, "v"), Status::ok);
  for (const std::string& prefix : Keys{"", "a", "ab", "ab\xff", "abc", "b", "c", ff, ff + ff,
                                        ff + ff + ff, ff + ff + ff + ff}) {
    Keys expected;
    for (const std::string& k : all) {
      if (k.compare(0, prefix.size(), prefix) == 0) expected.push_back(k);
    }
    std::sort(expected.begin(), expected.end());
    Iterator it = s.iterator({prefix, {}, {}});
    it.seek_first();
    EXPECT_EQ(keys(it), expected) << prefix;
    Keys backward;
    for (it.seek_last(); it.valid(); it.prev()) backward.emplace_back(it.key());
    std::reverse(backward.begin(), backward.end());
    EXPECT_EQ(backward, expected) << prefix;
  }
  Iterator it = s.iterator({"a", "ab", "abc"});
  it.seek_first();
  EXPECT_EQ(keys(it), (Keys{"ab"}));  // "abc" < "ab\xff"
}

// A leaf remembers the order of its keys from a walk. Every kind of write comes between two walks,
// also an erase and an insert that reuse a slot.
TEST_F(KvIteratorTest, every_walk_is_in_order_whatever_was_written_since_the_last_one) {
  Store s = opened();
  std::map<std::string, std::string> model;
  std::mt19937_64 rng(20261121);
  for (int step = 0; step < 3000; ++step) {
    const std::string key = key_of(static_cast<int>(rng() % 150));
    const std::string value = std::to_string(step);
    if (rng() % 3 == 0) {
      ASSERT_EQ(s.erase(key), model.erase(key) != 0 ? Status::ok : Status::not_found);
    } else {
      ASSERT_EQ(s.put(key, value), Status::ok);
      model[key] = value;
    }
    Iterator it = s.iterator();
    auto expected = model.lower_bound(key);
    it.seek(key);
    for (int n = 0; n < 60; ++n, ++expected, it.next()) {
      ASSERT_EQ(it.valid(), expected != model.end()) << "step " << step;
      if (!it.valid()) break;
      ASSERT_EQ(it.key(), expected->first) << "step " << step;
      ASSERT_EQ(it.value(), expected->second) << "step " << step;
    }
    if (step % 8 != 0) continue;
    auto last = model.rbegin();
    for (it.seek_last(); it.valid(); it.prev(), ++last) ASSERT_EQ(it.key(), last->first);
    ASSERT_TRUE(last == model.rend());
  }
}

TEST_F(KvIteratorTest, erasing_under_the_cursor_skips_nothing) {
  Store s = opened();
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(s.put(key_of(i), "v"), Status::ok);
  Iterator it = s.iterator();
  int n = 0;
  for (it.seek_first(); it.valid(); it.next()) {
    ASSERT_EQ(it.key(), key_of(n));
    ASSERT_EQ(s.erase(it.key()), Status::ok);
    ASSERT_EQ(it.key(), key_of(n++));  // the erased record stays under the cursor
  }
  EXPECT_EQ(n, 2000);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(s.put(key_of(i), "v"), Status::ok);
  for (it.seek_last(); it.valid(); it.prev()) {
    ASSERT_EQ(it.key(), key_of(--n));
    ASSERT_EQ(s.erase(it.key()), Status::ok);
  }
  EXPECT_EQ(n, 0);
  EXPECT_EQ(s.stats().records, 0u);
  EXPECT_LE(s.stats().leaves, 2u);
  it.seek_first();
  EXPECT_FALSE(it.valid());
  expect_valid(s);
}

TEST_F(KvIteratorTest, the_leaf_at_hand_is_one_moment_and_what_lies_behind_it_is_new) {
  Store s = opened();
  for (int i = 0; i < 400; ++i) ASSERT_EQ(s.put(key_of(2 * i), "v"), Status::ok);
  Iterator it = s.iterator();
  it.seek_first();
  // All leaves are split under the cursor. All even keys must still come, in order.
  for (int i = 0; i < 400; ++i) ASSERT_EQ(s.put(key_of(2 * i + 1), "v"), Status::ok);
  std::string last;
  int even = 0;
  for (; it.valid(); it.next()) {
    ASSERT_TRUE(even == 0 || last < it.key());
    last = it.key();
    if (last == key_of(2 * even)) ++even;
  }
  EXPECT_EQ(even, 400);
  Iterator moved = std::move(it);
  moved.seek(key_of(13));
  EXPECT_EQ(moved.key(), key_of(13));
}

// The leaf behind the cursor's was not made yet when the cursor came, and is gone now: its page was
// given back. A prefetch that read it would fill the page again.
TEST_F(KvIteratorTest, a_step_reads_no_leaf_that_was_freed_meanwhile) {
  const int n = 20000;
  {
    Store s = opened();
    for (int i = n - 1; i >= 0; --i) ASSERT_EQ(s.put(key_of(i), "v"), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  Store s = opened();
  ASSERT_EQ(s.erase(key_of(n - 1)), Status::ok);  // the thread has an epoch slot to pin
  Iterator it = s.iterator();
  it.seek_first();
  for (int i = 1; i < n - 1; ++i) ASSERT_EQ(s.erase(key_of(i)), Status::ok);
  ASSERT_EQ(s.pool().trim(), Status::ok);
  const std::uint64_t before = disk_bytes();
  int steps = 0;
  for (; it.valid(); it.next()) steps += 1;
  EXPECT_GT(steps, 16);  // to the end of its leaf
  EXPECT_EQ(disk_bytes(), before);
}

}  // namespace
}  // namespace tenuto
