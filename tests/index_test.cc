// The index without a pool. Searches of a node are compared with std::upper_bound, for keys that
// test its shortcuts: common prefixes, equal heads, zero and 0xff bytes. Leaves are added and
// removed at random beside a map, whole subtrees vanish at their left edge, and readers run
// meanwhile.
#include "store/tree/index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "store/tree/garbage.h"
#include "store/tree/key_sort.h"

namespace tenuto::store {
namespace {

using Rng = std::mt19937_64;

// Uses few different bytes, so that keys share prefixes and heads, and differ in trailing zeros.
std::string tricky_key(Rng& rng, const std::string& prefix, std::size_t bytes_max) {
  static constexpr char kBytes[] = {'\0', '\x01', 'a', '\x7f', '\x80', '\xff'};
  std::string s = rng() % 8 == 0 ? prefix.substr(0, rng() % (prefix.size() + 1)) : prefix;
  for (std::size_t n = rng() % (bytes_max + 1); n > 0; --n) s += kBytes[rng() % sizeof kBytes];
  return s;
}

NodeShape shape_of(const std::set<std::string>& separators,
                   std::vector<ShadowLeafWithWords>& leaves) {
  NodeShape s;
  s.seps.assign(separators.begin(), separators.end());
  for (std::size_t i = 0; i <= separators.size(); ++i) s.children.push_back(&leaves[i]);
  return s;
}

TEST(IndexTest, copy_with_one_more_child_is_the_node_made_from_its_shape) {
  Rng rng(6);
  std::vector<ShadowLeafWithWords> leaves(kFanout + 1);
  int copied = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string prefix(rng() % 4 == 0 ? rng() % 60 : rng() % 10,
                             round % 7 == 0 ? '\xff' : 'p');
    std::set<std::string> separators;
    const std::size_t wanted = 1 + rng() % (kFanout - 1);
    for (std::size_t i = 0; i < 4 * wanted && separators.size() < wanted; ++i) {
      std::string s = tricky_key(rng, prefix, 12);
      if (!s.empty()) separators.insert(std::move(s));
    }
    if (separators.empty()) continue;
    const NodeShape shape = shape_of(separators, leaves);
    std::string added = tricky_key(rng, prefix, 12);
    if (added.empty() || !separators.insert(added).second) continue;
    Node* node = Node::make(1, shape, 0, shape.children.size());
    const unsigned at = node->find(added);
    Node* copy = node->with_child(at, added, &leaves[kFanout]);
    if (copy != nullptr) {
      ++copied;
      NodeShape wanted_shape = shape;
      wanted_shape.seps.insert(wanted_shape.seps.begin() + at, added);
      wanted_shape.children.insert(wanted_shape.children.begin() + at + 1, &leaves[kFanout]);
      const NodeShape got = copy->shape();
      ASSERT_EQ(got.seps, wanted_shape.seps) << "round " << round;
      ASSERT_EQ(got.children, wanted_shape.children) << "round " << round;
      for (int i = 0; i < 50; ++i) {
        const std::string key = tricky_key(rng, prefix, 12);
        const auto above = std::upper_bound(got.seps.begin(), got.seps.end(), key);
        ASSERT_EQ(copy->find(key), above - got.seps.begin()) << "round " << round;
      }
      Node::destroy(copy);
    } else {
      // The node is full, or the new key does not share its prefix.
      const bool full = shape.children.size() == kFanout;
      const std::size_t shared = common_prefix(shape.seps.front(), shape.seps.back());
      EXPECT_TRUE(full || added.substr(0, shared) != shape.seps.front().substr(0, shared));
    }
    Node::destroy(node);
  }
  EXPECT_GT(copied, 1000);
}

TEST(IndexTest, node_search_agrees_with_upper_bound) {
  Rng rng(20261121);
  std::vector<ShadowLeafWithWords> leaves(kFanout);
  for (int round = 0; round < 3000; ++round) {
    std::string prefix;
    for (std::size_t n = rng() % 4 == 0 ? rng() % 100 : rng() % 12; n > 0; --n) {
      prefix += static_cast<char>(rng() % 256);
    }
    std::set<std::string> separators;
    const std::size_t wanted = rng() % kFanout;
    for (std::size_t i = 0; i < 4 * wanted && separators.size() < wanted; ++i) {
      std::string s = tricky_key(rng, prefix, 14);
      if (!s.empty()) separators.insert(std::move(s));
    }
    const NodeShape shape = shape_of(separators, leaves);
    Node* node = Node::make(1, shape, 0, shape.children.size());
    std::vector<std::string> probes(separators.begin(), separators.end());
    for (int i = 0; i < 100; ++i) probes.push_back(tricky_key(rng, prefix, 14));
    for (const std::string& s : separators) {
      probes.push_back(s + '\0');
      probes.push_back(s.substr(0, s.size() - 1));
    }
    probes.push_back("");
    probes.push_back(std::string(20, '\xff'));
    for (const std::string& key : probes) {
      const auto at = std::upper_bound(shape.seps.begin(), shape.seps.end(), key);
      const auto before = std::lower_bound(shape.seps.begin(), shape.seps.end(), key);
      ASSERT_EQ(node->find(key), at - shape.seps.begin()) << "round " << round;
      ASSERT_EQ(node->find_before(key), before - shape.seps.begin()) << "round " << round;
    }
    ASSERT_EQ(node->shape().seps, shape.seps);
    ASSERT_EQ(node->shape().children, shape.children);
    Node::destroy(node);
  }
}

TEST(IndexTest, head_is_the_first_eight_bytes_as_a_number) {
  const std::string bytes("\x01\xf2\x03\xf4\x05\xf6\x07\xf8\x09");
  for (std::size_t n = 0; n <= bytes.size(); ++n) {
    std::uint64_t head = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      head = head << 8 | (i < n ? static_cast<std::uint8_t>(bytes[i]) : 0);
    }
    EXPECT_EQ(key_head(std::string_view(bytes).substr(0, n)), head) << n;
  }
}

