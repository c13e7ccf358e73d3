// The index above the leaves: inner nodes in DRAM, from a root to the shadow leaves.
//
// **Readers take no locks**, because nodes are immutable (inner.h). A reader descends and looks at
// each node once. It loads the leaf's version. Then it asks whether the leaf's parent is obsolete
// (was replaced). If so, it starts again. To ask the parent alone suffices:
// - A node that is not obsolete covers at least the keys that it covered when it was made. A range
//   that shrinks always comes with a new node, also for all nodes above whose ranges shrink with
//   it.
// - A leaf that splits or dies stays locked until its parent is obsolete.
//
// **A node becomes obsolete before its successor can be found.** Suppose the order were the other
// one. A reader is at the old node, which is not obsolete yet. A second writer finds the successor,
// changes a leaf below both, and makes the successor obsolete. The old node still looks valid. So
// the reader would look for a key in a leaf whose range no longer holds it.
//
// **An upper bound may be too low.** A bound may come from a node above the parent, which is not
// asked and may be old. The bound is too low when the leaf has taken a neighbour's range since. It
// is never too high, because then the leaf would have another parent.
// - A walk forwards from a bound that is too low finds the same leaf again, with the rest of its
//   range. That is how a transaction's cursor finds its own writes there (cursor.cc).
// - A walk backwards locates the leaf before a key. The bound that it gets is at least that key.
//
// **Leaves without a shadow leaf** (unmade.h) are children, too. leaf_of() makes the shadow leaf
// under the lock of the node. Whoever makes a new node of an old one has locked that one, so no
// leaf gets two.
//
// Lock order: leaves (left to right), nodes (bottom up, one a level), the root. Every call REQUIRES
// an epoch guard of the calling thread.
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
#include "store/tree/unmade.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

inline constexpr unsigned kLevelsMax = 24;
// Keys of locate_many: a few more than the misses that a core can have under way.
inline constexpr std::size_t kLocatedAtOnce = 16;

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
  const void* next = nullptr;  // a hint: the next leaf (Node::child), if it is known at no cost
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

  // `maker` makes shadow leaves; null: build() is given no unmade leaf.
  explicit Index(RetireNode retire, const LeafMaker* maker = nullptr)
      : retire_(std::move(retire)), maker_(maker) {}
  ~Index();

  // Takes the leaves in order, shadow leaves or unmade ones, with their separators (the first is
  // not used). REQUIRES: empty index, at least one leaf. Not thread-safe.
  void build(const std::vector<void*>& leaves, std::vector<std::string> separators);
  // The same with the nodes of level 1, which it owns then, whatever happens. The separators are
  // those of their first leaves.
  void build_above(std::vector<Node*> nodes, std::vector<std::string> separators);

  // Waits while the leaf is locked. Makes its shadow leaf, if it has none: then it may wait for a
  // disk, and throw bad_alloc. Cost: about four lines a level.
  Place locate(std::string_view key, Aim aim = Aim::at, UpperBound* upper = nullptr) const;
  // Up to kLocatedAtOnce keys, so that their cache misses overlap. Waits for no leaf: a place has
  // no leaf if that was locked, gone or unmade, and locate() finds it.
  void locate_many(std::span<const std::string_view> keys, Place* out) const;
  // The leaf to which the nodes lead. It may be locked, and its range may no longer hold the key.
  ShadowLeaf* route(std::string_view key) const;
  // Whether the nodes lead to this leaf. Makes none.
  bool leads_to(std::string_view key, const ShadowLeaf* leaf) const;

  // A leaf was split: `right` holds the keys from `separator` on. REQUIRES: left is locked.
  void add(ShadowLeaf* left, std::string_view separator, ShadowLeaf* right);
  // Removes the leaf with this low separator. Its left neighbour takes its range. `unlink` is
  // called when all that needs memory is done. If it does not return ok, nothing has changed.
  // REQUIRES: both leaves are locked; the leaf is not the first; `unlink` waits for no leaf.
  Status remove(ShadowLeaf* leaf, std::string_view separator,
                const std::function<Status()>& unlink);

  // `with` takes the leaf's place. REQUIRES: the leaf is locked, and dies before its unlock; `key`
  // is in its range.
  void exchange(ShadowLeaf* leaf, std::string_view key, ShadowLeaf* with);

  // For a bulk load: new leaves follow the only one. nodes_above() makes the nodes above all of
  // them, given in order with their separators (the first is not used). It needs memory: call it
  // under no lock. adopt() puts the nodes in place and cannot fail. REQUIRES for adopt: the first
  // of the leaves is locked, and what `retire` needs is there.
  static NodesAbove nodes_above(const std::vector<void*>& leaves,
                                std::vector<std::string> separators);
  void adopt(NodesAbove made);

  // About how many leaves hold keys from `from` (null: the first key) to `to` (null: the last), in
  // fractions of leaves. Cost: two descents.
  double estimate_leaves(const std::string_view* from, const std::string_view* to) const;

  struct Shape {
    std::uint64_t nodes = 0, levels = 0, bytes = 0;
  };
  Shape shape() const;
  // Calls f(leaf, separator) in order. Makes shadow leaves, as locate(). REQUIRES: no writer.
  void for_each(const std::function<void(ShadowLeaf*, std::string_view)>& f) const;
  // Calls f(node, separator of its first leaf) in order, for the nodes of level 1. REQUIRES: as
  // for_each.
  void each_low_node(const std::function<void(Node&, std::string_view)>& f) const;
  // Calls f(leaf) in order for those that are made, and needs no memory. REQUIRES: as for_each.
  // Returns how many leaves there are.
  template <class F>
  std::uint64_t each_made(const F& f) const {
    return each_below(root_.load(std::memory_order_acquire), f);
  }

 private:
  // A node's locked parent, and the node's place in it. If the node is the root: null, and the
  // root's lock is held.
  struct Parent {
    Node* node = nullptr;
    unsigned child = 0;
  };
  Parent lock_parent(const Node* node, std::string_view key);
  class Change;
  void split(Change& change, Node* old, std::string_view key, NodeShape s, std::size_t at);
  void set_root(Node* root);
  Node* without_leftmost(Change& change, Node* n, std::string_view key);
  // The leaf under this node of level 1. Null: the node was replaced. REQUIRES: the caller has not
  // locked the node.
  ShadowLeaf* leaf_of(Node* n, unsigned i) const {
    void* const child = n->child(i);
    return UnmadeLeaf::is(child) ? make_leaf(n, i, UnmadeLeaf::of(child))
                                 : static_cast<ShadowLeaf*>(child);
  }
  ShadowLeaf* make_leaf(Node* n, unsigned i, UnmadeLeaf leaf) const;
  template <class F>
  static std::uint64_t each_below(const Node* n, const F& f) {
    std::uint64_t leaves = 0;
    for (unsigned i = 0; i < n->count(); ++i) {
      if (n->level() > 1) {
        leaves += each_below(n->node(i), f);
        continue;
      }
      leaves += 1;
      void* const child = n->child(i);
      if (!UnmadeLeaf::is(child)) f(static_cast<ShadowLeaf*>(child));
    }
    return leaves;
  }

  RetireNode retire_;
  const LeafMaker* const maker_;
  std::atomic<Node*> root_{nullptr};
  std::mutex root_mu_;  // last in the lock order; guards stores to root_
};

}  // namespace TENUTO_NS::store
