// When may memory that readers might still look at be used again? A reader pins an epoch while it
// looks; what was unlinked is stamped with the epoch of that time and freed once no reader is
// pinned at it or before. Used for inner nodes, shadow leaves, leaf blocks and records.
//
// Slots (one line each) are process-wide: a thread takes one at its first read and gives it back at
// its exit; an iterator or view, which may move between threads, has a loose one. Neither reads nor
// writes share a counter.
//
// **Why it is right.** A reader stores its epoch with a locked instruction before it loads any
// pointer. advance_epoch raises it with a locked instruction after the unlinking stores, and then
// the slots are scanned. A reader the scan does not see pinned at the old epoch or before has
// pinned after the raise, hence sees the unlinking.
//
// **Nobody at rest holds an epoch.** A pin lasts as long as one call. An iterator between two
// calls, or a view, *rests*: its slot says which places in blocks its user may look at, the records
// of one leaf or one record, and these alone are kept when their epoch is over. Whoever frees reads
// the pins first and what rests hold after them: who went from a pin to a rest between the two is
// met once at least, and who left its rest looks at nothing of it any more. Trees that were dropped
// are kept as a whole, by rests as by pins (epoch_is_over).
//
// Who keeps what was unlinked until then: garbage.h.
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
std::uint64_t advance_epoch();
// ... and says whether everybody who may still look has left, those at rest among them.
bool epoch_is_over(std::uint64_t epoch);

}  // namespace TENUTO_NS::store
