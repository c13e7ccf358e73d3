// The nodes of an OrderedMap (tenuto/ordered_map.h), and the search in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tenuto/element.h"
#include "tenuto/maps/slots.h"
#include "tenuto/p.h"
#include "tenuto/units.h"

namespace TENUTO_NS::slots {

// A node of at most 14 entries in 15 slots. One slot is always free, so that an entry that splits
// the node finds a slot without a value: what just became free has to be saved first.
inline constexpr unsigned kEntriesMax = Permutation::kSlots - 1;
// Nodes that stand next to each other in one node are merged when they have so few entries
// together. Half a node: what a split leaves is not merged by the next erase.
inline constexpr unsigned kMergeMax = 7;
inline constexpr unsigned kHeightMax = 40;
// So many bytes of the next node are fetched while it is not known which are needed.
inline constexpr std::size_t kPrefetchBytes = 320;

// The entries, in the order of the keys. Only a leaf that is alone in its inner node may be empty.
template <class K, class V>
struct Leaf {
  struct Slot {
    K key;
    V value;
  };
  p<std::uint64_t> order = Permutation().word();
  p<Leaf*> next;
  Slots<Slot, Permutation::kSlots> slot;
};

// Children in the order of their keys. The key of a slot is not above the keys of its child, and
// above those of the child before it. The first child has no key: its slot's key has no value.
template <class K>
struct Inner {
  struct Slot {
    K key;
    p<void*> child;
  };
  p<std::uint64_t> order = Permutation().word();
  Slots<Slot, Permutation::kSlots> slot;
};

// The first rank of [from, order.count()) whose key is not before `key` (or_equal: is behind it).
// A binary search whose steps the compiler makes without branches.
template <bool kOrEqual, class Less, class Node, class Key>
unsigned rank_of(const Node& node, Permutation order, unsigned from, const Key& key) {
  const auto passes = [&](unsigned rank) {
    const auto& other = node.slot[order.slot(rank)].key;
    if constexpr (kOrEqual)
      return !Less{}(key, other);
    else
      return static_cast<bool>(Less{}(other, key));
  };
  unsigned rank = from;
  for (unsigned n = order.count() - from; n > 0;) {
    const unsigned half = (n + 1) / 2;
    rank += passes(rank + half - 1) ? half : 0;
    n -= half;
  }
  return rank;
}

inline void prefetch(const void* node, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes && at < kPrefetchBytes; at += kLineBytes) {
    __builtin_prefetch(static_cast<const std::byte*>(node) + at);
  }
}

// Saves the slots of the ranks from `rank` on, which become free.
template <class Node>
Status vacate_from(Transaction& tx, const Node& node, Permutation order, unsigned rank) {
  unsigned leaving = 0;
  for (; rank < order.count(); ++rank) leaving |= 1u << order.slot(rank);
  return vacate_slots(tx, node.slot, leaving);
}

}  // namespace TENUTO_NS::slots
