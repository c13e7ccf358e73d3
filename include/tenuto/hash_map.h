// A hash map in a pool. It grows and shrinks by one bucket at a time, so no call waits for all
// entries.
//
//   struct Root {
//     HashMap<std::uint64_t, std::uint64_t> visits;
//   };
//   pool.run([&](Transaction& tx) { return root.visits.insert(tx, 7, 42); });
//
// Linear hashing (Litwin, VLDB 1980): when there are more than four entries for each bucket, the
// next bucket in turn is split, and when there are less than two, the last one is merged into the
// one it came from. A bucket has seven slots, and one word with a byte of the hash of
// each. A search compares keys only where that byte matches. For keys and values of 8 bytes a
// bucket is two lines, so that a lookup reads two lines next to each other besides the header; an
// insertion writes a free slot, and nothing is moved. A chain of nodes would cost a block, its bit
// and its entry, at each insertion, and a miss for each node at a lookup. Entries without room are
// in further buckets behind their own (one in thirty).
//
// get, insert, erase and the other calls that all maps have: tenuto/maps/map_calls.h.
//
// A map is part of an object in the pool: the root, or an element of another container. Zero bytes
// are an empty map. K and V are elements (tenuto/element.h). Hash and Equal take keys, and whatever
// find and the others are called with. The hash is used on media: it must be the same in each run.
//
// Errors: a mutator that is refused has changed nothing: not_found, exists, full, too_large,
// invalid_argument (the map is not in the transaction's pool), or the transaction's status. If
// something fails halfway, or bad_alloc passes through, the transaction is rolled back.
// Thread safety: as a variable. Hold a lock until the transaction ends (Transaction::lock), or use
// a ConcurrentHashMap.
// Durability: that of the transaction. Readers see what this thread's transaction has changed.
//
// Cost, K and V of 8 bytes (tests/maps_test.cc, tests/hash_map_test.cc): an insert or erase is 3
// fences and 5 or 6 lines. With the splits, one at each fourth insert, it is 8.2 lines on average;
// an erase with the merges, one at each second erase of a map that shrinks, 7.9. A new segment of
// buckets is flushed as a whole, 64 KiB at most. All of a transaction's calls share the 3 fences,
// unless one fills a slot that another one emptied.
//
// Space: 35 bytes for each entry of 16 while it grows, and at most twice as many while it shrinks,
// besides a segment. A segment is freed with its first bucket. The directory, of 8 bytes for each
// segment, never shrinks, and the last bucket stays; clear frees them. A merge that needs a bucket,
// in a full pool, is left to the next erase.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tenuto/maps/hash_change.h"
#include "tenuto/maps/map_calls.h"

namespace TENUTO_NS {

// The hash of the maps: of numbers, of what converts to std::string_view, and of types whose bytes
// are their value. It never changes.
struct StableHash {
  template <class T>
  std::uint64_t operator()(const T& key) const {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      return slots::hash_number(static_cast<std::uint64_t>(key));
    } else if constexpr (std::convertible_to<const T&, std::string_view>) {
      return slots::hash_bytes(key);
    } else {
      static_assert(std::has_unique_object_representations_v<T>,
                    "this key needs a hash of its own");
      return slots::hash_bytes({reinterpret_cast<const char*>(&key), sizeof key});
    }
  }
};

template <class K, class V, class Hash = StableHash, class Equal = std::equal_to<>>
class HashMap : public slots::MapCalls<slots::HashTable<K, V, Hash, Equal>, K, V> {
  using Calls = slots::MapCalls<slots::HashTable<K, V, Hash, Equal>, K, V>;
  using typename Calls::Bucket;

 public:
  struct Item {
    const K& key;
    const V& value;
  };

  // Forward, over {key, value} in no order. A change of the map makes all of its iterators invalid.
  class Iterator {
   public:
    using iterator_concept = std::forward_iterator_tag;
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
      const auto& entry = bucket_->slot[slot_];
      return {entry.key, entry.value};
    }
    pointer operator->() const { return {**this}; }
    Iterator& operator++() {
      slot_ += 1;
      find_used();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& o) const { return bucket_ == o.bucket_ && slot_ == o.slot_; }

   private:
    friend class HashMap;
    Iterator(const HashMap& map, std::uint64_t index, const Bucket* bucket, unsigned slot)
        : map_(&map), index_(index), bucket_(bucket), slot_(slot) {}
    // This slot or the next one that is used.
    void find_used() {
      while (bucket_ != nullptr) {
        const unsigned used = slots::Tags(bucket_->tags).used() >> slot_;
        if (used != 0) {
          slot_ += static_cast<unsigned>(std::countr_zero(used));
          return;
        }
        slot_ = 0;
        bucket_ = bucket_->more.get();
        if (bucket_ == nullptr && ++index_ < map_->buckets_) bucket_ = map_->bucket(index_);
      }
    }
    const HashMap* map_ = nullptr;
    std::uint64_t index_ = 0;
    const Bucket* bucket_ = nullptr;  // null: the end
    unsigned slot_ = 0;
  };
  using const_iterator = Iterator;

  HashMap() = default;
  HashMap(Relocation r, HashMap& from) noexcept : Calls(r, from) {}

  template <class Key>
  Iterator find(const Key& key) const {
    const std::uint64_t hash = this->hash_of(key);
    const auto at = this->find_entry(key, hash);
    if (at.bucket == nullptr) return end();
    return Iterator(*this, this->index_of(hash, this->buckets_), at.bucket, at.slot);
  }
  Iterator begin() const {
    if (this->buckets_ == 0) return end();
    Iterator first(*this, 0, this->bucket(0), 0);
    first.find_used();
    return first;
  }
  Iterator end() const { return Iterator(*this, 0, nullptr, 0); }

  // The hash of a key, as this map takes it.
  template <class Key>
  static std::uint64_t stable_hash(const Key& key) {
    return Calls::hash_of(key);
  }
};

}  // namespace TENUTO_NS
