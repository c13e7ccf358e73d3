// The table of a HashMap (tenuto/hash_map.h): its buckets, and how they are searched.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tenuto/element.h"
#include "tenuto/maps/slots.h"
#include "tenuto/p.h"
#include "tenuto/status.h"
#include "tenuto/tx.h"

namespace TENUTO_NS::slots {

// Entries in seven slots. Those that do not fit are in buckets behind it, which are not empty.
template <class K, class V>
struct Bucket {
  struct Slot {
    K key;
    V value;
  };
  p<std::uint64_t> tags;
  p<Bucket*> more;
  Slots<Slot, Tags::kSlots> slot;
};

// Segments of buckets: of one, and of 1, 2, 4 and so on up to kSegmentBuckets, and then all of
// kSegmentBuckets. A commit flushes a new segment, so its size is bounded.
template <class B>
struct Directory {
  p<std::uint64_t> capacity;
  p<B*>& segment(std::uint64_t i) { return reinterpret_cast<p<B*>*>(this + 1)[i]; }
  static std::size_t bytes(std::uint64_t capacity) {
    return sizeof(Directory) + capacity * sizeof(p<B*>);
  }
};

template <class K, class V, class Hash, class Equal>
class HashBuckets {
 protected:
  using Bucket = slots::Bucket<K, V>;
  using Slot = typename Bucket::Slot;
  using Directory = slots::Directory<Bucket>;

  static constexpr std::uint64_t kSegmentBytesMax = 64 << 10;
  static constexpr unsigned kSegmentBits =
      sizeof(Bucket) >= kSegmentBytesMax
          ? 0
          : static_cast<unsigned>(std::bit_width(kSegmentBytesMax / sizeof(Bucket))) - 1;
  static constexpr std::uint64_t kSegmentBuckets = std::uint64_t{1} << kSegmentBits;

  struct Where {
    Bucket* bucket = nullptr;  // null: not found
    Bucket* before = nullptr;  // of the chain; null: `bucket` is the first
    unsigned slot = 0;
    const Slot& entry() const { return bucket->slot[slot]; }
  };

  HashBuckets() = default;
  HashBuckets(Relocation, HashBuckets& from) noexcept
      : directory_(from.directory_), buckets_(from.buckets_), size_(from.size_) {}

  template <class Key>
  static std::uint64_t hash_of(const Key& key) {
    // The type of a number must not matter.
    if constexpr (std::is_arithmetic_v<K> || std::is_enum_v<K>) {
      return Hash{}(static_cast<K>(key));
    } else {
      return Hash{}(key);
    }
  }
  static constexpr std::uint8_t tag_of(std::uint64_t hash) {
    return static_cast<std::uint8_t>(hash >> 56);
  }
  // Linear hashing: the bucket is the hash modulo the power of two above the number of buckets, or
  // where there is none yet, modulo half of it.
  static constexpr std::uint64_t index_of(std::uint64_t hash, std::uint64_t buckets) {
    const std::uint64_t half = std::bit_floor(buckets);
    const std::uint64_t index = hash & (2 * half - 1);
    return index < buckets ? index : index - half;
  }
  static constexpr std::uint64_t segment_of(std::uint64_t index) {
    return index < kSegmentBuckets ? static_cast<std::uint64_t>(std::bit_width(index))
                                   : kSegmentBits + (index >> kSegmentBits);
  }
  static constexpr std::uint64_t first_of(std::uint64_t segment) {
    if (segment == 0) return 0;
    return segment <= kSegmentBits ? std::uint64_t{1} << (segment - 1)
                                   : (segment - kSegmentBits) << kSegmentBits;
  }
  static constexpr std::uint64_t buckets_of(std::uint64_t segment) {
    return first_of(segment + 1) - first_of(segment);
  }
  Bucket* bucket(std::uint64_t index) const {
    const std::uint64_t segment = segment_of(index);
    return directory_.get()->segment(segment).get() + (index - first_of(segment));
  }

