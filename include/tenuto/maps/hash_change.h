// How the table of a HashMap (tenuto/hash_map.h) is changed.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

#include "tenuto/maps/hash_buckets.h"

namespace TENUTO_NS::slots {

template <class K, class V, class Hash, class Equal>
class HashTable : public HashBuckets<K, V, Hash, Equal> {
  using Buckets = HashBuckets<K, V, Hash, Equal>;

 protected:
  using Buckets::bucket;
  using Buckets::buckets_;
  using Buckets::buckets_of;
  using Buckets::directory_;
  using Buckets::first_of;
  using Buckets::hash_of;
  using Buckets::index_of;
  using Buckets::segment_of;
  using Buckets::size_;
  using Buckets::tag_of;
  using typename Buckets::Bucket;
  using typename Buckets::Directory;
  using typename Buckets::Slot;
  using typename Buckets::Where;

  // Entries for each bucket: with more the next one is split, with less the last one is merged. The
  // two are far apart, so that erases and inserts in turn do neither.
  static constexpr std::uint64_t kLoadMax = 4;
  static constexpr std::uint64_t kLoadMin = 2;
  static constexpr std::uint64_t kDirectoryFirst = 7;  // segments: 64 bytes

  HashTable() = default;
  HashTable(Relocation r, HashTable& from) noexcept : Buckets(r, from) {}

  template <class Key, class... Value>
  Result<V*> insert_new(Transaction& tx, const Key& key, const Value&... value);
  template <class Key>
  Status erase_key(Transaction& tx, const Key& key);

 private:
  Status start(Transaction& tx);
  Status erase_entry(Transaction& tx, const Where& at);
  static Status drop_if_empty(Transaction& tx, Bucket* before, Bucket& at, Tags tags);
  static Status make_chain(Transaction& tx, unsigned entries, Bucket*& chain);
  static void free_chain(Transaction& tx, Bucket* chain);
  class Split;
  class Merge;
};

// --- buckets behind others -----------------------------------------------------------------------

// As many as the entries need. After an error those that were made are in the chain.
template <class K, class V, class Hash, class Equal>
Status HashTable<K, V, Hash, Equal>::make_chain(Transaction& tx, unsigned entries, Bucket*& chain) {
  for (unsigned room = 0; room < entries; room += Tags::kSlots) {
    const Result<void*> block = make_node(tx, sizeof(Bucket), alignof(Bucket));
    if (!block) return block.error();
    auto* const b = new (*block) Bucket;
    b->more = chain;
    chain = b;
  }
  return Status::ok;
}

template <class K, class V, class Hash, class Equal>
void HashTable<K, V, Hash, Equal>::free_chain(Transaction& tx, Bucket* chain) {
  while (chain != nullptr) {
    Bucket* const next = chain->more.get();
    static_cast<void>(tx.free(chain));
    chain = next;
  }
}

// --- the split of a bucket -----------------------------------------------------------------------

// Half of a bucket's entries move to a new bucket, behind the last one. prepare() does what may
// fail: it takes blocks, and saves the slots that become free.
template <class K, class V, class Hash, class Equal>
class HashTable<K, V, Hash, Equal>::Split {
 public:
  Split(HashTable& table, Transaction& tx)
      : table_(table),
        tx_(tx),
        to_(table.buckets_),
        half_(std::bit_floor(to_)),
        from_(table.bucket(to_ - half_)) {}

  Status prepare() {
    const Status s = take_and_save();
    if (s == Status::ok) return s;
    if (segment_ != nullptr) static_cast<void>(tx_.free(segment_));
    if (directory_ != nullptr) static_cast<void>(tx_.free(directory_));
    free_chain(tx_, chain_);
    return s;
  }

