// The lookup cache of a tree: a hash table in DRAM from keys to the places of their records. A hit
// spares a get the way through the index and the leaf: it reads one line here, and the record. The
// cache is filled by gets, is never authoritative, and may lose any entry at any time. Reads at a
// snapshot, cursors and transactions pass it by.
//
//   bucket, one line   version | 7 entries {tag 16 bits, place of the record 48 bits}
//   version            bit 0: held; above: counts the changes
//
// **Why a hit is right.** A hit means: the entry named the key's present record when it was loaded.
//   - A writer that replaces, erases or moves a record holds the key's bucket (Change, forget)
//     after it has locked the leaf and before it loads the timestamp (versions.h). Readers take a
//     held bucket for a miss. So they go to the leaf, and wait there for the writer. The entry is
//     gone, or names the new record, which is durable by then, before the bucket is released.
//     Hence a hit is before the writer's load, in the order of all changes: a snapshot that was
//     taken before the hit does not see what the hit has missed.
//   - A batch forgets all its keys before its load, and enters their new records when it is
//     committed. So nobody reads one key's new record, then another key's old one here.
//   - A reader remembers the bucket's version before it looks for the leaf. It enters what it found
//     only if the version is still the same. Otherwise a record that was replaced meanwhile could
//     enter. A writer raises the version even if its key has no entry. An insert need not: no entry
//     says that a key is absent.
//   - The reader is pinned (epoch.h) before it loads an entry, and a record is retired after its
//     entry has gone. So its block is not free. The key is compared: many keys have the same tag.
//
// **Growth.** A table that displaces many entries, and has fewer buckets than the tree's records
// need, is replaced by an empty one. A reader or writer may still use the old table:
//   - A writer that did not find the new table has locked its leaf before the new table could be
//     found. So whoever uses the new table finds the leaf locked, or the change.
//   - Only readers that began before the exchange look into the old table. What they find there was
//     the present record at the exchange or later, so at a moment of their call.
// The old table's pages are given back at once: it reads as empty, and its versions as 0. So a late
// reader may find the version that it remembers, although the key has changed since. Therefore
// enter() asks, when it holds the bucket, whether the table is still the tree's: versions go back
// only after the exchange. The addresses stay until the tree ends. So growth needs no epoch, and no
// two tables have one address.
//
// **Memory.** All trees of a pool share one budget. Without memory or budget the table stays as it
// is. A dropped tree gives its share back. Thread safety: all calls from any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "pm/plant.h"
#include "store/tree/format.h"
#include "store/tree/hash.h"
#include "store/tree/shadow_leaf.h"

