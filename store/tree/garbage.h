// What was unlinked and waits until no reader can look at it (epoch.h), in a list of each thread's
// own and one of the tree; and the counts of records, which hang on the same lists.
//
// **Anybody may free what anybody retired.** A thread's fresh items are its own while it is pinned,
// and it retires only while it is pinned. When it is not, others may take them: they mark its slot
// (kLooked), and who pins a slot that is marked waits until the mark's owner is done. That costs
// the pin nothing, for its instruction returns the mark. So the lists of threads that rest, that
// wait for other things or that ended are everybody's. Places that a rest holds are read under the
// same mark, so that an iterator does not change them meanwhile.
//
// The bound, which store/README.md states and epoch_test tries: what is retired and not freed is
//   at most kBatchItems items or kBatchBytes (and the last item) for each thread and tree,
//   what was retired since the oldest call that is under way began,
//   and what iterators and views at rest hold: the records of a leaf each, or one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "pm/assert.h"
#include "store/tree/epoch.h"
#include "store/tree/retired.h"

namespace TENUTO_NS::store {

// What one tree keeps for the holder of one slot.
struct ThreadGarbage {
  // Of the holder, while it is pinned; else of who has marked its slot. Full only while there is no
  // memory for another.
  std::unique_ptr<RetiredChunk> fresh = std::make_unique<RetiredChunk>();
  // The same, for others to read at any time.
  std::atomic<std::uint64_t> fresh_count{0};
  std::atomic<std::uint64_t> fresh_bytes{0};
  // Sums of these over all garbage lists are the store's counts. Written by the holder alone.
  std::atomic<std::int64_t> records{0};
  std::atomic<std::int64_t> record_bytes{0};
  std::atomic<std::uint64_t> changes{0};  // how often count was called

  void count(std::int64_t d_records, std::int64_t d_bytes) {
    changes.store(changes.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
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

  // ready: whether the calling thread has what free needs, made now if it has to; false: there is
  // no memory, and a later call frees.
  explicit Garbage(
      Free free, Ready ready = [] { return true; });
  ~Garbage();  // REQUIRES: everything was drained, or the process abandons the pool

  // The calling thread's garbage. Made at the thread's first call, and only this may throw: call it
  // before a lock is taken.
  ThreadGarbage& mine() {
    ThreadGarbage* l = table_[index_of_mine()].load(std::memory_order_acquire);
    return l != nullptr ? *l : make();
  }

  // REQUIRES: unlinked; no new reader can find it; the calling thread is pinned, and `list` its
  // own. Now and then frees what has become free. May be called under locks and after the last
  // fence: a failed allocation leaves work for a later call.
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
    if (fresh.full() || bytes >= kBatchBytes) [[unlikely]]
      collect(list);
  }
  // Frees what can be freed now, whoever retired it. What the calling thread pinned stays.
  void collect_all();
  // The same, of a thread that is pinned at most to hold its tree (CollectionUse), and looks at
  // nothing in it: what was retired since it pinned goes, too.
  void collect_all_at_rest();
  // Frees everything. REQUIRES: no reader, no writer.
  void drain();
  // Calls f for all that waits. REQUIRES: no writer.
  void for_each(const std::function<void(const Retired&)>& f) const;

  // Whether there was no memory to note something that was retired: see kSpare.
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

 private:
  static constexpr std::size_t kFreeAtOnce = 1024;  // by who retires
  // Chunks made ahead, some with each thread's, and kept for when there is no memory for another. A
  // block that is retired after these were filled, too, is the next recovery's: a close leaves the
  // pool to it.
  static constexpr std::size_t kSpare = 16;
  static constexpr std::size_t kSpareAtOnce = 2;

  static std::size_t index_of_mine();
  ThreadGarbage& make();
  void collect(ThreadGarbage& list);
  RetiredChunk* new_chunk();
  void put_chunk(RetiredChunk* chunk);
  void take_fresh(ThreadGarbage& list, RetiredList& out);
  void take_from_those_at_rest(RetiredList& out);
  void hand_over(RetiredList&& items);
  void free_some(std::size_t items_max);

  const Free free_;
  const Ready ready_;
  std::unique_ptr<std::atomic<ThreadGarbage*>[]> table_;
  std::atomic<bool> lost_{false};
  mutable std::mutex mu_;
  // Guarded by mu_.
  RetiredList stamped_;  // oldest first
  RetiredList held_;     // their epochs are over; iterators and views hold them
  Waiting waiting_;      // in both
  RetiredList spare_;
  std::size_t spares_ = 0;
};

}  // namespace TENUTO_NS::store