  Status move() {
    TENUTO_TRY(extend());
    Bucket* fresh = table_.bucket(to_);
    const unsigned first = moving_ < Tags::kSlots ? moving_ : Tags::kSlots;
    const auto* const end = reinterpret_cast<const std::byte*>(&fresh->slot[first]);
    TENUTO_TRY(fill(tx_, fresh,
                    static_cast<std::size_t>(end - reinterpret_cast<const std::byte*>(fresh))));
    new (static_cast<void*>(fresh)) Bucket;
    new (static_cast<void*>(&fresh->more)) p<Bucket*>(chain_);
    Tags filled;
    Bucket* before = nullptr;
    for (Bucket* b = from_; b != nullptr;) {
      Bucket* const next = b->more.get();
      const Tags tags(b->tags);
      const unsigned leaving = leaving_of(*b);
      for (unsigned left = leaving; left != 0; left &= left - 1) {
        const auto slot = static_cast<unsigned>(std::countr_zero(left));
        if (filled.full()) {
          new (static_cast<void*>(&fresh->tags)) p<std::uint64_t>(filled.word());
          fresh = fresh->more.get();
          filled = Tags();
        }
        const unsigned to = filled.next_free();
        move_entry(fresh->slot[to], b->slot[slot]);
        filled = filled.filled(to, tags.tag(slot));
      }
      const Tags rest = tags.emptied(leaving);
      if (leaving != 0) assign(b->tags, rest.word());
      TENUTO_TRY(drop_if_empty(tx_, before, *b, rest));
      if (before == nullptr || rest.used() != 0) before = b;
      b = next;
    }
    new (static_cast<void*>(&fresh->tags)) p<std::uint64_t>(filled.word());
    table_.buckets_ += 1;
    return tx_.status();
  }

 private:
  unsigned leaving_of(const Bucket& b) const {
    unsigned leaving = 0;
    for (unsigned used = Tags(b.tags).used(); used != 0; used &= used - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(used));
      if ((hash_of(b.slot[slot].key) & half_) != 0) leaving |= 1u << slot;
    }
    return leaving;
  }

  Status take_and_save() {
    for (Bucket* b = from_; b != nullptr; b = b->more.get()) {
      const unsigned leaving = leaving_of(*b);
      moving_ += static_cast<unsigned>(std::popcount(leaving));
      TENUTO_TRY(vacate_slots(tx_, b->slot, leaving));
    }
    if (moving_ > Tags::kSlots) TENUTO_TRY(make_chain(tx_, moving_ - Tags::kSlots, chain_));
    const std::uint64_t segment = segment_of(to_);
    if (to_ != first_of(segment)) return Status::ok;
    const std::uint64_t capacity = table_.directory_.get()->capacity;
    if (segment == capacity) TENUTO_TRY(take(directory_, Directory::bytes(2 * capacity)));
    return take(segment_, buckets_of(segment) * sizeof(Bucket));
  }
  Status take(void*& block, std::size_t bytes) {
    const Result<void*> made = make_node(tx_, bytes, alignof(Bucket));
    if (!made) return made.error();
    block = *made;
    return Status::ok;
  }

  // The directory gets the new segment.
  Status extend() {
    if (segment_ == nullptr) return Status::ok;
    const std::uint64_t segment = segment_of(to_);
    Directory* directory = table_.directory_.get();
    if (directory_ != nullptr) {
      auto* const larger = new (directory_) Directory;
      larger->capacity = 2 * segment;
      for (std::uint64_t i = 0; i < 2 * segment; ++i) {
        Bucket* const old = i < segment ? directory->segment(i).get() : nullptr;
        new (static_cast<void*>(&larger->segment(i))) p<Bucket*>(old);
      }
      TENUTO_TRY(free_node(tx_, directory));
      table_.directory_ = larger;
      directory = larger;
    }
    directory->segment(segment) = static_cast<Bucket*>(segment_);
    return Status::ok;
  }

  HashTable& table_;
  Transaction& tx_;
  const std::uint64_t to_;    // the new bucket's number
  const std::uint64_t half_;  // the bit of the hash that decides
  Bucket* const from_;
  unsigned moving_ = 0;  // entries
  Bucket* chain_ = nullptr;
  void* segment_ = nullptr;    // not null: the new bucket is its first
  void* directory_ = nullptr;  // not null: a larger one
};

// --- the merge of the last bucket ----------------------------------------------------------------

