// The tree of an OrderedMap (tenuto/ordered_map.h): how it is searched, and passes over all nodes.
#pragma once

#include <cstdint>

#include "tenuto/element.h"
#include "tenuto/maps/ordered_nodes.h"
#include "tenuto/status.h"
#include "tenuto/tx.h"

namespace TENUTO_NS::slots {

template <class K, class V, class Less>
class OrderedNodes {
 protected:
  using Leaf = slots::Leaf<K, V>;
  using Inner = slots::Inner<K>;

  // The way to a leaf: an inner node for each level, and the rank of the child that was taken.
  struct Path {
    struct Step {
      Inner* node;
      unsigned rank;
    };
    Step steps[kHeightMax];
    unsigned depth = 0;
    Step& up(unsigned levels) { return steps[depth - 1 - levels]; }  // 0: the leaf's parent
  };
  // The first entry whose key is not below the one that was searched for, and whether it is equal.
  // The rank may be behind the last one of the leaf. No leaf: the tree is empty.
  struct Found {
    const Leaf* leaf;
    Permutation order;
    unsigned rank;
    bool equal;
  };

  OrderedNodes() = default;
  OrderedNodes(Relocation, OrderedNodes& from) noexcept
      : root_(from.root_), size_(from.size_), height_(from.height_) {}

  static void* child(const Inner& node, unsigned rank) {
    return node.slot[Permutation(node.order).slot(rank)].child;
  }
  template <class Key>
  static unsigned rank_of_child(const Inner& node, Permutation order, const Key& key) {
    return rank_of<true, Less>(node, order, 1, key) - 1;
  }
  template <class Key>
  Found search(const Key& key) const;
  template <class Key>
  const V* find_value(const Key& key) const {
    const auto [leaf, order, rank, found] = search(key);
    return found ? &leaf->slot[order.slot(rank)].value : nullptr;
  }
  template <class Key>
  Leaf* descend(const Key& key, Path& path) const;
  const Leaf* first_leaf() const;
  const Leaf* last_leaf(Path& path) const;
  // The leaf before that of the path, which then leads there. Null: there is none.
  static const Leaf* leaf_before(Path& path);
  Status clear_all(Transaction& tx);
  template <class F>
  void visit_nodes(F&& f) const {
    if (height_ > 0) visit_below(root_.get(), height_, f);
  }
  template <class Blocks>
  Status validate_all(const Blocks& blocks, Report* report) const;
  void visit_references(const References& visit) const;

  p<void*> root_;  // a Leaf if height_ == 1, else an Inner
  p<std::uint64_t> size_;
  p<std::uint64_t> height_;  // levels; 0: no node

