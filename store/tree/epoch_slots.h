// How epoch slots are handed out, taken back and marked. For epoch.cc and garbage.cc.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "pm/process.h"
#include "store/tree/epoch.h"

namespace TENUTO_NS::store {

// The slots of one kind. Iterators never get a thread's slot, because garbage lists go by its
// index.
class Slots {
 public:
  Slots(EpochSlot* slots, std::size_t count) : slots_(slots), count_(count) {}

  // Null: all are taken. REQUIRES: the registry's mutex.
  EpochSlot* take() {
    if (idle_head_ != 0) {
      EpochSlot& slot = slots_[idle_head_ - 1];
      idle_head_ = slot.next_idle;
      return &slot;
    }
    const std::size_t used = used_.load(std::memory_order_relaxed);
    if (used == count_) return nullptr;
    used_.store(used + 1, std::memory_order_seq_cst);
    return &slots_[used];
  }
  // REQUIRES: as above.
  void put(EpochSlot& slot) {
    slot.next_idle = idle_head_;
    idle_head_ = static_cast<std::uint32_t>(&slot - slots_) + 1;
  }
  template <class F>
  void for_each(F&& f) const {
    const std::size_t used = used_.load(std::memory_order_seq_cst);
    for (std::size_t i = 0; i < used; ++i) f(slots_[i]);
  }

 private:
  EpochSlot* const slots_;
  const std::size_t count_;
  std::uint32_t idle_head_ = 0;  // index + 1
  // Slots below this index were taken at some time. Written under the mutex, read by scans.
  std::atomic<std::size_t> used_{0};
};

extern constinit EpochSlot epoch_slots_of_threads[kEpochSlots];
extern constinit EpochSlot loose_epoch_slots[kLooseSlots];

struct EpochRegistry {
  std::mutex& mu = pm::process_locks.readers;  // also held by the one thread that marks
  std::condition_variable given_back;
  Slots threads{epoch_slots_of_threads, kEpochSlots};
  Slots loose{loose_epoch_slots, kLooseSlots};
};

EpochRegistry& epoch_registry();

// The oldest epoch at which a slot is pinned; all ones when none is.
std::uint64_t oldest_epoch(bool with_rests);

// Calls f if the slot is in this state. Meanwhile the slot's holder cannot pin it. REQUIRES: the
// registry's mutex.
template <class F>
void look_at(EpochSlot& slot, std::uint64_t state, F&& f) {
  slot.looked_at.store(true, std::memory_order_seq_cst);  // before the mark is seen
  std::uint64_t marked = state;
  if (slot.state.compare_exchange_strong(marked, state | EpochSlot::kLooked,
                                         std::memory_order_seq_cst)) {
    f();
    marked = state | EpochSlot::kLooked;
    slot.state.compare_exchange_strong(marked, state, std::memory_order_seq_cst);
  }
  slot.looked_at.store(false, std::memory_order_release);
}

}  // namespace TENUTO_NS::store
