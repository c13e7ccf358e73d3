// Epoch slots handed out and taken back; used by epoch.cc alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "store/tree/epoch.h"

namespace TENUTO_NS::store {

// The slots of one kind. A thread's are never handed to an iterator: its lists hang on them.
class Slots {
 public:
  Slots(EpochSlot* slots, std::size_t count) : slots_(slots), count_(count) {}

  // Null: all are held. REQUIRES: the registry's mutex.
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
  // Slots below were held at some time. Written under the mutex, read by scans.
  std::atomic<std::size_t> used_{0};
};

}  // namespace TENUTO_NS::store
