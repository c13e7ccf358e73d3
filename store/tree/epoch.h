// When may memory that readers might still look at be used again? A reader pins an epoch while it
// looks; what was unlinked is sealed under the epoch of that moment and freed once no reader is
// pinned at it or before. Used for inner nodes, leaf twins, leaf blocks and records.
//
// Slots (one line each) are process-wide: a thread takes one at its first read and gives it back at
// its exit; an iterator or view, which may move between threads, has a loose one. Neither reads nor
// writes share a counter.
//
// **Why it is right.** A reader stores its epoch with a locked instruction before it loads any
// pointer. A seal raises the epoch with a locked instruction after the unlinking stores, and then
// the slots are scanned. A reader the scan does not see pinned at the sealed epoch or before has
// pinned after the raise, hence sees the unlinking.
//
// **Nobody at rest holds an epoch.** A pin lasts as long as one call. An iterator between two
// calls, or a view, *rests*: its slot says which places in blocks its user may look at, the records
// of one leaf or one record, and these alone are kept when their epoch is over. Whoever frees reads
// the pins first and what rests hold after them: who went from a pin to a rest between the two is
// met once at least, and who left its rest looks at nothing of it any more. Trees that were dropped
// are kept as a whole, by rests as by pins (epoch_is_over).
//
// **Anybody may free what anybody retired.** A thread's fresh items are its own while it is pinned,
// and it retires only while it is pinned. When it is not, others may take them: they mark its slot
// (kLooked), and who pins a slot that is marked waits until the mark's owner is done. That costs
// the pin nothing, for its instruction returns the mark. So the lists of threads that rest, that
// wait for other things or that ended are everybody's. Places that a rest holds are read under the
// same mark, so that an iterator does not change them meanwhile.
//
// The bound, which store/README.md states and epoch_test tries: what is retired and not freed is
//   at most kSealAt items or kSealBytes (and the last item) for each thread and tree,
//   what was retired since the oldest call that is under way began,
//   and what iterators and views at rest hold: the records of a leaf each, or one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "pm/assert.h"
#include "store/tree/retired.h"
#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace TENUTO_NS::store {

inline constexpr std::size_t kEpochSlots = 4096;  // threads at one moment
inline constexpr std::size_t kLooseSlots = 4096;  // iterators and views

// Words with offsets in the pool, `stride` bytes apart; what stands above 48 bits is not looked at.
struct HeldPlaces {
  const void* first = nullptr;
  std::uint32_t count = 0;
  std::uint32_t stride = 0;
};

struct alignas(kLineBytes) EpochSlot {
  static constexpr std::uint64_t kResting = 1;
  static constexpr std::uint64_t kLooked = 2;
  static constexpr std::uint64_t kStep = 4;  // epochs leave room for the two

  std::atomic<std::uint64_t> state{0};  // 0: not reading; an epoch; an epoch and kResting
  std::atomic<bool> looked_at{false};   // by who marks it
  // Holder only.
  std::uint32_t depth = 0;
  // Guarded by the registry's mutex while nobody holds the slot.
  std::uint32_t next_idle = 0;  // index + 1
  // Holder only; read by others under the mark.
  HeldPlaces held;
  std::uint64_t place = 0;  // what `held` names, of a view

  // Nests.
  void enter();
  void leave();
  // Not nested: pins what is there now, whether it was pinned, at rest, or neither.
  void pin();
  // From then on others may free what is not held. REQUIRES: pinned; the words stay as they are
  // until the slot is pinned again or let go.
  void rest(HeldPlaces places);
  // Of a slot that was not pinned: as if it had been, with that one.
  void rest_with(const EpochSlot& pinned, std::uint64_t place_held);
  void let_go();
  void wait_until_looked_at();
};
static_assert(sizeof(EpochSlot) == kLineBytes);

extern constinit thread_local EpochSlot* thread_epoch_slot;
EpochSlot& take_thread_slot();

// The calling thread's slot. When all are held the call waits until one is given back.
inline EpochSlot& my_epoch_slot() {
  EpochSlot* s = thread_epoch_slot;
  return s != nullptr ? *s : take_thread_slot();
}

// A slot for an iterator or a view; some are cached per thread. Null: all are held.
EpochSlot* take_loose_slot();
void put_loose_slot(EpochSlot& slot);

extern constinit std::atomic<std::uint64_t> global_epoch;

inline void EpochSlot::pin() {
  const std::uint64_t now = global_epoch.load(std::memory_order_seq_cst);
  const std::uint64_t before = state.exchange(now, std::memory_order_seq_cst);
  if ((before & kLooked) != 0) [[unlikely]]
    wait_until_looked_at();
}
inline void EpochSlot::enter() {
  if (depth++ == 0) pin();
}
inline void EpochSlot::leave() {
  // Release: meets the acquire of the scans. Nobody marks a slot that is pinned.
  if (--depth == 0) state.store(0, std::memory_order_release);
}

