#include "store/tree/epoch.h"

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <thread>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/not_cancelled.h"
#include "pm/plant.h"
#include "pm/process.h"
#include "pm/thread_end.h"
#include "pm/trace.h"
#include "store/tree/epoch_slots.h"

namespace TENUTO_NS::store {

constinit std::atomic<std::uint64_t> global_epoch{EpochSlot::kStep};
constinit thread_local EpochSlot* thread_epoch_slot = nullptr;

// Live as long as the process, because threads may end after static destructors ran.
constinit EpochSlot epoch_slots_of_threads[kEpochSlots];
constinit EpochSlot loose_epoch_slots[kLooseSlots];

namespace {

// In a child process: the pinned threads do not exist, or read the parent's pools, which no thread
// frees from here.
void unpin_all() {
  for (EpochSlot& slot : epoch_slots_of_threads) {
    slot.state.store(0, std::memory_order_relaxed);
    for (auto& pool : slot.pools) pool.store(0, std::memory_order_relaxed);
  }
  for (EpochSlot& slot : loose_epoch_slots) slot.state.store(0, std::memory_order_relaxed);
  thread_epoch_slot = nullptr;
}

}  // namespace

EpochRegistry& epoch_registry() {
  static EpochRegistry& r = *new EpochRegistry;
  static const bool told = (pm::call_in_child(unpin_all), true);
  static_cast<void>(told);
  return r;
}

namespace {

EpochSlot& wait_for_thread_slot() {
  const pm::TraceUninterrupted alone;
  EpochRegistry& r = epoch_registry();
  std::unique_lock lock(r.mu);
  for (;;) {
    if (EpochSlot* slot = r.threads.take(); slot != nullptr) return *slot;
    const pm::NotCancelled whole;
    r.given_back.wait(lock);
  }
}

void put_back(Slots& slots, EpochSlot& slot) {
  EpochRegistry& r = epoch_registry();
  {
    const std::lock_guard lock(r.mu);
    slots.put(slot);
  }
  r.given_back.notify_one();
}

// A thread's slots. They are given back at its end.
struct ThreadSlots {
  static constexpr std::size_t kLooseMax = 4;
  EpochSlot* loose[kLooseMax] = {};
  std::size_t loose_count = 0;
  bool ended = false;  // other parts of the thread may end after this one

  ~ThreadSlots() {
    ended = true;
    for (std::size_t i = 0; i < loose_count; ++i) put_back(epoch_registry().loose, *loose[i]);
    loose_count = 0;
    EpochSlot* own = thread_epoch_slot;
    thread_epoch_slot = nullptr;
    if (own != nullptr && own->depth == 0) put_back(epoch_registry().threads, *own);
  }
};
ThreadSlots& thread_slots() { return pm::thread_part<ThreadSlots>(pm::ThreadPart::readers); }

}  // namespace

std::uint64_t oldest_epoch(bool with_rests) {
  std::uint64_t oldest = ~0ull;
  const auto meet = [&](const EpochSlot& slot) {
    const std::uint64_t state = slot.state.load(std::memory_order_seq_cst);
    if ((state & EpochSlot::kResting) != 0 && !with_rests) return;
    const std::uint64_t epoch = state & ~(EpochSlot::kStep - 1);
    if (epoch != 0 && epoch < oldest) oldest = epoch;
  };
  epoch_registry().threads.for_each(meet);
  epoch_registry().loose.for_each(meet);
  return oldest;
}

std::uint64_t advance_epoch() {
  return global_epoch.fetch_add(EpochSlot::kStep, std::memory_order_seq_cst);
}
bool epoch_is_over(std::uint64_t epoch) { return epoch < oldest_epoch(true); }
bool pinned_calls_are_over() {
  const std::uint64_t epoch = advance_epoch();
  return epoch < oldest_epoch(false);
}

bool is_in_call_of(const void* pool) {
  const EpochSlot* const own = thread_epoch_slot;
  return own != nullptr &&
         std::any_of(std::begin(own->pools), std::end(own->pools),
                     [pool](const std::atomic<std::uint64_t>& word) {
                       return EpochSlot::is_of(word.load(std::memory_order_relaxed), pool);
                     });
}

bool wait_for_calls_of(const void* pool, std::chrono::milliseconds longest) {
  const auto end = std::chrono::steady_clock::now() + longest;
  const std::uint64_t epoch = advance_epoch();
  bool all = true;
  const auto wait = [&](const auto& still) {
    while (all && still()) {
      all = std::chrono::steady_clock::now() < end;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  };
  const EpochSlot* const own = thread_epoch_slot;
  epoch_registry().threads.for_each([&](const EpochSlot& slot) {
    if (&slot == own) return;
    for (const std::atomic<std::uint64_t>& word : slot.pools) {
      const std::uint64_t seen = word.load(std::memory_order_seq_cst);
      if (EpochSlot::is_of(seen, pool))
        wait([&] { return word.load(std::memory_order_seq_cst) == seen; });
    }
  });
  epoch_registry().loose.for_each([&](const EpochSlot& slot) {
    wait([&] {
      const std::uint64_t state = slot.state.load(std::memory_order_seq_cst);
      const bool pinned = state != 0 && (state & EpochSlot::kResting) == 0 && state <= epoch;
      return pinned && EpochSlot::is_of(slot.pools[0].load(std::memory_order_seq_cst), pool);
    });
  });
  return all;
}

// --- slots ---------------------------------------------------------------------------------------

void EpochSlot::wait_until_looked_at() {
  while (looked_at.load(std::memory_order_acquire)) std::this_thread::yield();
}

void EpochSlot::rest(HeldPlaces places) {
  held = places;
  // Release: meets the acquire of a thread that marks the slot.
  state.store(state.load(std::memory_order_relaxed) | kResting, std::memory_order_release);
}

void EpochSlot::rest_with(const EpochSlot& pinned, std::uint64_t place_held) {
  place = place_held;
  held = {&place, 1, 0};
  state.store(pinned.state.load(std::memory_order_relaxed) | kResting, std::memory_order_release);
}

void EpochSlot::let_go() {
  const std::uint64_t before = state.exchange(0, std::memory_order_seq_cst);
  if ((before & kLooked) != 0) wait_until_looked_at();
}

EpochSlot& take_thread_slot() {
  static_cast<void>(thread_slots());  // gives the slot back at the thread's end
  EpochSlot& slot = wait_for_thread_slot();
  thread_epoch_slot = &slot;
  return slot;
}

EpochSlot* take_loose_slot() {
  ThreadSlots& t = thread_slots();
  if (t.loose_count > 0) return t.loose[--t.loose_count];
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(epoch_registry().mu);
  return epoch_registry().loose.take();
}

void put_loose_slot(EpochSlot& slot) {
  ThreadSlots* t = nullptr;  // a thread's first call here may have no memory for it
  static_cast<void>(pm::had_memory([&] { t = &thread_slots(); }));
  if (t != nullptr && t->loose_count < ThreadSlots::kLooseMax && !t->ended) {
    t->loose[t->loose_count++] = &slot;
  } else {
    put_back(epoch_registry().loose, slot);
  }
}

}  // namespace TENUTO_NS::store
