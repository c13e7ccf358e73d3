// Epochs: when may unlinked memory be used again? A reader pins the current epoch while it looks.
// Unlinked memory is stamped with the epoch of that time. It is freed once no reader is pinned at
// that epoch or an earlier one. Used for inner nodes, shadow leaves, leaf blocks, records and old
// versions.
//
// A slot is one line of the process. A thread takes a slot at its first read and gives it back at
// its exit. An iterator or view may move between threads, so it has a slot of its own, a loose one.
// Neither reads nor writes share a counter.
//
// **Why this is right.**
//   reader          slot = global_epoch, by a locked instruction; then it loads pointers
//   freeing thread  it unlinks; advance_epoch(), a locked instruction, raises global_epoch from e;
//                   it reads all slots; it frees when no slot is pinned at an epoch <= e
// Consider a reader that the scan does not find pinned at an epoch <= e:
// - Its slot is 0, because the reader has left. Its release store meets the scan's load, so it has
//   finished looking.
// - Its slot has a later epoch. It read global_epoch after the advance, so it sees the unlinking.
// - It pins after the scan has read its slot. That is after the advance, so it sees the unlinking,
//   even if the epoch that it stores is e.
//
// **A rest holds blocks, not an epoch.** A pin lasts for one call. Between two calls an iterator or
// a view *rests*. Its slot names the places in blocks that its user may look at: the records of one
// leaf, or one record. Only these blocks are kept when their epoch is over. The freeing thread
// reads the pins first, and after that the places that rests hold:
// - A slot that changes from a pin to a rest between the two is found at least once.
// - A slot that left its rest is no obstacle: its user looks at nothing of that rest any more.
//
// A dropped tree is different. A rest keeps it as a whole, as a pin does (epoch_is_over).
//
// Where unlinked memory waits: garbage.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "pm/assert.h"
#include "store/tree/retired.h"
#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace TENUTO_NS::store {

inline constexpr std::size_t kEpochSlots = 4096;  // threads at one time
inline constexpr std::size_t kLooseSlots = 4096;  // iterators and views

// `count` words, `stride` bytes apart. The low 48 bits of each name a place in the pool, or are 0.
// The bits above are ignored.
struct HeldPlaces {
  const void* first = nullptr;
  std::uint32_t count = 0;
  std::uint32_t stride = 0;
};

// A pair of lines each: processors fetch lines by pairs, and neighbours would slow each other down.
struct alignas(2 * kLineBytes) EpochSlot {
  static constexpr std::size_t kPools = 3;
  static constexpr std::uint64_t kResting = 1;
  static constexpr std::uint64_t kLooked = 2;
  static constexpr std::uint64_t kStep = 4;  // the two low bits of an epoch are free

  std::atomic<std::uint64_t> state{0};  // 0: not reading; an epoch: pinned; an epoch | kResting
  std::atomic<bool> looked_at{false};   // set by the thread that marks the slot
  std::uint16_t depth = 0;              // used by the holder only
  // Guarded by the registry's mutex while nobody holds the slot.
  std::uint32_t next_idle = 0;  // index + 1
  // The pools whose calls the holder is in: a call may be in another one's function. In the low 48
  // bits the address of the pool's Collections, 0: none; above it a number that each entry raises,
  // so that a thread that comes back at once is not taken for one that has not left. Of an iterator
  // the first one: a call while it is pinned. Written by the holder.
  std::atomic<std::uint64_t> pools[kPools] = {};
  // Written by the holder only. Others read it under the mark.
  HeldPlaces held;
  std::uint64_t place = 0;  // for a view: the one place in `held`

  // These two nest.
  void enter();
  void leave();
  // The first returns what the second takes. `ordered`: before all later loads.
  std::size_t enter_pool(const void* pool, bool ordered);
  void leave_pool(std::size_t at);
  static constexpr std::uint64_t kAddress = (std::uint64_t{1} << 48) - 1;
  static bool is_of(std::uint64_t word, const void* pool) {
    return pool != nullptr && (word & kAddress) == reinterpret_cast<std::uintptr_t>(pool);
  }
  // Does not nest. Pins the current epoch, whether the slot was pinned, at rest, or neither.
  void pin();
  std::uint64_t pinned_epoch() const {  // REQUIRES: pinned, by the caller
    return state.load(std::memory_order_relaxed);
  }
  // From here on others may free what `places` does not name. REQUIRES: pinned; the words of
  // `places` do not change until the slot is pinned again or let go.
  void rest(HeldPlaces places);
  // For a slot that is not pinned: rests at the epoch of `pinned`, a slot that is pinned.
  void rest_with(const EpochSlot& pinned, std::uint64_t place_held);
  void let_go();
  void wait_until_looked_at();
};
static_assert(sizeof(EpochSlot) == 2 * kLineBytes);