  template <class Key>
  Where find_entry(const Key& key, std::uint64_t hash) const;
  template <class Key>
  const V* find_value(const Key& key) const {
    const Where at = find_entry(key, hash_of(key));
    return at.bucket == nullptr ? nullptr : &at.entry().value;
  }
  Status clear_all(Transaction& tx);
  template <class Blocks>
  Status validate_all(const Blocks& blocks, Report* report) const;
  template <class F>
  void visit_nodes(F&& f) const;
  void visit_references(const References& visit) const;

 private:
  template <class Blocks>
  bool are_blocks(const Blocks& blocks) const;
  template <class Blocks>
  Status validate_chain(const Blocks& blocks, std::uint64_t index, Report* report) const;

 protected:
  p<Directory*> directory_;  // null: no bucket
  p<std::uint64_t> buckets_;
  p<std::uint64_t> size_;
};

template <class K, class V, class Hash, class Equal>
template <class Key>
typename HashBuckets<K, V, Hash, Equal>::Where HashBuckets<K, V, Hash, Equal>::find_entry(
    const Key& key, std::uint64_t hash) const {
  const std::uint64_t buckets = buckets_;
  if (buckets == 0) return {};
  Bucket* before = nullptr;
  for (Bucket* b = bucket(index_of(hash, buckets)); b != nullptr; b = b->more.get()) {
    const unsigned matches = Tags(b->tags).matches(tag_of(hash));
    for (unsigned left = matches; left != 0; left &= left - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(left));
      if (Equal{}(b->slot[slot].key, key)) return {b, before, slot};
    }
    before = b;
  }
  return {};
}

template <class K, class V, class Hash, class Equal>
Status HashBuckets<K, V, Hash, Equal>::clear_all(Transaction& tx) {
  TENUTO_TRY(tx.status());
  const std::uint64_t buckets = buckets_;
  if (buckets == 0) return Status::ok;
  for (std::uint64_t i = 0; i < buckets; ++i) {
    for (Bucket* b = bucket(i); b != nullptr;) {
      Bucket* const next = b->more.get();
      if constexpr (Owner<K> || Owner<V>) {
        for (unsigned used = Tags(b->tags).used(); used != 0; used &= used - 1) {
          Slot& entry = b->slot[static_cast<unsigned>(std::countr_zero(used))];
          TENUTO_TRY(::tenuto::release(entry.key, tx));
          TENUTO_TRY(::tenuto::release(entry.value, tx));
        }
      }
      if (b != bucket(i)) TENUTO_TRY(free_node(tx, b));
      b = next;
    }
  }
  Directory& directory = *directory_.get();
  for (std::uint64_t s = 0; s <= segment_of(buckets - 1); ++s) {
    TENUTO_TRY(free_node(tx, directory.segment(s).get()));
  }
  TENUTO_TRY(free_node(tx, &directory));
  directory_ = nullptr;
  buckets_ = 0;
  size_ = 0;
  return tx.status();
}

template <class K, class V, class Hash, class Equal>
template <class F>
void HashBuckets<K, V, Hash, Equal>::visit_nodes(F&& f) const {
  if (buckets_ == 0) return;
  f(directory_.get());
  for (std::uint64_t i = 0; i < buckets_; ++i) {
    const Bucket* const first = bucket(i);
    if (i == first_of(segment_of(i))) f(first);
    for (const Bucket* b = first->more.get(); b != nullptr; b = b->more.get()) f(b);
  }
}

// Of bytes that may be anything.
template <class K, class V, class Hash, class Equal>
void HashBuckets<K, V, Hash, Equal>::visit_references(const References& visit) const {
  if (buckets_ == 0) return;
  if (!are_blocks(visit)) return visit.words(this, sizeof *this);
  Directory* const directory = directory_.get();
  if (!visit.owns(directory, sizeof *directory)) return;
  for (std::uint64_t i = 0; i < buckets_; ++i) {
    const Bucket* b = bucket(i);
    if (i == first_of(segment_of(i))) static_cast<void>(visit.owns(b, sizeof *b));
    do {
      for (unsigned used = Tags(b->tags).used(); used != 0; used &= used - 1) {
        const auto slot = static_cast<unsigned>(std::countr_zero(used));
        if (slot >= Tags::kSlots) break;
        const Slot& entry = b->slot[slot];
        visit_key(visit, entry.key);
        visit_element(visit, entry.value);
      }
      b = b->more.get();
    } while (b != nullptr && visit.owns(b, sizeof *b));
  }
}