// Pins the calling thread. Cost: one locked instruction on the thread's own line. Nests.
class EpochGuard {
 public:
  EpochGuard() : slot_(my_epoch_slot()) { slot_.enter(); }
  ~EpochGuard() { slot_.leave(); }
  EpochGuard(const EpochGuard&) = delete;
  EpochGuard& operator=(const EpochGuard&) = delete;
  EpochSlot& slot() const { return slot_; }

 private:
  EpochSlot& slot_;
};

// For what is unlinked as a whole: ends the epoch after the unlinking and returns it ...
std::uint64_t seal_epoch();
// ... and says whether everybody who may still look has left, those at rest among them.
bool epoch_is_over(std::uint64_t epoch);

// What one tree keeps for the holder of one slot.
struct Limbo {
  // Of the holder, while it is pinned; else of who has marked its slot. Full only while there is no
  // memory for another.
  std::unique_ptr<RetiredChunk> fresh = std::make_unique<RetiredChunk>();
  // The same, for others to read at any time.
  std::atomic<std::uint64_t> fresh_count{0};
  std::atomic<std::uint64_t> fresh_bytes{0};
  // Sums of these over all limbos are the store's counts. Written by the holder alone.
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

// The limbos of one tree. Thread safety: every call but drain and for_each from any thread.
class Limbos {
 public:
  using Free = std::function<void(const Retired&)>;
  using Ready = std::function<bool()>;

  // ready: whether the calling thread has what free needs, made now if it has to; false: there is
  // no memory, and a later call frees.
  explicit Limbos(
      Free free, Ready ready = [] { return true; });
  ~Limbos();  // REQUIRES: everything was drained, or the process abandons the pool

  // The calling thread's limbo. Made at the thread's first call, and only this may throw: call it
  // before a lock is taken.
  Limbo& mine() {
    Limbo* l = table_[index_of_mine()].load(std::memory_order_acquire);
    return l != nullptr ? *l : make();
  }

  // REQUIRES: unlinked; no new reader can find it; the calling thread is pinned, and `limbo` its
  // own. Now and then frees what has become free. May be called under locks and after the last
  // fence: a failed allocation leaves work for a later call.
  void retire(Limbo& limbo, Retired item) {
    TENUTO_DCHECK(my_epoch_slot().depth > 0);
    if (limbo.fresh->full()) [[unlikely]] {
      collect(limbo);
      if (limbo.fresh->full()) return lost_.store(true, std::memory_order_relaxed);  // see kSpare
    }
    RetiredChunk& fresh = *limbo.fresh;
    fresh.item[fresh.count++] = item;
    const std::uint64_t bytes = limbo.fresh_bytes.load(std::memory_order_relaxed) + item.bytes;
    limbo.fresh_bytes.store(bytes, std::memory_order_relaxed);
    limbo.fresh_count.store(fresh.count, std::memory_order_relaxed);
    if (fresh.full() || bytes >= kSealBytes) [[unlikely]]
      collect(limbo);
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

  static constexpr std::size_t kSealAt = RetiredChunk::kItems;
  static constexpr std::uint64_t kSealBytes = 64u << 10;

 private:
  static constexpr std::size_t kFreeAtOnce = 1024;  // by who retires
  // Chunks made ahead, some with each limbo, and kept for when there is no memory for another. A
  // block that is retired after these were filled, too, is the next recovery's: a close leaves the
  // pool to it.
  static constexpr std::size_t kSpare = 16;
  static constexpr std::size_t kSpareAtOnce = 2;

  static std::size_t index_of_mine();
  Limbo& make();
  void collect(Limbo& limbo);
  RetiredChunk* new_chunk();
  void put_chunk(RetiredChunk* chunk);
  void take_fresh(Limbo& limbo, RetiredList& out);
  void take_from_those_at_rest(RetiredList& out);
  void seal(RetiredList&& items);
  void free_some(std::size_t items_max);

  const Free free_;
  const Ready ready_;
  std::unique_ptr<std::atomic<Limbo*>[]> table_;
  std::atomic<bool> lost_{false};
  mutable std::mutex mu_;
  // Guarded by mu_.
  RetiredList sealed_;  // oldest first
  RetiredList held_;    // their epochs are over; iterators and views hold them
  Waiting waiting_;     // in both
  RetiredList spare_;
  std::size_t spares_ = 0;
};

}  // namespace TENUTO_NS::store
