// When may memory that readers might still look at be used again? A reader pins an epoch while it
// looks; what was unlinked is sealed under the epoch of that moment and freed once no reader is
// pinned at it or before. Used for inner nodes, leaf twins, leaf blocks and records.
//
// Slots (one line each) are process-wide: a thread takes one at its first read and gives it back
// at its exit; an iterator, which may move between threads, has one of its own. A store keeps one
// Limbo per slot, touched only by the slot's holder, so neither reads nor writes share a counter.
//
// Why it is right: a reader stores its epoch with a locked instruction before it loads any
// pointer. seal() raises the epoch with a locked instruction after the unlinking stores, and then
// scans the slots. A reader the scan does not see pinned at the sealed epoch or before has pinned
// after the raise, hence sees the unlinking.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace tenuto::inline TENUTO_ABI::store {

inline constexpr std::size_t kEpochSlots = 4096;  // threads and iterators at one moment

struct alignas(kLineBytes) EpochSlot {
  std::atomic<std::uint64_t> epoch{0};  // 0: not reading
  // Holder only.
  std::uint32_t depth = 0;
  // Guarded by the registry's mutex while nobody holds the slot.
  std::uint32_t next_idle = 0;  // index + 1

  std::size_t index() const;
  void enter();
  void leave();
};
static_assert(sizeof(EpochSlot) == kLineBytes);

extern constinit thread_local EpochSlot* thread_epoch_slot;
EpochSlot& take_thread_slot();

// The calling thread's slot. When all are held the call waits until one is given back.
inline EpochSlot& my_epoch_slot() {
  EpochSlot* s = thread_epoch_slot;
  return s != nullptr ? *s : take_thread_slot();
}

// A slot for an iterator; cached per thread. Waits like my_epoch_slot.
EpochSlot& take_loose_slot();
void put_loose_slot(EpochSlot& slot);

extern constinit std::atomic<std::uint64_t> global_epoch;

inline void EpochSlot::enter() {
  if (depth++ == 0) {
    epoch.exchange(global_epoch.load(std::memory_order_seq_cst), std::memory_order_seq_cst);
  }
}
inline void EpochSlot::leave() {
  // Release: meets the acquire of the scan in oldest_pinned().
  if (--depth == 0) epoch.store(0, std::memory_order_release);
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
// ... and says whether everybody who may still look has left.
bool epoch_is_over(std::uint64_t epoch);

// What was unlinked, on its way to reuse.
struct Retired {
  enum class What : std::uint8_t { block, node, twin, old_version };
  std::uint64_t word = 0;  // PoolOffset, Node*, VLeaf*, OldVersion*
  What what = What::block;
};

// What one store keeps for the holder of one slot.
struct Limbo {
  struct Sealed {
    std::uint64_t epoch = 0;
    std::vector<Retired> items;
  };
  std::vector<Retired> fresh;
  std::vector<Sealed> sealed;  // oldest first
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

// The limbos of one store.
class Limbos {
 public:
  using Free = std::function<void(const Retired&)>;

  explicit Limbos(Free free);
  ~Limbos();  // REQUIRES: everything was drained, or the process abandons the pool

  // The calling thread's limbo.
  Limbo& mine() {
    Limbo* l = table_[my_epoch_slot().index()].load(std::memory_order_acquire);
    return l != nullptr ? *l : make();
  }

  // REQUIRES: unlinked; no new reader can find it. Now and then frees what has become free.
  void retire(Limbo& limbo, Retired item) {
    limbo.fresh.push_back(item);
    if (limbo.fresh.size() >= kSealAt) [[unlikely]]
      collect(limbo);
  }
  // Frees what can be freed now, of this thread and of threads that have ended. REQUIRES: the
  // calling thread is not pinned, else its own epoch keeps everything.
  void collect_all();
  // Frees everything. REQUIRES: no reader, no writer.
  void drain();
  // Calls f for all that waits. REQUIRES: no writer.
  void for_each(const std::function<void(const Retired&)>& f) const;

  std::int64_t records() const;
  std::int64_t record_bytes() const;
  std::uint64_t changes() const;

 private:
  static constexpr std::size_t kSealAt = 64;

  Limbo& make();
  void collect(Limbo& limbo);

  Free free_;
  std::unique_ptr<std::atomic<Limbo*>[]> table_;
};

}  // namespace tenuto::inline TENUTO_ABI::store
