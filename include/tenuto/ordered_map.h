// A map in a pool whose keys are in order.
//
//   struct Root {
//     OrderedMap<std::uint64_t, std::uint64_t> ages;
//   };
//   pool.run([&](Transaction& tx) { return root.ages.insert(tx, 7, 42); });
//   for (const auto& [key, value] : root.ages) ...
//
// It is a B+-tree. A node has 15 slots and one word with their order (the permutation of Masstree:
// Mao, Kohler, Morris, EuroSys 2012), so an entry is written to a free slot, and nothing is moved.
// Leaves are linked forwards; a step back over the start of a leaf searches from the root.
//
// get, insert, erase and the other calls that all maps have: tenuto/maps/map_calls.h.
//
// A map is part of an object in the pool: the root, or an element of another container. Zero bytes
// are an empty map. K and V are elements (tenuto/element.h). Less compares keys, and keys with
// whatever find and the others are called with (std::string_view for strings).
//
// Errors: a mutator that is refused has changed nothing: not_found, exists, full, too_large,
// invalid_argument (the map is not in the transaction's pool), or the transaction's status. If
// something fails halfway, or bad_alloc passes through, the transaction is rolled back.
// Thread safety: as a variable. Hold a lock until the transaction ends (Transaction::lock).
// Durability: that of the transaction. Readers see what this thread's transaction has changed.
//
// Cost, K and V of 8 bytes (tests/maps_test.cc): an insert or erase is 3 fences and 5 or 6 lines,
// wherever the key belongs. With the splits it is 7.8 lines on average for random keys, and 6.5 in
// ascending order. All of a transaction's calls share the 3 fences, unless one fills a slot that
// another one emptied. A lookup reads one node a level, log(n) to the base of some 10: beside
// std::map in DRAM it takes as long for a hundred keys, and a third of the time for a million.
//
// Space: neighbours in one node have 8 entries or more together, else they are merged. So a
// quarter of the slots is used at worst, two thirds after random inserts, 14 of 15 after ascending
// ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <utility>

#include "tenuto/maps/map_calls.h"
#include "tenuto/maps/ordered_change.h"

namespace TENUTO_NS {

template <class K, class V, class Less = std::less<>>
class OrderedMap : public slots::MapCalls<slots::OrderedTree<K, V, Less>, K, V> {
  using Calls = slots::MapCalls<slots::OrderedTree<K, V, Less>, K, V>;
  using typename Calls::Leaf;
  using Permutation = slots::Permutation;

 public:
  struct Item {
    const K& key;
    const V& value;
  };

  // Bidirectional, over {key, value}. A change of the map makes all of its iterators invalid.
  class Iterator {
   public:
    using iterator_concept = std::bidirectional_iterator_tag;
    using iterator_category = std::input_iterator_tag;
    using value_type = Item;
    using difference_type = std::ptrdiff_t;
    using reference = Item;
    struct pointer {
      Item item;
      const Item* operator->() const { return &item; }
    };

    Iterator() = default;
    Item operator*() const {
      const auto& slot = leaf_->slot[order_.slot(rank_)];
      return {slot.key, slot.value};
    }
    pointer operator->() const { return {**this}; }
    Iterator& operator++() {
      rank_ += 1;
      *this = Iterator(*map_, leaf_, order_, rank_);
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    Iterator& operator--() {
      if (rank_ > 0)
        rank_ -= 1;
      else
        *this = map_->before(*this);
      return *this;
    }
    Iterator operator--(int) {
      Iterator after = *this;
      --*this;
      return after;
    }
    bool operator==(const Iterator& o) const { return leaf_ == o.leaf_ && rank_ == o.rank_; }

   private:
    friend class OrderedMap;
    // The entry of a rank, or if there is none the next one.
    Iterator(const OrderedMap& map, const Leaf* leaf, Permutation order, unsigned rank)
        : map_(&map), leaf_(leaf), order_(order), rank_(rank) {
      while (leaf_ != nullptr && rank_ == order_.count()) {
        leaf_ = leaf_->next.get();
        rank_ = 0;
        if (leaf_ != nullptr) order_ = Permutation(leaf_->order);
      }
    }
    const OrderedMap* map_ = nullptr;
    const Leaf* leaf_ = nullptr;  // null: the end
    Permutation order_;
    unsigned rank_ = 0;
  };
  using const_iterator = Iterator;

  OrderedMap() = default;
  OrderedMap(Relocation r, OrderedMap& from) noexcept : Calls(r, from) {}

  template <class Key>
  Iterator find(const Key& key) const {
    const auto [leaf, order, rank, found] = this->search(key);
    return found ? Iterator(*this, leaf, order, rank) : end();
  }
  // The first entry whose key is not below `key` (upper_bound: that is above it).
  template <class Key>
  Iterator lower_bound(const Key& key) const {
    const auto [leaf, order, rank, found] = this->search(key);
    return Iterator(*this, leaf, order, rank);
  }
  template <class Key>
  Iterator upper_bound(const Key& key) const {
    const auto [leaf, order, rank, found] = this->search(key);
    return Iterator(*this, leaf, order, rank + (found ? 1 : 0));
  }
  Iterator begin() const {
    const Leaf* const leaf = this->first_leaf();
    return Iterator(*this, leaf, leaf == nullptr ? Permutation() : Permutation(leaf->order), 0);
  }
  Iterator end() const { return Iterator(*this, nullptr, Permutation(), 0); }

 private:
  // `at` is the end, or the first entry of a leaf. Before the first entry of the map there is none:
  // the answer is the end.
  Iterator before(const Iterator& at) const {
    typename Calls::Path path;
    const Leaf* leaf = nullptr;
    if (at.leaf_ == nullptr) {
      leaf = this->last_leaf(path);
    } else {
      this->descend((*at).key, path);
      leaf = this->leaf_before(path);
    }
    while (leaf != nullptr && Permutation(leaf->order).count() == 0) leaf = this->leaf_before(path);
    if (leaf == nullptr) return end();
    const Permutation order(leaf->order);
    return Iterator(*this, leaf, order, order.count() - 1);
  }
};

}  // namespace TENUTO_NS