TEST(IndexTest, common_prefix_of_any_length) {
  for (std::size_t n = 0; n < 40; ++n) {
    const std::string same(n, 'x');
    EXPECT_EQ(common_prefix(same, same), n);
    EXPECT_EQ(common_prefix(same, same + "tail of some bytes"), n);
    EXPECT_EQ(common_prefix(same + "abcdefghij", same + "b"), n);
    EXPECT_EQ(common_prefix(same + "abcdefghij", same + "abcdefghix"), n + 9);
  }
}

TEST(IndexTest, separator_is_the_shortest_that_separates) {
  EXPECT_EQ(shortest_separator("", "b"), "b");
  EXPECT_EQ(shortest_separator("abc", "abd"), "abd");
  EXPECT_EQ(shortest_separator("abc", "b"), "b");
  EXPECT_EQ(shortest_separator("ab", "abcdef"), "abc");
  EXPECT_EQ(shortest_separator("a", std::string_view("a\0", 2)), std::string_view("a\0", 2));
}

TEST(KeySortTest, sorts_tricky_keys_and_keeps_the_order_of_equal_ones) {
  Rng rng(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> keys(rng() % 60);
    for (std::string& key : keys) key = tricky_key(rng, std::string(rng() % 20, 'p'), 4);
    if (round % 4 == 0) std::sort(keys.begin(), keys.end());
    std::vector<std::uint32_t> expected(keys.size());
    std::iota(expected.begin(), expected.end(), 0u);
    std::stable_sort(expected.begin(), expected.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
    std::vector<KeyRank> order(keys.size());
    sort_by_key(order, [&](std::uint32_t i) { return std::string_view(keys[i]); });
    for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(order[i].at, expected[i]) << round;
  }
}

// An index over shadow leaves that have no leaves in a pool, and the map that it must agree with.
class IndexedLeaves {
 public:
  explicit IndexedLeaves(const std::set<std::string>& lows)
      : garbage_([](const Retired& item) { Node::destroy(reinterpret_cast<Node*>(item.word)); }),
        index_([this](Node* n) {
          garbage_.retire(garbage_.mine(),
                          {reinterpret_cast<std::uintptr_t>(n), Retired::What::node});
        }) {
    std::vector<void*> leaves;
    std::vector<std::string> separators;
    const auto take = [&](const std::string& low) {
      map_[low] = &shadows_.emplace_back();
      leaves.push_back(map_[low]);
      separators.push_back(low);
    };
    take("");
    for (const std::string& low : lows) take(low);
    index_.build(leaves, separators);
  }
  ~IndexedLeaves() { garbage_.drain(); }

  const Index& index() const { return index_; }
  const std::map<std::string, ShadowLeaf*>& map() const { return map_; }

  // Called with the left leaf and the leaf that is added or removed, while readers see neither.
  using OnLocked = std::function<void(ShadowLeaf& left, ShadowLeaf& other)>;

  void add(const std::string& low, const OnLocked& on_locked = {}) {
    const EpochGuard guard;
    ShadowLeaf* left = std::prev(map_.upper_bound(low))->second;
    ASSERT_TRUE(left->lock());
    ShadowLeaf* right = &shadows_.emplace_back();
    if (on_locked) on_locked(*left, *right);
    index_.add(left, low, right);
    left->unlock();
    map_[low] = right;
  }
  void remove(const std::string& low, const OnLocked& on_locked = {}) {
    const EpochGuard guard;
    const auto at = map_.find(low);
    ShadowLeaf* left = std::prev(at)->second;
    ASSERT_TRUE(left->lock());
    ASSERT_TRUE(at->second->lock());
    if (on_locked) on_locked(*left, *at->second);
    EXPECT_EQ(index_.remove(at->second, low, [] { return Status::ok; }), Status::ok);
    at->second->unlock_dead();
    left->unlock();
    map_.erase(at);
  }

  void expect_agrees() const {
    auto at = map_.begin();
    index_.for_each([&](ShadowLeaf* leaf, std::string_view low) {
      ASSERT_NE(at, map_.end());
      ASSERT_EQ(leaf, at->second);
      ASSERT_EQ(low, at->first);
      ++at;
    });
    ASSERT_EQ(at, map_.end());
  }
  void expect_finds(const std::string& key) const {
    const EpochGuard guard;
    UpperBound upper;
    const auto next = map_.upper_bound(key);
    ASSERT_EQ(index_.locate(key, Aim::at, &upper).leaf, std::prev(next)->second);
    ASSERT_EQ(upper.bounded, next != map_.end());
    if (upper.bounded) {
      ASSERT_EQ(upper.key, next->first);
    }
    ASSERT_EQ(index_.route(key), std::prev(next)->second);
    ASSERT_EQ(index_.locate({}, Aim::last).leaf, map_.rbegin()->second);
    const auto below = map_.lower_bound(key);
    const ShadowLeaf* before = (below == map_.begin() ? below : std::prev(below))->second;
    ASSERT_EQ(index_.locate(key, Aim::before).leaf, before);
  }

 private:
  std::deque<ShadowLeafWithWords> shadows_;
  Garbage garbage_;
  Index index_;
  std::map<std::string, ShadowLeaf*> map_;
};

TEST(IndexTest, leaves_come_and_go_at_random) {
  Rng rng(7);
  IndexedLeaves leaves({});
  for (int phase = 0; phase < 6; ++phase) {
    const bool grow = phase % 2 == 0;
    for (int i = 0; i < 4000; ++i) {
      const std::string low = "p" + tricky_key(rng, "refix", 9);
      const auto at = leaves.map().lower_bound(low);
      if (rng() % 4 == 0 ? !grow : grow) {
        if (at == leaves.map().end() || at->first != low) leaves.add(low);
      } else if (at != leaves.map().end() && !at->first.empty()) {
        leaves.remove(std::string(at->first));
      }
      leaves.expect_finds(tricky_key(rng, "prefix", 10));
      if (testing::Test::HasFatalFailure()) FAIL() << "phase " << phase << ", step " << i;
    }
    leaves.expect_agrees();
  }
}

// A queue: always removes the leftmost removable leaf, so that every removal below the top is at
// the left edge of its nodes.
TEST(IndexTest, subtrees_vanish_from_the_left) {
  std::set<std::string> lows;
  const auto low_of = [](int n) {
    char text[16];
    std::snprintf(text, sizeof text, "%08d", n);
    return std::string(text);
  };
  for (int i = 1; i < 12'000; ++i) lows.insert(low_of(i));
  IndexedLeaves leaves(lows);
  ASSERT_EQ(leaves.index().shape().levels, 3u);
  for (int i = 1; i < 12'000; ++i) {
    leaves.remove(low_of(i));
    leaves.add(low_of(20'000 + i));
    leaves.expect_finds(low_of(i));
    leaves.expect_finds(low_of(i + 1));
    if (testing::Test::HasFatalFailure()) FAIL() << "step " << i;
    if (i % 1000 == 0) leaves.expect_agrees();
  }
  leaves.expect_agrees();
}

// Removes all leaves in random order, which leaves nodes with one child and empties nodes at both
// edges.
TEST(IndexTest, nodes_of_one_child_are_found_and_removed) {
  Rng rng(11);
  std::set<std::string> lows;
  for (int i = 0; i < 9000; ++i) lows.insert(std::to_string(100'000 + i));
  IndexedLeaves leaves(lows);
  std::vector<std::string> order(lows.begin(), lows.end());
  std::shuffle(order.begin(), order.end(), rng);
  for (std::size_t i = 0; i < order.size(); ++i) {
    leaves.remove(order[i]);
    leaves.expect_finds(order[rng() % order.size()]);
    if (testing::Test::HasFatalFailure()) FAIL() << "step " << i;
    if (i % 500 == 0) leaves.expect_agrees();
  }
  leaves.expect_agrees();
  EXPECT_EQ(leaves.map().size(), 1u);
}

// A batch that has locked leaves locates more keys. A wait for a leaf there could be one for
// itself.
TEST(IndexTest, locating_many_keys_waits_for_no_leaf) {
  const auto low_of = [](std::size_t n) { return std::to_string(1000 + n); };
  std::set<std::string> lows;
  for (std::size_t i = 1; i < 200; ++i) lows.insert(low_of(i));
  IndexedLeaves leaves(lows);
  const auto leaf_of = [&](std::size_t n) {
    return std::prev(leaves.map().upper_bound(low_of(n)))->second;
  };
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kLocatedAtOnce; ++i) names.push_back(low_of(i * 11));
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const EpochGuard guard;
  ASSERT_TRUE(leaf_of(5 * 11)->lock());
  std::vector<Place> places(keys.size());
  leaves.index().locate_many(keys, places.data());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(places[i].leaf, i == 5 ? nullptr : leaf_of(i * 11)) << i;
  }
  leaf_of(5 * 11)->unlock();
  leaves.index().locate_many(keys, places.data());
  EXPECT_EQ(places[5].leaf, leaf_of(5 * 11));
  EXPECT_TRUE(places[5].leaf->still(places[5].version));
}

// A leaf that a reader finds must hold the key for as long as the leaf's version stays. The words
// of a shadow leaf hold its range, and change under its lock: [0] is the first key, [1] the end.
TEST(IndexTest, readers_are_led_to_leaves_that_hold_their_keys) {
  constexpr std::uint64_t kBase = 100'000, kKeys = 3000;
  const auto low_of = [](std::uint64_t n) { return std::to_string(kBase + n); };
  std::set<std::string> lows;
  for (std::uint64_t i = 2; i < kKeys; i += 2) lows.insert(low_of(i));
  IndexedLeaves leaves(lows);
  for (auto at = leaves.map().begin(); at != leaves.map().end(); ++at) {
    const auto next = std::next(at);
    at->second->set_word(0, {at->first.empty() ? 0 : std::stoull(at->first)});
    at->second->set_word(1, {next == leaves.map().end() ? ~0ull : std::stoull(next->first)});
  }
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, believed{0};
  std::vector<std::thread> readers;
  for (unsigned seed = 1; seed <= 2; ++seed) {
    readers.emplace_back([&, seed] {
      Rng rng(seed);
      while (!stop.load(std::memory_order_acquire)) {
        const std::uint64_t n = rng() % kKeys;
        const EpochGuard guard;
        const Place place = leaves.index().locate(low_of(n));
        const bool holds =
            place.leaf->word(0).raw <= kBase + n && kBase + n < place.leaf->word(1).raw;
        if (!place.leaf->still(place.version)) continue;
        believed += 1;
        if (!holds) wrong += 1;
      }
    });
  }
  Rng rng(6);
  for (int i = 0; i < 60'000; ++i) {
    const std::uint64_t n = 1 + rng() % (kKeys - 1);
    if (leaves.map().contains(low_of(n))) {
      leaves.remove(low_of(n),
                    [](ShadowLeaf& left, ShadowLeaf& gone) { left.set_word(1, gone.word(1)); });
    } else {
      leaves.add(low_of(n), [&](ShadowLeaf& left, ShadowLeaf& right) {
        right.set_word(0, {kBase + n});
        right.set_word(1, left.word(1));
        left.set_word(1, {kBase + n});
      });
    }
  }
  stop.store(true, std::memory_order_release);
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GT(believed.load(), 1000);
  leaves.expect_agrees();
}

// Two writers in the leaves of one node: each replaces a node that the other has just made. No
// reader may follow an outdated node to a leaf that does not hold its key.
TEST(IndexTest, readers_do_not_believe_a_node_whose_successor_was_changed_already) {
  constexpr std::uint64_t kSpan = 1000;
  const auto low_of = [](std::uint64_t n) { return std::to_string(100'000 + n); };
  std::deque<ShadowLeafWithWords> first(2);
  Garbage garbage([](const Retired& item) { Node::destroy(reinterpret_cast<Node*>(item.word)); });
  Index index([&](Node* n) {
    garbage.retire(garbage.mine(), {reinterpret_cast<std::uintptr_t>(n), Retired::What::node});
  });
  index.build({&first[0], &first[1]}, {"", low_of(kSpan)});
  for (ShadowLeaf& leaf : first) leaf.set_word(1, {kSpan * (&leaf == &first[0] ? 1 : 2)});
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (unsigned seed = 1; seed <= 2; ++seed) {
    readers.emplace_back([&, seed] {
      Rng rng(seed);
      while (!stop.load(std::memory_order_acquire)) {
        const std::uint64_t n = rng() % (2 * kSpan);
        const EpochGuard guard;
        const Place place = index.locate(low_of(n));
        const bool holds = n < place.leaf->word(1).raw;
        if (place.leaf->still(place.version) && !holds) wrong += 1;
      }
    });
  }
  std::deque<ShadowLeafWithWords> made[2];
  const auto split_and_unlink = [&](unsigned w) {
    ShadowLeaf& left = first[w];
    for (int i = 0; i < 20'000; ++i) {
      const EpochGuard guard;
      const std::uint64_t end = kSpan * (w + 1);
      const std::uint64_t at = end - 1 - static_cast<std::uint64_t>(i) % (kSpan - 1);
      ShadowLeaf& right = made[w].emplace_back();
      right.set_word(1, {end});
      left.lock();
      left.set_word(1, {at});
      index.add(&left, low_of(at), &right);
      left.unlock();
      for (int n = 0; n < 100; ++n) _mm_pause();  // time for readers to see it
      left.lock();
      right.lock();
      left.set_word(1, {end});
      EXPECT_EQ(index.remove(&right, low_of(at), [] { return Status::ok; }), Status::ok);
      right.unlock_dead();
      left.unlock();
    }
  };
  std::thread other(split_and_unlink, 1);
  split_and_unlink(0);
  other.join();
  stop.store(true, std::memory_order_release);
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(wrong.load(), 0);
  garbage.drain();
}

}  // namespace
}  // namespace tenuto::store
