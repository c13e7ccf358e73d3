#include "store/epoch.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "pm/assert.h"
#include "pm/process.h"
#include "pm/thread_end.h"
#include "pm/trace.h"

namespace tenuto::inline TENUTO_ABI::store {

constinit std::atomic<std::uint64_t> global_epoch{1};
constinit thread_local EpochSlot* thread_epoch_slot = nullptr;

namespace {

// Lives as long as the process: threads may end after static destructors ran.
constinit EpochSlot slots[kEpochSlots];

struct Registry {
  std::mutex& mu = pm::process_locks.readers;
  std::condition_variable given_back;
  // Guarded by mu.
  std::uint32_t idle_head = 0;  // index + 1
  // Slots below were held at some time. Written under mu, read by scans.
  std::atomic<std::uint32_t> used{0};
};

// In a child: who was pinned is not there any more, or reads the parent's pools, which nobody frees
// from here.
void unpin_all() {
  for (EpochSlot& slot : slots) slot.epoch.store(0, std::memory_order_relaxed);
  thread_epoch_slot = nullptr;
}

Registry& registry() {
  static Registry& r = *new Registry;
  static const bool told = (pm::call_in_child(unpin_all), true);
  static_cast<void>(told);
  return r;
}

EpochSlot& take_slot() {
  const pm::TraceUninterrupted alone;
  Registry& r = registry();
  std::unique_lock lock(r.mu);
  for (;;) {
    if (r.idle_head != 0) {
      EpochSlot& slot = slots[r.idle_head - 1];
      r.idle_head = slot.next_idle;
      return slot;
    }
    const std::uint32_t used = r.used.load(std::memory_order_relaxed);
    if (used < kEpochSlots) {
      r.used.store(used + 1, std::memory_order_seq_cst);
      return slots[used];
    }
    r.given_back.wait(lock);
  }
}

void put_slot(EpochSlot& slot) {
  Registry& r = registry();
  {
    const std::lock_guard lock(r.mu);
    slot.next_idle = r.idle_head;
    r.idle_head = static_cast<std::uint32_t>(slot.index()) + 1;
  }
  r.given_back.notify_one();
}

// A thread's slots go back at its end. A slot that is still pinned then (a View outlived its
// thread) stays lost: nothing may be freed under it.
struct ThreadSlots {
  static constexpr std::size_t kLooseMax = 4;
  EpochSlot* loose[kLooseMax] = {};
  std::size_t loose_count = 0;

  ~ThreadSlots() {
    for (std::size_t i = 0; i < loose_count; ++i) put_slot(*loose[i]);
    EpochSlot* own = thread_epoch_slot;
    thread_epoch_slot = nullptr;
    if (own != nullptr && own->depth == 0) put_slot(*own);
  }
};
ThreadSlots& thread_slots() { return pm::thread_part<ThreadSlots>(pm::ThreadPart::readers); }

// The oldest epoch at which somebody is pinned; all ones when nobody is.
std::uint64_t oldest_pinned() {
  const std::uint32_t used = registry().used.load(std::memory_order_seq_cst);
  std::uint64_t oldest = ~0ull;
  for (std::uint32_t i = 0; i < used; ++i) {
    const std::uint64_t e = slots[i].epoch.load(std::memory_order_seq_cst);
    if (e != 0 && e < oldest) oldest = e;
  }
  return oldest;
}

}  // namespace

std::uint64_t seal_epoch() { return global_epoch.fetch_add(1, std::memory_order_seq_cst); }
bool epoch_is_over(std::uint64_t epoch) { return epoch < oldest_pinned(); }

std::size_t EpochSlot::index() const { return static_cast<std::size_t>(this - slots); }

EpochSlot& take_thread_slot() {
  static_cast<void>(thread_slots());  // which gives it back at the thread's end
  EpochSlot& slot = take_slot();
  thread_epoch_slot = &slot;
  return slot;
}

EpochSlot& take_loose_slot() {
  ThreadSlots& t = thread_slots();
  return t.loose_count > 0 ? *t.loose[--t.loose_count] : take_slot();
}

void put_loose_slot(EpochSlot& slot) {
  ThreadSlots& t = thread_slots();
  if (t.loose_count < ThreadSlots::kLooseMax) {
    t.loose[t.loose_count++] = &slot;
  } else {
    put_slot(slot);
  }
}

Limbos::Limbos(Free free) : free_(std::move(free)), table_(new std::atomic<Limbo*>[kEpochSlots]) {
  for (std::size_t i = 0; i < kEpochSlots; ++i) table_[i].store(nullptr, std::memory_order_relaxed);
}

Limbos::~Limbos() {
  for (std::size_t i = 0; i < kEpochSlots; ++i) delete table_[i].load(std::memory_order_acquire);
}

Limbo& Limbos::make() {
  auto* limbo = new Limbo;
  table_[my_epoch_slot().index()].store(limbo, std::memory_order_release);
  return *limbo;
}

void Limbos::collect(Limbo& limbo) {
  if (!limbo.fresh.empty()) {
    const std::uint64_t epoch = seal_epoch();
    limbo.sealed.push_back({epoch, std::move(limbo.fresh)});
    limbo.fresh.clear();
    limbo.fresh.reserve(kSealAt);
  }
  const std::uint64_t oldest = oldest_pinned();
  std::size_t done = 0;
  while (done < limbo.sealed.size() && limbo.sealed[done].epoch < oldest) {
    for (const Retired& item : limbo.sealed[done].items) free_(item);
    ++done;
  }
  if (done > 0) {
    limbo.sealed.erase(limbo.sealed.begin(),
                       limbo.sealed.begin() + static_cast<std::ptrdiff_t>(done));
  }
}

void Limbos::collect_all() {
  collect(mine());
  Registry& r = registry();
  const std::lock_guard lock(r.mu);  // no slot changes hands meanwhile
  for (std::uint32_t i = r.idle_head; i != 0; i = slots[i - 1].next_idle) {
    Limbo* limbo = table_[i - 1].load(std::memory_order_acquire);
    if (limbo != nullptr) collect(*limbo);
  }
}

void Limbos::drain() {
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo == nullptr) continue;
    for (Limbo::Sealed& s : limbo->sealed) {
      for (const Retired& item : s.items) free_(item);
    }
    for (const Retired& item : limbo->fresh) free_(item);
    limbo->sealed.clear();
    limbo->fresh.clear();
  }
}

void Limbos::for_each(const std::function<void(const Retired&)>& f) const {
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    const Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo == nullptr) continue;
    for (const Limbo::Sealed& s : limbo->sealed) std::for_each(s.items.begin(), s.items.end(), f);
    std::for_each(limbo->fresh.begin(), limbo->fresh.end(), f);
  }
}

std::int64_t Limbos::records() const {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    const Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo != nullptr) n += limbo->records.load(std::memory_order_relaxed);
  }
  return n;
}

std::int64_t Limbos::record_bytes() const {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    const Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo != nullptr) n += limbo->record_bytes.load(std::memory_order_relaxed);
  }
  return n;
}

std::uint64_t Limbos::changes() const {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    const Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo != nullptr) n += limbo->changes.load(std::memory_order_relaxed);
  }
  return n;
}

}  // namespace tenuto::inline TENUTO_ABI::store
