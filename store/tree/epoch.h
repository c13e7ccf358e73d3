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

struct alignas(kLineBytes) EpochSlot {
  static constexpr std::uint64_t kResting = 1;
  static constexpr std::uint64_t kLooked = 2;
  static constexpr std::uint64_t kStep = 4;  // the two low bits of an epoch are free

  std::atomic<std::uint64_t> state{0};  // 0: not reading; an epoch: pinned; an epoch | kResting
  std::atomic<bool> looked_at{false};   // set by the thread that marks the slot
  // Used by the holder only.
  std::uint32_t depth = 0;
  // Guarded by the registry's mutex while nobody holds the slot.
  std::uint32_t next_idle = 0;  // index + 1
  // Written by the holder only. Others read it under the mark.
  HeldPlaces held;
  std::uint64_t place = 0;  // for a view: the one place in `held`

  // These two nest.
  void enter();
  void leave();
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
static_assert(sizeof(EpochSlot) == kLineBytes);

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

}  // namespace TENUTO_NS::store