 private:
  Status clear_below(Transaction& tx, void* node, std::uint64_t level);
  template <class Blocks>
  static bool is_node(const Blocks& blocks, const void* node, std::uint64_t level) {
    return level == 1 ? blocks.has(node, sizeof(Leaf), alignof(Leaf))
                      : blocks.has(node, sizeof(Inner), alignof(Inner));
  }
  void visit_references_below(const References& visit, const void* node, std::uint64_t level) const;
  template <class F>
  void visit_below(const void* node, std::uint64_t level, F& f) const;
  struct Walk;
  template <class Blocks>
  Status validate_below(const Blocks& blocks, const void* node, std::uint64_t level,
                        Walk& walk) const;
};

template <class K, class V, class Less>
template <class Key>
typename OrderedNodes<K, V, Less>::Found OrderedNodes<K, V, Less>::search(const Key& key) const {
  const void* node = root_.get();
  if (node == nullptr) return {nullptr, Permutation(), 0, false};
  for (std::uint64_t level = height_; level > 1; --level) {
    const auto& inner = *static_cast<const Inner*>(node);
    const Permutation order(inner.order);
    node = inner.slot[order.slot(rank_of_child(inner, order, key))].child.get();
    prefetch(node, sizeof(Leaf) < sizeof(Inner) ? sizeof(Leaf) : sizeof(Inner));
  }
  const auto* const leaf = static_cast<const Leaf*>(node);
  const Permutation order(leaf->order);
  const unsigned rank = rank_of<false, Less>(*leaf, order, 0, key);
  const bool found = rank < order.count() && !Less{}(key, leaf->slot[order.slot(rank)].key);
  return {leaf, order, rank, found};
}

template <class K, class V, class Less>
template <class Key>
typename OrderedNodes<K, V, Less>::Leaf* OrderedNodes<K, V, Less>::descend(const Key& key,
                                                                           Path& path) const {
  void* node = root_.get();
  for (std::uint64_t level = height_; level > 1; --level) {
    auto* const inner = static_cast<Inner*>(node);
    const Permutation order(inner->order);
    const unsigned rank = rank_of_child(*inner, order, key);
    path.steps[path.depth++] = {inner, rank};
    node = inner->slot[order.slot(rank)].child.get();
  }
  return static_cast<Leaf*>(node);
}

template <class K, class V, class Less>
const typename OrderedNodes<K, V, Less>::Leaf* OrderedNodes<K, V, Less>::first_leaf() const {
  const void* node = root_.get();
  for (std::uint64_t level = height_; level > 1; --level) {
    node = child(*static_cast<const Inner*>(node), 0);
  }
  return static_cast<const Leaf*>(node);
}

template <class K, class V, class Less>
const typename OrderedNodes<K, V, Less>::Leaf* OrderedNodes<K, V, Less>::leaf_before(Path& path) {
  const unsigned depth = path.depth;
  while (path.depth > 0 && path.up(0).rank == 0) path.depth -= 1;
  if (path.depth == 0) return nullptr;
  path.up(0).rank -= 1;
  void* node = child(*path.up(0).node, path.up(0).rank);
  while (path.depth < depth) {
    auto* const inner = static_cast<Inner*>(node);
    const unsigned last = Permutation(inner->order).count() - 1;
    path.steps[path.depth++] = {inner, last};
    node = child(*inner, last);
  }
  return static_cast<const Leaf*>(node);
}

template <class K, class V, class Less>
const typename OrderedNodes<K, V, Less>::Leaf* OrderedNodes<K, V, Less>::last_leaf(
    Path& path) const {
  void* node = root_.get();
  for (std::uint64_t level = height_; level > 1; --level) {
    auto* const inner = static_cast<Inner*>(node);
    const unsigned last = Permutation(inner->order).count() - 1;
    path.steps[path.depth++] = {inner, last};
    node = child(*inner, last);
  }
  return static_cast<const Leaf*>(node);
}

template <class K, class V, class Less>
template <class F>
void OrderedNodes<K, V, Less>::visit_below(const void* node, std::uint64_t level, F& f) const {
  f(node);
  if (level == 1) return;
  const auto& inner = *static_cast<const Inner*>(node);
  for (unsigned rank = 0; rank < Permutation(inner.order).count(); ++rank) {
    visit_below(child(inner, rank), level - 1, f);
  }
}

template <class K, class V, class Less>
Status OrderedNodes<K, V, Less>::clear_below(Transaction& tx, void* node, std::uint64_t level) {
  if (level == 1) {
    auto& leaf = *static_cast<Leaf*>(node);
    const Permutation order(leaf.order);
    if constexpr (Owner<K> || Owner<V>) {
      for (unsigned rank = 0; rank < order.count(); ++rank) {
        auto& slot = leaf.slot[order.slot(rank)];
        TENUTO_TRY(::tenuto::release(slot.key, tx));
        TENUTO_TRY(::tenuto::release(slot.value, tx));
      }
    }
  } else {
    auto& inner = *static_cast<Inner*>(node);
    const Permutation order(inner.order);
    for (unsigned rank = 0; rank < order.count(); ++rank) {
      auto& slot = inner.slot[order.slot(rank)];
      if (rank > 0) TENUTO_TRY(::tenuto::release(slot.key, tx));
      TENUTO_TRY(clear_below(tx, slot.child.get(), level - 1));
    }
  }
  return free_node(tx, node);
}

template <class K, class V, class Less>
Status OrderedNodes<K, V, Less>::clear_all(Transaction& tx) {
  TENUTO_TRY(tx.status());
  if (height_ == 0) return Status::ok;
  TENUTO_TRY(clear_below(tx, root_.get(), height_));
  root_ = nullptr;
  height_ = 0;
  size_ = 0;
  return tx.status();
}

// Of bytes that may be anything.
template <class K, class V, class Less>
void OrderedNodes<K, V, Less>::visit_references(const References& visit) const {
  if (height_ > kHeightMax) return visit.words(this, sizeof *this);
  if (height_ > 0) visit_references_below(visit, root_.get(), height_);
}

template <class K, class V, class Less>
void OrderedNodes<K, V, Less>::visit_references_below(const References& visit, const void* node,
                                                      std::uint64_t level) const {
  if (!is_node(visit, node, level)) return;
  const std::uint64_t bytes = level == 1 ? sizeof(Leaf) : sizeof(Inner);
  if (!visit.owns(node, bytes)) return;
  const auto entries = [](const auto& at, const auto& f) {
    const Permutation order(at.order);
    if (!order.sound()) return;
    for (unsigned rank = 0; rank < order.count(); ++rank) f(rank, at.slot[order.slot(rank)]);
  };
  if (level == 1) {
    return entries(*static_cast<const Leaf*>(node), [&](unsigned, const auto& slot) {
      visit_key(visit, slot.key);
      visit_element(visit, slot.value);
    });
  }
  entries(*static_cast<const Inner*>(node), [&](unsigned rank, const auto& slot) {
    if (rank > 0) visit_key(visit, slot.key);
    visit_references_below(visit, slot.child.get(), level - 1);
  });
}

// --- validation ----------------------------------------------------------------------------------

template <class K, class V, class Less>
struct OrderedNodes<K, V, Less>::Walk {
  const K* last = nullptr;     // the key before
  const K* floor = nullptr;    // no key of the node is below it
  const Leaf* next = nullptr;  // the leaf that the last one is linked to
  bool first = true;
  std::uint64_t entries = 0;
  Report* report;
  Status wrong(const char* what) const { return fail(Status::corrupt, report, what); }
};

// `node` is a block.
template <class K, class V, class Less>
template <class Blocks>
Status OrderedNodes<K, V, Less>::validate_below(const Blocks& blocks, const void* node,
                                                std::uint64_t level, Walk& walk) const {
  const auto order_of = [&](const void* at, std::uint64_t l) {
    return l == 1 ? Permutation(static_cast<const Leaf*>(at)->order)
                  : Permutation(static_cast<const Inner*>(at)->order);
  };
  const Permutation order = order_of(node, level);
  if (!order.sound()) return walk.wrong("a node of an ordered map names a slot twice");
  if (order.count() > kEntriesMax) return walk.wrong("a node of an ordered map is too full");
  if (level == 1) {
    const auto& leaf = *static_cast<const Leaf*>(node);
    if (!walk.first && walk.next != &leaf) return walk.wrong("a leaf is not linked to the next");
    walk.first = false;
    walk.next = leaf.next.get();
    walk.entries += order.count();
    for (unsigned rank = 0; rank < order.count(); ++rank) {
      const auto& slot = leaf.slot[order.slot(rank)];
      const K& key = slot.key;
      TENUTO_TRY(blocks.validate(key, walk.report));
      TENUTO_TRY(blocks.validate(slot.value, walk.report));
      if (walk.last != nullptr && !Less{}(*walk.last, key)) {
        return walk.wrong("the keys of an ordered map are not in order");
      }
      if (walk.floor != nullptr && Less{}(key, *walk.floor)) {
        return walk.wrong("a key of an ordered map is below its node's");
      }
      walk.last = &key;
    }
    return Status::ok;
  }
  const auto& inner = *static_cast<const Inner*>(node);
  if (order.count() == 0) return walk.wrong("an inner node of an ordered map has no child");
  unsigned before = kEntriesMax;
  for (unsigned rank = 0; rank < order.count(); ++rank) {
    const auto& slot = inner.slot[order.slot(rank)];
    if (rank > 0) {
      TENUTO_TRY(blocks.validate(slot.key, walk.report));
      if (walk.last != nullptr && !Less{}(*walk.last, slot.key)) {
        return walk.wrong("a separator is not above the keys before it");
      }
      walk.floor = &slot.key;
    }
    if (!is_node(blocks, slot.child.get(), level - 1)) return walk.wrong("a child is no block");
    const unsigned entries = order_of(slot.child.get(), level - 1).count();
    if (before + entries <= kMergeMax) return walk.wrong("two nodes are not merged");
    before = entries;
    TENUTO_TRY(validate_below(blocks, slot.child.get(), level - 1, walk));
  }
  return Status::ok;
}

template <class K, class V, class Less>
template <class Blocks>
Status OrderedNodes<K, V, Less>::validate_all(const Blocks& blocks, Report* report) const {
  Walk walk;
  walk.report = report;
  if ((height_ == 0) != (root_.get() == nullptr) || height_ > kHeightMax) {
    return walk.wrong("the height of an ordered map does not fit its root");
  }
  if (height_ > 0) {
    if (!is_node(blocks, root_.get(), height_)) return walk.wrong("a root is no block");
    TENUTO_TRY(validate_below(blocks, root_.get(), height_, walk));
  }
  if (walk.next != nullptr) return walk.wrong("the last leaf is linked to another");
  if (walk.entries != size_) return walk.wrong("the size of an ordered map is not its entries'");
  return Status::ok;
}

}  // namespace TENUTO_NS::slots