// The reverse of a split: the last bucket's entries move back to the one they came from, and the
// last segment is freed with its first bucket. The directory stays. prepare() as of Split.
template <class K, class V, class Hash, class Equal>
class HashTable<K, V, Hash, Equal>::Merge {
 public:
  Merge(HashTable& table, Transaction& tx)
      : table_(table),
        tx_(tx),
        number_(table.buckets_ - 1),
        segment_(segment_of(number_)),
        from_(table.bucket(number_)),
        to_(table.bucket(number_ - std::bit_floor(number_))) {}

  Status prepare() {
    const Status s = take_and_save();
    if (s != Status::ok) free_chain(tx_, chain_);
    return s;
  }

  Status move() {
    Bucket* to = to_;
    if (chain_ != nullptr) {
      while (to->more.get() != nullptr) to = to->more.get();
      to->more = chain_;
      to = to_;
    }
    Tags filled(to->tags);
    for (Bucket* b = from_; b != nullptr;) {
      Bucket* const next = b->more.get();
      const Tags tags(b->tags);
      for (unsigned used = tags.used(); used != 0; used &= used - 1) {
        while (filled.full()) {
          count(*to, filled);
          to = to->more.get();
          filled = Tags(to->tags);
        }
        const auto slot = static_cast<unsigned>(std::countr_zero(used));
        const unsigned at = filled.next_free();
        TENUTO_TRY(fill(tx_, &to->slot[at], sizeof(Slot)));
        move_entry(to->slot[at], b->slot[slot]);
        filled = filled.filled(at, tags.tag(slot));
      }
      if (b != from_ || ends_segment()) TENUTO_TRY(free_node(tx_, b));
      b = next;
    }
    count(*to, filled);
    if (ends_segment()) table_.directory_.get()->segment(segment_) = nullptr;
    table_.buckets_ = number_;
    return tx_.status();
  }

 private:
  bool ends_segment() const { return number_ == first_of(segment_); }
  static void count(Bucket& bucket, Tags tags) {
    if (tags.word() != bucket.tags) assign(bucket.tags, tags.word());
  }

  // A bucket whose segment stays may be filled by a split in this transaction, so it is saved up to
  // its last entry.
  Status take_and_save() {
    unsigned moving = 0, room = 0;
    for (Bucket* b = from_; b != nullptr; b = b->more.get()) {
      moving += static_cast<unsigned>(std::popcount(Tags(b->tags).used()));
    }
    for (Bucket* b = to_; b != nullptr; b = b->more.get()) {
      room += Tags::kSlots - static_cast<unsigned>(std::popcount(Tags(b->tags).used()));
    }
    if (!ends_segment()) {
      const auto slots = static_cast<unsigned>(std::bit_width(Tags(from_->tags).used()));
      const auto* const end = reinterpret_cast<const std::byte*>(&from_->slot[slots]);
      const auto* const begin = reinterpret_cast<const std::byte*>(from_);
      TENUTO_TRY(save_merged(tx_, from_, static_cast<std::size_t>(end - begin)));
    }
    return moving <= room ? Status::ok : make_chain(tx_, moving - room, chain_);
  }

  HashTable& table_;
  Transaction& tx_;
  const std::uint64_t number_;  // of the last bucket
  const std::uint64_t segment_;
  Bucket* const from_;
  Bucket* const to_;
  Bucket* chain_ = nullptr;
};

// --- changes -------------------------------------------------------------------------------------

template <class K, class V, class Hash, class Equal>
Status HashTable<K, V, Hash, Equal>::start(Transaction& tx) {
  const Result<void*> directory =
      make_node(tx, Directory::bytes(kDirectoryFirst), alignof(Directory));
  if (!directory) return directory.error();
  const Result<void*> first = make_node(tx, sizeof(Bucket), alignof(Bucket));
  if (!first) {
    static_cast<void>(tx.free(*directory));
    return first.error();
  }
  auto* const made = new (*directory) Directory;
  made->capacity = kDirectoryFirst;
  for (std::uint64_t i = 0; i < kDirectoryFirst; ++i) {
    Bucket* const there = i == 0 ? new (*first) Bucket : nullptr;
    new (static_cast<void*>(&made->segment(i))) p<Bucket*>(there);
  }
  directory_ = made;
  buckets_ = 1;
  return tx.status();
}

