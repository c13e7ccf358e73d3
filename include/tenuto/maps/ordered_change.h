// How an OrderedMap (tenuto/ordered_map.h) is changed.
//
// What may fail comes first: blocks, log entries, the new entry, the copy of a separator. Then
// elements are moved to free slots and new nodes, and fields are assigned. New nodes are not
// logged, and a field's old value is read by nobody else before the commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

#include "tenuto/maps/ordered_walk.h"

namespace TENUTO_NS::slots {

inline void put_child(p<void*>& at, void* child) { new (static_cast<void*>(&at)) p<void*>(child); }

// The order of a new node whose first `n` slots are used, in their order.
inline std::uint64_t first_slots(unsigned n) { return Permutation::kEmpty | n; }

template <class K, class V, class Less>
class OrderedTree : public OrderedNodes<K, V, Less> {
  using Nodes = OrderedNodes<K, V, Less>;

 protected:
  using Nodes::child;
  using Nodes::height_;
  using Nodes::root_;
  using Nodes::size_;
  using typename Nodes::Inner;
  using typename Nodes::Leaf;
  using typename Nodes::Path;

  OrderedTree() = default;
  OrderedTree(Relocation r, OrderedTree& from) noexcept : Nodes(r, from) {}

  template <class Key, class... Value>
  Result<V*> insert_new(Transaction& tx, const Key& key, const Value&... value);
  template <class Key>
  Status erase_key(Transaction& tx, const Key& key);

 private:
  class Growth;
  Status erase_entry(Transaction& tx, Path& path, Leaf& leaf, unsigned rank);
  Status merge(Transaction& tx, Path& path);
  template <class Node>
  Status merge_child(Transaction& tx, const typename Path::Step& step);
  // Moves all of the right node to the left one. `between` is the key of the right one.
  static Status join(Transaction& tx, Leaf& left, Leaf& right, K& between);
  static Status join(Transaction& tx, Inner& left, Inner& right, K& between);
};

// An insertion that splits a leaf, and each full node above it.
template <class K, class V, class Less>
class OrderedTree<K, V, Less>::Growth {
 public:
  Growth(OrderedTree& map, Transaction& tx, Path& path, Leaf& left, unsigned rank)
      : map_(map), tx_(tx), path_(path), left_(left), order_(left.order), rank_(rank) {
    append_ = left.next.get() == nullptr && rank == order_.count();
    keep_ = append_ ? order_.count() : order_.count() / 2;
  }

  template <class Key, class... Value>
  Result<V*> insert(const Key& key, const Value&... value) {
    Status s = make_nodes();
    if (s == Status::ok) s = save();
    if (s == Status::ok) s = make_entry(key, value...);
    if (s != Status::ok) {
      for (unsigned i = 0; i < made_; ++i) static_cast<void>(tx_.free(nodes_[i]));
      return s;
    }
    split_leaf();
    TENUTO_TRY(all_or_abort(tx_, link()));
    return &entry_->value;
  }

 private:
  Status make_nodes() {
    while (levels_ < path_.depth &&
           Permutation(path_.up(levels_).node->order).count() == kEntriesMax) {
      levels_ += 1;
    }
    taller_ = levels_ == path_.depth;
    if (taller_ && map_.height_ == kHeightMax) return Status::full;
    TENUTO_TRY(make_node(sizeof(Leaf), alignof(Leaf)));
    right_ = new (nodes_[0]) Leaf;
    for (unsigned i = 0; i < levels_ + (taller_ ? 1 : 0); ++i) {
      TENUTO_TRY(make_node(sizeof(Inner), alignof(Inner)));
      inner_[i] = new (nodes_[made_ - 1]) Inner;
    }
    return Status::ok;
  }
  Status make_node(std::size_t bytes, std::size_t align) {
    const Result<void*> block = slots::make_node(tx_, bytes, align);
    if (!block) return block.error();
    nodes_[made_++] = *block;
    return Status::ok;
  }

