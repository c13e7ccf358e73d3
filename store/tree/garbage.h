// Garbage: unlinked memory that waits until no reader can look at it (epoch.h). The counts of
// records are kept beside the threads' lists. An item is in three lists, one after the other:
//   fresh    of the thread that retired it. Full at kBatchItems items or kBatchBytes.
//   stamped  of the tree, with its epoch
//   going    of the thread that found its epoch over and no rest that holds it. Nobody can look at
//            it any more, so it may be freed at any time.
//
// **No retire frees much.** A thread looks for what has become free when its fresh list is full.
// It frees that bit by bit while its fresh list fills again: as a rule four items whenever it has
// retired four. So the heap takes blocks at the pace at which it gives them, and no single update
// pays for 64 others.
//
// **Any thread may free what any thread retired.** A thread retires only while it is pinned. While
// it is pinned, its lists belong to it. While it is not, another thread may take their items: it
// marks the slot (kLooked), takes the items and removes the mark. A thread that pins a marked slot
// waits until the mark is gone. This check is free, because the exchange of the pin returns the
// mark. So the lists of threads that rest, wait elsewhere or have ended are open to all. The places
// that a rest holds are read under the same mark, so that the iterator does not change them
// meanwhile.
//
// The bound, as in store/README.md; epoch_test tests it. Retired and not yet freed is at most:
//   for each thread and tree         kBatchItems items or kBatchBytes, because going shrinks as
//                                    fresh grows; and kFreedTogether items
//   while calls are under way        what was retired since the oldest of them began
//   for iterators and views at rest  the records of a leaf each, or one record
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "pm/assert.h"
#include "pm/plant.h"
#include "store/tree/epoch.h"
#include "store/tree/retired.h"

namespace TENUTO_NS::store {

// What one tree keeps for the holder of one slot. In lines of its own, as EpochSlot.
struct alignas(2 * kLineBytes) ThreadGarbage {
  ThreadGarbage* next = nullptr;  // of the tree's lists; constant
  // The lists are used by the holder while it is pinned, else by the thread that has marked its
  // slot. Fresh is full only while there is no memory for another chunk.
  std::unique_ptr<RetiredChunk> fresh = std::make_unique<RetiredChunk>();
  RetiredList going;
  std::uint64_t going_taken = 0;  // items that were in `going` when fresh was empty
  // The same as counts, which any thread may read at any time.
  std::atomic<std::uint64_t> fresh_count{0};
  std::atomic<std::uint64_t> fresh_bytes{0};
  std::atomic<std::uint64_t> going_count{0};
  std::atomic<std::uint64_t> going_bytes{0};
  // The store's counts are the sums of these over all lists. Written by the holder only.
  std::atomic<std::int64_t> records{0};
  std::atomic<std::int64_t> record_bytes{0};
  std::atomic<std::uint64_t> changes{0};  // calls of count()

  void count(std::int64_t d_records, std::int64_t d_bytes) {
    const std::uint64_t before = changes.load(std::memory_order_relaxed);
    if (before % 50 == 1 && TENUTO_PLANT("store_bytes_counted_before_their_writers_did"))
      ::usleep(3000);
    changes.store(before + 1, std::memory_order_relaxed);
    records.store(records.load(std::memory_order_relaxed) + d_records, std::memory_order_relaxed);
    record_bytes.store(record_bytes.load(std::memory_order_relaxed) + d_bytes,
                       std::memory_order_relaxed);
  }
};

// The garbage lists of one tree. Thread safety: every call but drain and for_each from any thread.
class Garbage {
 public:
  using Free = std::function<void(const Retired&)>;
  using Ready = std::function<bool()>;

  // ready: makes what `free` needs in the calling thread, if it is not there. False: there is no
  // memory for it, and a later call frees.
  explicit Garbage(
      Free free, Ready ready = [] { return true; });
  ~Garbage();  // REQUIRES: everything was drained, or the process abandons the pool

  // The calling thread's list. Its first call makes it, and only that may throw: call it before a
  // lock is taken.
  ThreadGarbage& mine() {
    ThreadGarbage* l = list_of(index_of_mine());
    return l != nullptr ? *l : make();
  }