extern constinit thread_local EpochSlot* thread_epoch_slot;
EpochSlot& take_thread_slot();

// The calling thread's slot. When all slots are taken it waits until one is given back.
inline EpochSlot& my_epoch_slot() {
  EpochSlot* s = thread_epoch_slot;
  return s != nullptr ? *s : take_thread_slot();
}

// A slot for an iterator or a view. Each thread caches some. Null: all are taken.
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
  // Release: meets the acquire of the scans. A pinned slot is never marked.
  if (--depth == 0) state.store(0, std::memory_order_release);
}

inline std::size_t EpochSlot::enter_pool(const void* pool, bool ordered) {
  for (std::size_t i = 0; i < kPools; ++i) {
    const std::uint64_t word = pools[i].load(std::memory_order_relaxed);
    if (is_of(word, pool)) return kPools;  // an outer call says so already
    if ((word & kAddress) != 0) continue;
    const std::uint64_t now = word + kAddress + 1 + reinterpret_cast<std::uintptr_t>(pool);
    pools[i].store(now, ordered ? std::memory_order_seq_cst : std::memory_order_relaxed);
    return i;
  }
  return kPools;
}
inline void EpochSlot::leave_pool(std::size_t at) {
  if (at == kPools) return;
  const std::uint64_t word = pools[at].load(std::memory_order_relaxed);
  pools[at].store(word & ~kAddress, std::memory_order_release);
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

// The same for a read of this pool (as in PoolCall), which a close of the pool waits for.
class ReadGuard {
 public:
  explicit ReadGuard(const void* pool)
      : slot_(my_epoch_slot()), place_(slot_.enter_pool(pool, slot_.depth != 0)) {
    slot_.enter();  // its locked instruction orders the entry, too
  }
  ~ReadGuard() {
    slot_.leave();
    slot_.leave_pool(place_);
  }
  ReadGuard(const ReadGuard&) = delete;
  ReadGuard& operator=(const ReadGuard&) = delete;
  EpochSlot& slot() const { return slot_; }

 private:
  EpochSlot& slot_;
  const std::size_t place_;
};

// From the beginning of a call of a pool to its return: meanwhile that pool is not closed. Ask
// whether the collection is there *after* making it. Then the locked instruction here, and the
// order of the closing thread (life.shut(), then its look at the slots), leave two cases: that
// thread waits for this call, or this call finds `closed`. It pins nothing, so it may last as long
// as an fsync. Nests, as far as three pools; a fourth one is not waited for. `pool`: the address of
// its Collections.
class PoolCall {
 public:
  explicit PoolCall(const void* pool)
      : slot_(my_epoch_slot()), place_(slot_.enter_pool(pool, true)) {}
  ~PoolCall() { slot_.leave_pool(place_); }
  PoolCall(const PoolCall&) = delete;
  PoolCall& operator=(const PoolCall&) = delete;

 private:
  EpochSlot& slot_;
  const std::size_t place_;
};

// For a pinned thread that has a pointer from an earlier pin, of `epoch`, and pinned nothing since.
// True: what it leads to is not used again before the thread leaves. Since the epoch has not ended,
// nothing unlinked in it or later was freed, and whoever ends it from now on finds the pin.
inline bool is_epoch_still(std::uint64_t epoch) {
  return global_epoch.load(std::memory_order_seq_cst) == epoch;
}

// For memory that is unlinked as a whole. Call it after the unlinking: ends the epoch and returns
// it.
std::uint64_t advance_epoch();
// Whether every reader that may still look has left, those at rest among them.
bool epoch_is_over(std::uint64_t epoch);
// Whether every call that was pinned has returned, so that all that it changed is counted. Ends the
// epoch. The caller's own pin counts, too.
bool pinned_calls_are_over();
// Whether the calling thread is in a PoolCall or ReadGuard of this pool.
bool is_in_call_of(const void* pool);
// For a close, which has made later calls turn back: waits until every other thread has left its
// PoolCall and ReadGuard of this pool, and every iterator its call. False: one has not, after
// `longest`.
bool wait_for_calls_of(const void* pool, std::chrono::milliseconds longest);

}  // namespace TENUTO_NS::store