  // A last child that is full keeps all but the last one of its children: so much is full after
  // insertions in ascending order.
  unsigned kept_of(Permutation order) const {
    return append_ ? order.count() - 1 : order.count() / 2;
  }
  Status save() {
    TENUTO_TRY(vacate_from(tx_, left_, order_, keep_));
    for (unsigned i = 0; i < levels_; ++i) {
      const Inner& node = *path_.up(i).node;
      const Permutation order(node.order);
      TENUTO_TRY(vacate_from(tx_, node, order, kept_of(order)));
    }
    return Status::ok;
  }

  // The entry, where it stays, and the separator of the two leaves, in the last slot of the right
  // one: that is free.
  template <class Key, class... Value>
  Status make_entry(const Key& key, const Value&... value) {
    goes_right_ = rank_ >= keep_;
    entry_ = goes_right_ ? &right_->slot[rank_ - keep_] : &left_.slot[order_.next_free()];
    if (!goes_right_) TENUTO_TRY(fill(tx_, entry_, sizeof *entry_));
    TENUTO_TRY(slots::make_entry(tx_, *entry_, key, value...));
    separator_ = &right_->slot[kEntriesMax].key;
    const K& first = rank_ == keep_ ? entry_->key : left_.slot[order_.slot(keep_)].key;
    const Status made = construct(separator_, tx_, first);
    if (made == Status::ok) return made;
    TENUTO_TRY(all_or_abort(tx_, release(entry_->key, tx_)));
    TENUTO_TRY(all_or_abort(tx_, release(entry_->value, tx_)));
    return made;
  }

  void split_leaf() {
    unsigned n = 0;
    for (unsigned rank = keep_; rank <= order_.count(); ++rank) {
      if (rank == rank_) n += 1;  // it is there already
      if (rank < order_.count()) {
        move_entry(right_->slot[n++], left_.slot[order_.slot(rank)]);
      }
    }
    assign(right_->order, first_slots(n));
    right_->next = left_.next.get();
    left_.next = right_;
    Permutation kept = order_.kept(keep_);
    if (!goes_right_) kept = kept.inserted(rank_);
    if (kept.word() != order_.word()) assign(left_.order, kept.word());
  }

  Status link() {
    void* fresh = right_;
    for (unsigned i = 0; i < levels_; ++i) {
      TENUTO_TRY(split_inner(*path_.up(i).node, path_.up(i).rank + 1, *inner_[i], fresh));
      fresh = inner_[i];
    }
    if (taller_) {
      Inner& top = *inner_[levels_];
      put_child(top.slot[0].child, map_.root_.get());
      relocate(&top.slot[1].key, *separator_);
      put_child(top.slot[1].child, fresh);
      assign(top.order, first_slots(2));
      map_.root_ = &top;
      map_.height_ += 1;
    } else {
      Inner& parent = *path_.up(levels_).node;
      TENUTO_TRY(add_child(parent, Permutation(parent.order), path_.up(levels_).rank + 1, fresh));
    }
    map_.size_ += 1;
    return tx_.status();
  }

  // REQUIRES: a slot is free.
  Status add_child(Inner& node, Permutation order, unsigned rank, void* fresh) {
    auto& slot = node.slot[order.next_free()];
    TENUTO_TRY(fill(tx_, &slot, sizeof slot));
    relocate(&slot.key, *separator_);
    put_child(slot.child, fresh);
    assign(node.order, order.inserted(rank).word());
    return Status::ok;
  }