  // Frees a few items that were retired before. It may be called under locks and after the last
  // fence: a failed allocation leaves work for a later call. REQUIRES: the item is unlinked, no new
  // reader can find it, the calling thread is pinned, and `list` is its own.
  void retire(ThreadGarbage& list, Retired item) {
    TENUTO_DCHECK(my_epoch_slot().depth > 0);
    if (list.fresh->full()) [[unlikely]] {
      collect(list);
      if (list.fresh->full()) return lost_.store(true, std::memory_order_relaxed);  // see kSpare
    }
    RetiredChunk& fresh = *list.fresh;
    fresh.item[fresh.count++] = item;
    const std::uint64_t bytes = list.fresh_bytes.load(std::memory_order_relaxed) + item.bytes;
    list.fresh_bytes.store(bytes, std::memory_order_relaxed);
    list.fresh_count.store(fresh.count, std::memory_order_relaxed);
    if (fresh.count % kFreedTogether == 0 && !list.going.empty()) free_share(list);
    if (fresh.full() || bytes >= kBatchBytes) [[unlikely]]
      collect(list);
  }
  // Frees what can be freed now, from all threads' lists. What the calling thread's pin holds
  // stays.
  void collect_all();
  // The same for a thread whose pin only holds its tree (CollectionUse) and that looks at nothing
  // in the tree. What was retired since that pin is freed, too.
  void collect_all_at_rest();
  // Frees everything. REQUIRES: no reader, no writer.
  void drain();
  // Calls f for all items that wait. REQUIRES: no writer.
  void for_each(const std::function<void(const Retired&)>& f) const;

  // Whether an item was lost, because there was no memory to note it: see kSpare.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }

  std::int64_t records() const;
  std::int64_t record_bytes() const;
  std::uint64_t changes() const;
  // What waits: items, and bytes of blocks.
  struct Waiting {
    std::uint64_t items = 0;
    std::uint64_t bytes = 0;

    Waiting& operator+=(const Waiting& o) {
      items += o.items;
      bytes += o.bytes;
      return *this;
    }
    void add(const RetiredChunk& chunk) {
      items += chunk.count;
      for (const Retired& item : chunk) bytes += item.bytes;
    }
    void subtract(const RetiredChunk& chunk) {
      items -= chunk.count;
      for (const Retired& item : chunk) bytes -= item.bytes;
    }
  };
  Waiting waiting() const;

  static constexpr std::size_t kBatchItems = RetiredChunk::kItems;
  static constexpr std::uint64_t kBatchBytes = 64u << 10;
  static constexpr std::size_t kFreedTogether = 4;

 private:
  static constexpr std::size_t kTakenAtOnce = 1024;  // items, by a thread whose list is full
  // At most kSpare chunks are made ahead, kSpareAtOnce with each thread's list, for when there is
  // no memory for another. When these are full, too, an item is lost. Its block is freed by the
  // next recovery, to which the close leaves the pool.
  static constexpr std::size_t kSpare = 16;
  static constexpr std::size_t kSpareAtOnce = 2;

  // Calls f for the list of each slot that has had one.
  template <class F>
  void each_list(F&& f) const;
  template <class T>
  T sum(std::atomic<T> ThreadGarbage::*count) const;
  static std::size_t index_of_mine();
  // Null: the slot has had none.
  ThreadGarbage* list_of(std::size_t slot) const {
    const Part* part = table_[slot / kPart].load(std::memory_order_acquire);
    return part == nullptr ? nullptr : (*part)[slot % kPart].load(std::memory_order_acquire);
  }
  ThreadGarbage& make();
  void collect(ThreadGarbage& list);
  RetiredChunk* new_chunk();
  void put_chunk(RetiredChunk* chunk);
  void take_fresh(ThreadGarbage& list, RetiredList& out);
  void take_going(ThreadGarbage& list, RetiredList& out);
  void take_from_those_at_rest(RetiredList& fresh, RetiredList& going);
  void hand_over(RetiredList&& items);
  void take_over(RetiredList& out, std::size_t items_max);
  void free_share(ThreadGarbage& list);
  void free_all(RetiredList& items);
  void collect_with(ThreadGarbage* own);

  const Free free_;
  const Ready ready_;
  // The lists by slot, in parts, for most slots are never used; and linked. None is removed.
  static constexpr std::size_t kPart = 64;
  using Part = std::array<std::atomic<ThreadGarbage*>, kPart>;
  std::array<std::atomic<Part*>, kEpochSlots / kPart> table_{};
  std::atomic<ThreadGarbage*> lists_{nullptr};
  std::atomic<bool> lost_{false};
  mutable std::mutex mu_;
  // Guarded by mu_.
  RetiredList stamped_;  // oldest first
  RetiredList held_;     // their epochs are over; iterators and views hold them
  Waiting waiting_;      // in both lists
  RetiredList spare_;
  std::size_t spares_ = 0;
};

}  // namespace TENUTO_NS::store