template <class K, class V, class Hash, class Equal>
template <class Key, class... Value>
Result<V*> HashTable<K, V, Hash, Equal>::insert_new(Transaction& tx, const Key& key,
                                                    const Value&... value) {
  TENUTO_TRY(tx.status());
  const std::uint64_t hash = hash_of(key);
  if (this->find_entry(key, hash).bucket != nullptr) return Status::exists;
  TENUTO_TRY(begin_insert(tx, size_));
  if (buckets_ == 0) TENUTO_TRY(start(tx));
  Bucket* at = bucket(index_of(hash, buckets_));
  while (Tags(at->tags).full() && at->more.get() != nullptr) at = at->more.get();
  Bucket* fresh = nullptr;
  if (Tags(at->tags).full()) {
    const Result<void*> block = make_node(tx, sizeof(Bucket), alignof(Bucket));
    if (!block) return block.error();
    fresh = new (*block) Bucket;
  }
  Bucket& to = fresh == nullptr ? *at : *fresh;
  const Tags tags(to.tags);
  const unsigned slot = tags.next_free();
  Status made = fresh != nullptr ? Status::ok : fill(tx, &to.slot[slot], sizeof(Slot));
  if (made == Status::ok) made = make_entry(tx, to.slot[slot], key, value...);
  if (made != Status::ok) {
    if (fresh != nullptr) static_cast<void>(tx.free(fresh));
    return made;
  }
  assign(to.tags, tags.filled(slot, tag_of(hash)).word());
  if (fresh != nullptr) at->more = fresh;
  size_ += 1;
  TENUTO_TRY(tx.status());
  if (size_ <= kLoadMax * buckets_) return &to.slot[slot].value;
  // Without memory for it the buckets are as they are, and the next insert tries again.
  Split split(*this, tx);
  if (split.prepare() == Status::ok) TENUTO_TRY(all_or_abort(tx, split.move()));
  TENUTO_TRY(tx.status());
  return const_cast<V*>(&this->find_entry(key, hash).entry().value);
}

template <class K, class V, class Hash, class Equal>
template <class Key>
Status HashTable<K, V, Hash, Equal>::erase_key(Transaction& tx, const Key& key) {
  TENUTO_TRY(tx.status());
  const Where at = this->find_entry(key, hash_of(key));
  if (at.bucket == nullptr) return Status::not_found;
  TENUTO_TRY(vacate(tx, &at.entry(), sizeof(Slot)));
  TENUTO_TRY(all_or_abort(tx, erase_entry(tx, at)));
  if (buckets_ == 1 || size_ >= kLoadMin * buckets_) return Status::ok;
  // Without memory for it the buckets are as they are, and the next erase tries again.
  Merge merge(*this, tx);
  if (merge.prepare() == Status::ok) TENUTO_TRY(all_or_abort(tx, merge.move()));
  return tx.status();
}

template <class K, class V, class Hash, class Equal>
Status HashTable<K, V, Hash, Equal>::erase_entry(Transaction& tx, const Where& at) {
  Slot& entry = at.bucket->slot[at.slot];
  TENUTO_TRY(::tenuto::release(entry.key, tx));
  TENUTO_TRY(::tenuto::release(entry.value, tx));
  const Tags rest = Tags(at.bucket->tags).emptied(1u << at.slot);
  assign(at.bucket->tags, rest.word());
  TENUTO_TRY(drop_if_empty(tx, at.before, *at.bucket, rest));
  size_ -= 1;
  return tx.status();
}

// A bucket behind another one is freed when it is empty.
template <class K, class V, class Hash, class Equal>
Status HashTable<K, V, Hash, Equal>::drop_if_empty(Transaction& tx, Bucket* before, Bucket& at,
                                                   Tags tags) {
  if (before == nullptr || tags.used() != 0) return Status::ok;
  before->more = at.more.get();
  return free_node(tx, &at);
}

}  // namespace TENUTO_NS::slots