  // The child `fresh` comes to this rank of `node`, whose upper ranks move to `more`. The key of
  // the first child of `more` is the next separator.
  Status split_inner(Inner& node, unsigned rank, Inner& more, void* fresh) {
    const Permutation order(node.order);
    const unsigned keep = kept_of(order);
    K* const next = &more.slot[kEntriesMax].key;
    unsigned n = 0;
    const auto put = [&](K& key, void* child) {
      relocate(n == 0 ? next : &more.slot[n].key, key);
      put_child(more.slot[n++].child, child);
    };
    for (unsigned r = keep; r <= order.count(); ++r) {
      if (r == rank) put(*separator_, fresh);
      if (r == order.count()) break;
      auto& slot = node.slot[order.slot(r)];
      put(slot.key, slot.child.get());
    }
    assign(more.order, first_slots(n));
    const Permutation kept = order.kept(keep);
    if (rank < keep) {
      TENUTO_TRY(add_child(node, kept, rank, fresh));
    } else {
      assign(node.order, kept.word());
    }
    separator_ = next;
    return Status::ok;
  }

  OrderedTree& map_;
  Transaction& tx_;
  Path& path_;
  Leaf& left_;
  const Permutation order_;  // of left_, before
  const unsigned rank_;      // of the new entry, in it
  bool append_;              // the new key is above all others
  unsigned keep_;            // ranks that stay
  bool goes_right_ = false;
  unsigned levels_ = 0;  // inner nodes that are split
  bool taller_ = false;  // the root, too
  Leaf* right_ = nullptr;
  Inner* inner_[kHeightMax];
  void* nodes_[kHeightMax + 1];
  unsigned made_ = 0;
  typename Leaf::Slot* entry_ = nullptr;
  K* separator_ = nullptr;
};

template <class K, class V, class Less>
template <class Key, class... Value>
Result<V*> OrderedTree<K, V, Less>::insert_new(Transaction& tx, const Key& key,
                                               const Value&... value) {
  TENUTO_TRY(tx.status());
  if (height_ == 0) {
    TENUTO_TRY(begin_insert(tx, size_));
    const Result<void*> block = make_node(tx, sizeof(Leaf), alignof(Leaf));
    if (!block) return block.error();
    auto* const leaf = new (*block) Leaf;
    const Status made = make_entry(tx, leaf->slot[0], key, value...);
    if (made != Status::ok) {
      static_cast<void>(tx.free(leaf));
      return made;
    }
    assign(leaf->order, first_slots(1));
    root_ = leaf;
    height_ = 1;
    size_ = 1;
    TENUTO_TRY(tx.status());
    return &leaf->slot[0].value;
  }
  Path path;
  Leaf& leaf = *this->descend(key, path);
  const Permutation order(leaf.order);
  const unsigned rank = rank_of<false, Less>(leaf, order, 0, key);
  if (rank < order.count() && !Less{}(key, leaf.slot[order.slot(rank)].key)) return Status::exists;
  TENUTO_TRY(begin_insert(tx, size_));
  if (order.count() == kEntriesMax) {
    return Growth(*this, tx, path, leaf, rank).insert(key, value...);
  }
  auto& slot = leaf.slot[order.next_free()];
  TENUTO_TRY(fill(tx, &slot, sizeof slot));
  TENUTO_TRY(make_entry(tx, slot, key, value...));
  assign(leaf.order, order.inserted(rank).word());
  size_ += 1;
  TENUTO_TRY(tx.status());
  return &slot.value;
}

template <class K, class V, class Less>
template <class Key>
Status OrderedTree<K, V, Less>::erase_key(Transaction& tx, const Key& key) {
  TENUTO_TRY(tx.status());
  if (height_ == 0) return Status::not_found;
  Path path;
  Leaf& leaf = *this->descend(key, path);
  const Permutation order(leaf.order);
  const unsigned rank = rank_of<false, Less>(leaf, order, 0, key);
  if (rank == order.count() || Less{}(key, leaf.slot[order.slot(rank)].key)) {
    return Status::not_found;
  }
  auto& slot = leaf.slot[order.slot(rank)];
  TENUTO_TRY(vacate(tx, &slot, sizeof slot));
  return all_or_abort(tx, erase_entry(tx, path, leaf, rank));
}

template <class K, class V, class Less>
Status OrderedTree<K, V, Less>::erase_entry(Transaction& tx, Path& path, Leaf& leaf,
                                            unsigned rank) {
  const Permutation order(leaf.order);
  auto& slot = leaf.slot[order.slot(rank)];
  TENUTO_TRY(::tenuto::release(slot.key, tx));
  TENUTO_TRY(::tenuto::release(slot.value, tx));
  assign(leaf.order, order.erased(rank).word());
  size_ -= 1;
  if (size_ == 0) return this->clear_all(tx);
  TENUTO_TRY(merge(tx, path));
  return tx.status();
}

// Merges the leaf of the path with a neighbour, if they fit in one, and then the nodes above it.
template <class K, class V, class Less>
Status OrderedTree<K, V, Less>::merge(Transaction& tx, Path& path) {
  if (path.depth == 0) return Status::ok;
  Status merged = merge_child<Leaf>(tx, path.up(0));
  for (unsigned level = 0; merged == Status::ok; ++level) {
    if (level + 1 < path.depth) {
      merged = merge_child<Inner>(tx, path.up(level + 1));
      continue;
    }
    Inner& top = *path.up(level).node;
    if (Permutation(top.order).count() > 1) break;
    root_ = child(top, 0);
    height_ -= 1;
    return free_node(tx, &top);
  }
  return merged == Status::not_found ? Status::ok : merged;
}

// Merges the child of this step with the one before or behind it. not_found: it fits neither.
template <class K, class V, class Less>
template <class Node>
Status OrderedTree<K, V, Less>::merge_child(Transaction& tx, const typename Path::Step& step) {
  // An inner node with one child cannot merge its leaf, so it is merged even with a large one.
  constexpr unsigned kFew = std::is_same_v<Node, Leaf> ? 0 : 1;
  Inner& parent = *step.node;
  const Permutation order(parent.order);
  for (unsigned rank = step.rank > 0 ? step.rank : 1; rank <= step.rank + 1 && rank < order.count();
       ++rank) {
    auto& slot = parent.slot[order.slot(rank)];
    auto& left = *static_cast<Node*>(child(parent, rank - 1));
    auto& right = *static_cast<Node*>(slot.child.get());
    const unsigned a = Permutation(left.order).count();
    const unsigned b = Permutation(right.order).count();
    const bool few = a + b <= kMergeMax;
    if (!few && (a + b > kEntriesMax || (a > kFew && b > kFew))) continue;
    TENUTO_TRY(join(tx, left, right, slot.key));
    TENUTO_TRY(free_node(tx, &right));
    TENUTO_TRY(vacate(tx, &slot, sizeof slot));
    assign(parent.order, order.erased(rank).word());
    return tx.status();
  }
  return Status::not_found;
}

template <class K, class V, class Less>
Status OrderedTree<K, V, Less>::join(Transaction& tx, Leaf& left, Leaf& right, K& between) {
  Permutation order(left.order);
  const Permutation from(right.order);
  for (unsigned rank = 0; rank < from.count(); ++rank) {
    auto& slot = left.slot[order.next_free()];
    TENUTO_TRY(fill(tx, &slot, sizeof slot));
    move_entry(slot, right.slot[from.slot(rank)]);
    order = order.inserted(order.count());
  }
  if (from.count() > 0) assign(left.order, order.word());
  left.next = right.next.get();
  return ::tenuto::release(between, tx);
}

// The separator becomes the key of the right node's first child.
template <class K, class V, class Less>
Status OrderedTree<K, V, Less>::join(Transaction& tx, Inner& left, Inner& right, K& between) {
  Permutation order(left.order);
  const Permutation from(right.order);
  for (unsigned rank = 0; rank < from.count(); ++rank) {
    auto& slot = left.slot[order.next_free()];
    auto& moved = right.slot[from.slot(rank)];
    TENUTO_TRY(fill(tx, &slot, sizeof slot));
    relocate(&slot.key, rank == 0 ? between : moved.key);
    put_child(slot.child, moved.child.get());
    order = order.inserted(order.count());
  }
  assign(left.order, order.word());
  return Status::ok;
}

}  // namespace TENUTO_NS::slots
