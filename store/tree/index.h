// The index above the leaves: inner nodes in DRAM, from a root to the leaf shadow leaves.
//
// Concurrency: optimistic lock coupling on nodes that are immutable (inner.h). A reader descends
// without looking back, takes the leaf's version, and then asks whether the leaf's parent was
// replaced; if so it starts again. That suffices, because a node that is not obsolete covers at
// least the keys it covered when it was made: a shrinking range always comes with a new node (also
// for all nodes on the way that shrink with it), and a leaf that splits or dies stays locked until
// its parent is obsolete.
//
// A node becomes obsolete *before* its successor can be found. Else the next one who changes a leaf
// of both finds the successor and ends that one, while the first node, where a reader still stands,
// says that all is well: the reader would look for a key in a leaf that gave it away.
//
// The nodes above are not asked, so what they say of the leaf's upper bound may be old: too low,
// when the leaf has taken a neighbour's range since, never too high, for then its own parent is
// another. Who goes forwards from a bound that is too low finds the same leaf again, with the rest
// of its range: that is how a transaction's cursor comes to its own writes there (cursor.cc). Who
// goes backwards asks for a leaf before a key, and the bound it gets is at least that key.
//
// Locks, always in this order: leaves (left to right), nodes (bottom up, one a level), the root.
// Every call REQUIRES an epoch guard of the calling thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/tree/inner.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

inline constexpr unsigned kLevelsMax = 24;

enum class Aim : std::uint8_t {
  at,      // the leaf whose range holds the key
  before,  // the leaf whose range holds the greatest keys below the key
  last,    // the rightmost leaf
};

// A leaf, unlocked and alive at `version`.
struct Place {
  ShadowLeaf* leaf = nullptr;
  std::uint64_t version = 0;
};

// An upper bound of the leaf's keys, exclusive; none for the rightmost leaf. May be too low while
// a neighbour is being unlinked, never too high.
struct UpperBound {
  bool bounded = false;
  std::string key;
  const ShadowLeaf* next = nullptr;  // a hint: the leaf behind it, where that costs nothing to know
};

// Nodes above leaves that no index shows yet.
struct DestroyNodes {
  void operator()(Node* root) const;
};
using NodesAbove = std::unique_ptr<Node, DestroyNodes>;

class Index {
 public:
  // Frees a node that was replaced, once no reader can see it.
  using RetireNode = std::function<void(Node*)>;

  explicit Index(RetireNode retire) : retire_(std::move(retire)) {}
  ~Index();

  // Takes the leaves in order, with their separators (the first is not used).
  // REQUIRES: empty index, at least one leaf. Not thread-safe.
  void build(const std::vector<ShadowLeaf*>& leaves, std::vector<std::string> separators);

  // Waits while the leaf is locked. Cost: two lines a level.
  Place locate(std::string_view key, Aim aim = Aim::at, UpperBound* upper = nullptr) const;
  // Many keys at once, whose misses overlap; a place without a leaf asks for locate().
  void locate_many(std::span<const std::string_view> keys, Place* out) const;
  // The leaf that held the key a moment ago, locked or not.
  ShadowLeaf* route(std::string_view key) const;

  // A leaf was split: `right` holds the keys from `separator` on. REQUIRES: left is locked.
  void add(ShadowLeaf* left, std::string_view separator, ShadowLeaf* right);
  // The leaf with this low separator goes, its left neighbour takes its range. When all that needs
  // memory is done `unlink` is called; if it does not say ok nothing has changed. REQUIRES: both
  // are locked; the leaf is not the first; `unlink` waits for no leaf.
  Status remove(ShadowLeaf* leaf, std::string_view separator,
                const std::function<Status()>& unlink);

  // `with` takes the leaf's place. REQUIRES: the leaf is locked, and dies before its unlock; this
  // is a key of its range.
  void exchange(ShadowLeaf* leaf, std::string_view key, ShadowLeaf* with);

  // The only leaf is followed by others. First the nodes above all of them, in order and with their
  // separators (the first is not used), under no lock, for that needs memory; then they are hung
  // in, which cannot fail. adopt: REQUIRES: the leaf, the first of those, is locked, and what
  // `retire` needs is there.
  static NodesAbove nodes_above(const std::vector<ShadowLeaf*>& leaves,
                                std::vector<std::string> separators);
  void adopt(NodesAbove made);

  // About how many leaves hold keys from `from` (null: the first key) to `to` (null: the last), in
  // fractions of leaves. Cost: two lines a level.
  double estimate_leaves(const std::string_view* from, const std::string_view* to) const;

  struct Shape {
    std::uint64_t nodes = 0, levels = 0, bytes = 0;
  };
  Shape shape() const;
  // Calls f(leaf, separator) in order. REQUIRES: no writer.
  void for_each(const std::function<void(ShadowLeaf*, std::string_view)>& f) const;
  // Calls f(leaf) in order, and needs no memory. REQUIRES: as for_each.
  template <class F>
  void each_leaf(const F& f) const {
    each_below(root_.load(std::memory_order_acquire), f);
  }

 private:
  // The locked parent of a node and the node's place in it; null and the root's lock held when
  // the node is the root.
  struct Parent {
    Node* node = nullptr;
    unsigned child = 0;
  };
  Parent lock_parent(const Node* node, std::string_view key);
  class Change;
  void split(Change& change, Node* old, std::string_view key, NodeShape s, std::size_t at);
  void set_root(Node* root);
  Node* without_leftmost(Change& change, Node* n, std::string_view key);
  template <class F>
  static void each_below(const Node* n, const F& f) {
    for (unsigned i = 0; i < n->count(); ++i) {
      if (n->level() > 1) {
        each_below(n->node(i), f);
      } else {
        f(n->leaf(i));
      }
    }
  }

  RetireNode retire_;
  std::atomic<Node*> root_{nullptr};
  std::mutex root_mu_;  // last in the order; guards stores to root_
};

}  // namespace TENUTO_NS::store