// --- validation ----------------------------------------------------------------------------------

// The directory and its segments.
template <class K, class V, class Hash, class Equal>
template <class Blocks>
bool HashBuckets<K, V, Hash, Equal>::are_blocks(const Blocks& blocks) const {
  constexpr std::uint64_t kCapacityMax = std::uint64_t{1} << 48;
  Directory* const directory = directory_.get();
  if (!blocks.has(directory, sizeof(Directory))) return false;
  const std::uint64_t capacity = directory->capacity;
  if (capacity > kCapacityMax || !blocks.has(directory, Directory::bytes(capacity))) return false;
  const std::uint64_t last = segment_of(buckets_ - 1);
  if (last >= capacity) return false;
  for (std::uint64_t s = 0; s <= last; ++s) {
    const std::uint64_t bytes = buckets_of(s) * sizeof(Bucket);
    if (!blocks.has(directory->segment(s).get(), bytes, alignof(Bucket))) return false;
  }
  return true;
}

// The buckets behind one, and the elements in them, before any of these is compared. A second
// pointer at half the speed finds a ring.
template <class K, class V, class Hash, class Equal>
template <class Blocks>
Status HashBuckets<K, V, Hash, Equal>::validate_chain(const Blocks& blocks, std::uint64_t index,
                                                      Report* report) const {
  const auto wrong = [&](const char* what) { return fail(Status::corrupt, report, what); };
  const Bucket* const first = bucket(index);
  const Bucket* behind = first;
  std::uint64_t steps = 0;
  for (const Bucket* b = first; b != nullptr; b = b->more.get(), ++steps) {
    if (b != first && !blocks.has(b, sizeof(Bucket), alignof(Bucket))) {
      return wrong("a bucket behind another is no block");
    }
    if (steps > 0 && b == behind) return wrong("buckets are behind each other in a ring");
    if (steps % 2 == 1) behind = behind->more.get();
    const Tags tags(b->tags);
    if (!tags.sound()) return wrong("a free slot of a bucket has a tag");
    if (b != first && tags.used() == 0) return wrong("a bucket behind another is empty");
    for (unsigned used = tags.used(); used != 0; used &= used - 1) {
      const Slot& slot = b->slot[static_cast<unsigned>(std::countr_zero(used))];
      TENUTO_TRY(blocks.validate(slot.key, report));
      TENUTO_TRY(blocks.validate(slot.value, report));
    }
  }
  return Status::ok;
}

template <class K, class V, class Hash, class Equal>
template <class Blocks>
Status HashBuckets<K, V, Hash, Equal>::validate_all(const Blocks& blocks, Report* report) const {
  const auto wrong = [&](const char* what) { return fail(Status::corrupt, report, what); };
  if ((directory_.get() == nullptr) != (buckets_ == 0)) {
    return wrong("a hash map has buckets and no directory, or the reverse");
  }
  if (buckets_ > 0 && !are_blocks(blocks)) return wrong("buckets of a hash map are no block");
  std::uint64_t entries = 0;
  for (std::uint64_t i = 0; i < buckets_; ++i) {
    TENUTO_TRY(validate_chain(blocks, i, report));
    for (Bucket* b = bucket(i); b != nullptr; b = b->more.get()) {
      const Tags tags(b->tags);
      for (unsigned used = tags.used(); used != 0; used &= used - 1) {
        const auto slot = static_cast<unsigned>(std::countr_zero(used));
        const std::uint64_t hash = hash_of(b->slot[slot].key);
        if (index_of(hash, buckets_) != i) return wrong("a key is in another bucket than its own");
        if (tags.tag(slot) != tag_of(hash)) return wrong("the tag of a key is not its hash's");
        const Where found = find_entry(b->slot[slot].key, hash);
        if (found.bucket != b || found.slot != slot) return wrong("a key is there twice");
        entries += 1;
      }
    }
  }
  if (entries != size_) return wrong("the size of a hash map is not the number of its entries");
  return Status::ok;
}

}  // namespace TENUTO_NS::slots