namespace TENUTO_NS::store {

// The bytes that the tables of a pool may take.
class LookupBudget {
 public:
  // Before the first get.
  void set_limit(std::uint64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  // False: it would be more than half of what is left, except for a small table. So the table of
  // one large tree leaves room for those of others.
  bool take(std::uint64_t bytes);
  void give(std::uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  // Whether not even the smallest table would fit.
  bool full() const { return left() < kTableLeast; }

 private:
  static constexpr std::uint64_t kTableLeast = 4096;  // a page

  std::uint64_t left() const {
    const std::uint64_t limit = limit_.load(std::memory_order_relaxed);
    return limit - std::min(limit, used_.load(std::memory_order_relaxed));
  }

  std::atomic<std::uint64_t> limit_{0};
  std::atomic<std::uint64_t> used_{0};
};

class LookupCache {
 public:
  explicit LookupCache(LookupBudget& budget) : budget_(budget) {}
  ~LookupCache();
  LookupCache(const LookupCache&) = delete;
  LookupCache& operator=(const LookupCache&) = delete;

  void prefetch(KeyHash hash) const {
    if (const Table* t = table_.load(std::memory_order_acquire)) __builtin_prefetch(&t->of(hash));
  }

  class Look;
  // REQUIRES: an epoch guard, until the record that a place names is not used any more.
  Look look(KeyHash hash) const;
  // Enters the record that the key was found to have after look().
  void enter(const Look& look, PoolOffset record) const;
  // Whether enter() has displaced much, or has found no table. Then call grow().
  bool wants_to_grow() const {
    return pressure_.load(std::memory_order_relaxed) >= patience_.load(std::memory_order_relaxed);
  }
  // Makes a table for so many records, if that is larger than the present one.
  void grow(std::uint64_t records) const;

  class Change;
  // Removes the key's entry. REQUIRES: as Change.
  void forget(KeyHash hash) const;
  // Whether an entry names this record.
  bool names(KeyHash hash, PoolOffset record) const;
  std::uint64_t bytes() const;

 private:
  struct alignas(kLineBytes) Bucket {
    static constexpr std::uint64_t kHeld = 1;
    static constexpr std::uint64_t kStep = 2;
    static constexpr unsigned kEntries = 7;

    std::atomic<std::uint64_t> version{0};
    std::atomic<std::uint64_t> entry[kEntries] = {};

    bool hold_if(std::uint64_t seen) {
      return version.compare_exchange_strong(seen, seen | kHeld, std::memory_order_seq_cst,
                                             std::memory_order_relaxed);
    }
    void hold();
    // Release: meets look().
    void release() {
      // Not one less: the pages may have been given back meanwhile.
      version.store((version.load(std::memory_order_relaxed) & ~kHeld) + kStep,
                    std::memory_order_release);
    }
  };
  static_assert(sizeof(Bucket) == kLineBytes);

  struct Table {
    Bucket* const buckets;
    const std::uint64_t count;  // a power of two
    Table* const before;        // the one that this one has replaced

    Bucket& of(KeyHash hash) const { return buckets[hash.mixed >> 8 & (count - 1)]; }
    std::uint64_t bytes() const { return count * sizeof(Bucket); }
  };
  static constexpr unsigned kTagShift = 48;
  static std::uint64_t tag_of(KeyHash hash) { return hash.mixed >> kTagShift; }
  static std::uint64_t entry_of(KeyHash hash, PoolOffset record) {
    return tag_of(hash) << kTagShift | record.value;
  }

  static Table* make_table(std::uint64_t buckets, Table* before);

  LookupBudget& budget_;
  mutable std::atomic<Table*> table_{nullptr};
  // Hints. Written now and then by readers, so on a line of their own.
  alignas(kLineBytes) mutable std::atomic<std::uint64_t> pressure_{0};
  mutable std::atomic<std::uint64_t> patience_{1};
  mutable std::mutex mu_;  // held by the thread that grows; nobody waits for it
};

// What a reader has seen of a key's bucket: places of records that may be the key's.
class LookupCache::Look {
 public:
  KeyHash hash() const { return hash_; }
  // The next place. None: there is no other.
  PoolOffset next() {
    while (left_ != 0) {
      const std::uint64_t entry = bucket_->entry[--left_].load(std::memory_order_acquire);
      if (entry >> kTagShift == tag_of(hash_)) {
        const PoolOffset at{entry & ((1ull << kTagShift) - 1)};
        if (at) return at;
      }
    }
    return {};
  }

 private:
  friend LookupCache;
  const Table* table_ = nullptr;
  Bucket* bucket_ = nullptr;  // null: there is no table
  std::uint64_t version_ = 0;
  KeyHash hash_{};
  unsigned left_ = 0;
};

// The two loads and the hold of a writer are sequentially consistent: "Why a hit is right".
inline LookupCache::Look LookupCache::look(KeyHash hash) const {
  Look look;
  look.hash_ = hash;
  look.table_ = table_.load(std::memory_order_seq_cst);
  if (look.table_ == nullptr) return look;
  look.bucket_ = &look.table_->of(hash);
  look.version_ = look.bucket_->version.load(std::memory_order_seq_cst);
  look.left_ = (look.version_ & Bucket::kHeld) != 0 ? 0 : Bucket::kEntries;
  return look;
}

// A change of a key's record. From here to the destructor, readers miss all keys of the bucket.
// REQUIRES: the key's leaf is locked until the change is visible, the timestamp is not loaded yet
// (or the key was forgotten before that), the thread holds no other bucket, and it waits for no
// leaf while it holds this one.
class LookupCache::Change {
 public:
  Change(const LookupCache& cache, KeyHash hash);
  ~Change() { end(); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  // The key's record after the change. It is durable.
  void becomes(PoolOffset record) { record_ = record; }
  // Once; or the destructor does it.
  void end() {
    Bucket* const bucket = std::exchange(bucket_, nullptr);
    if (bucket == nullptr) return;
    if (record_ && free_ < Bucket::kEntries)
      bucket->entry[free_].store(entry_of(hash_, record_), std::memory_order_release);
    bucket->release();
  }

 private:
  Bucket* bucket_ = nullptr;
  const KeyHash hash_;
  unsigned free_ = Bucket::kEntries;  // an entry without a place
  PoolOffset record_{};
};

inline void LookupCache::forget(KeyHash hash) const { const Change gone(*this, hash); }

}  // namespace TENUTO_NS::store
