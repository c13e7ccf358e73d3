#include "store/tree/epoch.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <new>
#include <thread>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "pm/process.h"
#include "pm/thread_end.h"
#include "pm/trace.h"
#include "store/tree/epoch_slots.h"

namespace TENUTO_NS::store {

constinit std::atomic<std::uint64_t> global_epoch{EpochSlot::kStep};
constinit thread_local EpochSlot* thread_epoch_slot = nullptr;

namespace {

// Live as long as the process: threads may end after static destructors ran.
constinit EpochSlot threads[kEpochSlots];
constinit EpochSlot loose[kLooseSlots];

struct Registry {
  std::mutex& mu = pm::process_locks.readers;  // who marks slots holds it, too: one at a time
  std::condition_variable given_back;
  Slots threads{store::threads, kEpochSlots};
  Slots loose{store::loose, kLooseSlots};
};

// In a child: who was pinned is not there any more, or reads the parent's pools, which nobody frees
// from here.
void unpin_all() {
  for (EpochSlot& slot : threads) slot.state.store(0, std::memory_order_relaxed);
  for (EpochSlot& slot : loose) slot.state.store(0, std::memory_order_relaxed);
  thread_epoch_slot = nullptr;
}

Registry& registry() {
  static Registry& r = *new Registry;
  static const bool told = (pm::call_in_child(unpin_all), true);
  static_cast<void>(told);
  return r;
}

EpochSlot& wait_for_thread_slot() {
  const pm::TraceUninterrupted alone;
  Registry& r = registry();
  std::unique_lock lock(r.mu);
  for (;;) {
    if (EpochSlot* slot = r.threads.take(); slot != nullptr) return *slot;
    r.given_back.wait(lock);
  }
}

void put_back(Slots& slots, EpochSlot& slot) {
  Registry& r = registry();
  {
    const std::lock_guard lock(r.mu);
    slots.put(slot);
  }
  r.given_back.notify_one();
}

// A thread's slots go back at its end.
struct ThreadSlots {
  static constexpr std::size_t kLooseMax = 4;
  EpochSlot* loose[kLooseMax] = {};
  std::size_t loose_count = 0;
  bool ended = false;  // what else ends with the thread may come later

  ~ThreadSlots() {
    ended = true;
    for (std::size_t i = 0; i < loose_count; ++i) put_back(registry().loose, *loose[i]);
    loose_count = 0;
    EpochSlot* own = thread_epoch_slot;
    thread_epoch_slot = nullptr;
    if (own != nullptr && own->depth == 0) put_back(registry().threads, *own);
  }
};
ThreadSlots& thread_slots() { return pm::thread_part<ThreadSlots>(pm::ThreadPart::readers); }

// The oldest epoch at which somebody is pinned; all ones when nobody is.
std::uint64_t oldest_epoch(bool with_rests) {
  std::uint64_t oldest = ~0ull;
  const auto meet = [&](const EpochSlot& slot) {
    const std::uint64_t state = slot.state.load(std::memory_order_seq_cst);
    if ((state & EpochSlot::kResting) != 0 && !with_rests) return;
    const std::uint64_t epoch = state & ~(EpochSlot::kStep - 1);
    if (epoch != 0 && epoch < oldest) oldest = epoch;
  };
  registry().threads.for_each(meet);
  registry().loose.for_each(meet);
  return oldest;
}

// Calls f while the slot's holder cannot pin it, if it is in this state. REQUIRES: the registry's
// mutex.
template <class F>
void look_at(EpochSlot& slot, std::uint64_t state, F&& f) {
  slot.looked_at.store(true, std::memory_order_seq_cst);  // before the mark, which leads here
  std::uint64_t marked = state;
  if (slot.state.compare_exchange_strong(marked, state | EpochSlot::kLooked,
                                         std::memory_order_seq_cst)) {
    f();
    marked = state | EpochSlot::kLooked;
    slot.state.compare_exchange_strong(marked, state, std::memory_order_seq_cst);
  }
  slot.looked_at.store(false, std::memory_order_release);
}

// Places in blocks that iterators and views at rest hold. Where there is no memory for them, all
// are taken for held.
class HeldSet {
 public:
  // Reads what is held at this moment.
  void read() {
    const pm::TraceUninterrupted alone;
    Registry& r = registry();
    const std::lock_guard lock(r.mu);
    r.loose.for_each([&](EpochSlot& slot) {
      const std::uint64_t state = slot.state.load(std::memory_order_seq_cst);
      if ((state & EpochSlot::kResting) != 0) look_at(slot, state, [&] { add(slot.held); });
    });
    std::sort(places_.get(), places_.get() + count_);
  }

  bool holds(const Retired& item) const {
    if (item.what != Retired::What::block) return false;
    if (incomplete_) return true;
    const std::uint64_t* const first = places_.get();
    const std::uint64_t* const end = first + count_;
    const std::uint64_t* const at = std::lower_bound(first, end, item.word);
    return at != end && *at < item.word + std::max<std::uint64_t>(item.bytes, 1);
  }

 private:
  void add(const HeldPlaces& held) {
    constexpr std::uint64_t kPlace = (1ull << 48) - 1;
    const auto* at = static_cast<const std::byte*>(held.first);
    for (std::uint32_t i = 0; i < held.count && !incomplete_; ++i, at += held.stride) {
      std::uint64_t word;
      std::memcpy(&word, at, sizeof word);
      if ((word & kPlace) == 0) continue;
      if (count_ == room_) grow();
      if (!incomplete_) places_[count_++] = word & kPlace;
    }
  }
  void grow() {
    const std::size_t room = std::max<std::size_t>(64, room_ * 2);
    std::unique_ptr<std::uint64_t[]> more(new (std::nothrow) std::uint64_t[room]);
    incomplete_ = more == nullptr;
    if (incomplete_) return;
    std::copy(places_.get(), places_.get() + count_, more.get());
    places_ = std::move(more);
    room_ = room;
  }

  std::unique_ptr<std::uint64_t[]> places_;
  std::size_t count_ = 0;
  std::size_t room_ = 0;
  bool incomplete_ = false;
};

}  // namespace

std::uint64_t seal_epoch() {
  return global_epoch.fetch_add(EpochSlot::kStep, std::memory_order_seq_cst);
}
bool epoch_is_over(std::uint64_t epoch) { return epoch < oldest_epoch(true); }

// --- slots --------------------------------------------------------------------------------------

void EpochSlot::wait_until_looked_at() {
  while (looked_at.load(std::memory_order_acquire)) std::this_thread::yield();
}

void EpochSlot::rest(HeldPlaces places) {
  held = places;
  // Release: meets the acquire of who marks it.
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
  static_cast<void>(thread_slots());  // which gives it back at the thread's end
  EpochSlot& slot = wait_for_thread_slot();
  thread_epoch_slot = &slot;
  return slot;
}

EpochSlot* take_loose_slot() {
  ThreadSlots& t = thread_slots();
  if (t.loose_count > 0) return t.loose[--t.loose_count];
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(registry().mu);
  return registry().loose.take();
}

void put_loose_slot(EpochSlot& slot) {
  ThreadSlots* t = nullptr;  // a thread that met none of this before may have no memory for it
  static_cast<void>(pm::had_memory([&] { t = &thread_slots(); }));
  if (t != nullptr && t->loose_count < ThreadSlots::kLooseMax && !t->ended) {
    t->loose[t->loose_count++] = &slot;
  } else {
    put_back(registry().loose, slot);
  }
}

// --- limbos -------------------------------------------------------------------------------------

Limbos::Limbos(Free free, Ready ready)
    : free_(std::move(free)),
      ready_(std::move(ready)),
      table_(new std::atomic<Limbo*>[kEpochSlots]) {
  for (std::size_t i = 0; i < kEpochSlots; ++i) table_[i].store(nullptr, std::memory_order_relaxed);
}

Limbos::~Limbos() {
  for (std::size_t i = 0; i < kEpochSlots; ++i) delete table_[i].load(std::memory_order_acquire);
}

std::size_t Limbos::index_of_mine() { return static_cast<std::size_t>(&my_epoch_slot() - threads); }

Limbo& Limbos::make() {
  for (std::size_t i = 0; i < kSpareAtOnce; ++i) {
    if (auto* chunk = new (std::nothrow) RetiredChunk) put_chunk(chunk);
  }
  auto* limbo = new Limbo;
  table_[index_of_mine()].store(limbo, std::memory_order_release);
  return *limbo;
}

// Null: there is no memory.
RetiredChunk* Limbos::new_chunk() {
  if (auto* chunk = new (std::nothrow) RetiredChunk) return chunk;
  const std::lock_guard lock(mu_);
  if (spares_ > 0) --spares_;
  return spare_.pop();
}

void Limbos::put_chunk(RetiredChunk* chunk) {
  chunk->count = 0;
  {
    const std::lock_guard lock(mu_);
    if (spares_ < kSpare) {
      ++spares_;
      return spare_.push(chunk);
    }
  }
  delete chunk;
}

// REQUIRES: see Limbo::fresh. Without memory for another chunk they stay where they are.
void Limbos::take_fresh(Limbo& limbo, RetiredList& out) {
  if (limbo.fresh->count == 0) return;
  if (!out.take_items(*limbo.fresh)) {
    RetiredChunk* chunk = new_chunk();
    if (chunk == nullptr) return;
    out.push(limbo.fresh.release());
    limbo.fresh.reset(chunk);
  }
  limbo.fresh_count.store(0, std::memory_order_relaxed);
  limbo.fresh_bytes.store(0, std::memory_order_relaxed);
}

void Limbos::take_from_those_at_rest(RetiredList& out) {
  if (TENUTO_PLANT("store_lists_of_resting_threads_stay")) return;
  const pm::TraceUninterrupted alone;
  Registry& r = registry();
  const std::lock_guard lock(r.mu);
  r.threads.for_each([&](EpochSlot& slot) {
    Limbo* limbo = table_[&slot - threads].load(std::memory_order_acquire);
    if (limbo == nullptr || limbo->fresh_count.load(std::memory_order_relaxed) == 0) return;
    look_at(slot, 0, [&] { take_fresh(*limbo, out); });
  });
}

void Limbos::seal(RetiredList&& items) {
  if (items.empty()) return;
  const std::lock_guard lock(mu_);
  const std::uint64_t epoch = seal_epoch();
  for (RetiredChunk* chunk = items.first(); chunk != nullptr; chunk = chunk->next) {
    chunk->epoch = epoch;
    waiting_.add(*chunk);
  }
  sealed_.append(std::move(items));
}

// Those whose epoch is over, but for what somebody at rest holds.
void Limbos::free_some(std::size_t items_max) {
  if (!ready_()) return;
  RetiredList going;
  {
    const pm::TraceUninterrupted alone;
    const std::lock_guard lock(mu_);
    const bool whole = TENUTO_PLANT("store_rests_hold_all");  // as if every rest were a pin
    const std::uint64_t oldest = oldest_epoch(whole);
    std::size_t items = 0;
    for (const RetiredChunk* c = held_.first(); c != nullptr; c = c->next) items += c->count;
    if (items < items_max) {
      going.append(std::move(held_));
    } else {
      items = 0;
    }
    while (!sealed_.empty() && sealed_.first()->epoch < oldest && items < items_max) {
      items += sealed_.first()->count;
      going.push(sealed_.pop());
    }
    for (RetiredChunk* c = going.first(); c != nullptr; c = c->next) waiting_.subtract(*c);
  }
  if (going.empty()) return;
  // After the pins were read.
  HeldSet places;
  if (!TENUTO_PLANT("store_rests_hold_nothing")) places.read();
  RetiredList held;
  while (RetiredChunk* chunk = going.pop()) {
    Retired* const end = std::partition(chunk->begin(), chunk->end(),
                                        [&](const Retired& item) { return places.holds(item); });
    std::for_each(end, chunk->end(), [this](const Retired& item) { free_(item); });
    chunk->count = static_cast<std::size_t>(end - chunk->begin());
    if (chunk->count != 0 && !held.take_items(*chunk)) {
      held.push(chunk);
    } else {
      put_chunk(chunk);
    }
  }
  const std::lock_guard lock(mu_);
  for (RetiredChunk* c = held.first(); c != nullptr; c = c->next) waiting_.add(*c);
  held_.append(std::move(held));
}

void Limbos::collect(Limbo& limbo) {
  if (!limbo.fresh->full() && TENUTO_PLANT("store_lists_of_resting_threads_stay")) return;
  RetiredList items;
  take_fresh(limbo, items);
  seal(std::move(items));
  free_some(kFreeAtOnce);
}

void Limbos::collect_all() {
  RetiredList items;
  const EpochSlot& own = my_epoch_slot();
  if (own.depth > 0) take_fresh(mine(), items);
  take_from_those_at_rest(items);
  seal(std::move(items));
  free_some(~std::size_t{0});
}

void Limbos::collect_all_at_rest() {
  EpochSlot& own = my_epoch_slot();
  if (own.depth != 1 || TENUTO_PLANT("store_own_pin_holds_all")) return collect_all();
  RetiredList items;
  take_fresh(mine(), items);
  // It holds its tree by the epoch, and no place.
  const std::uint64_t pinned = own.state.load(std::memory_order_relaxed);
  own.state.store(pinned | EpochSlot::kResting, std::memory_order_release);
  take_from_those_at_rest(items);
  seal(std::move(items));
  free_some(~std::size_t{0});
  own.state.exchange(pinned, std::memory_order_seq_cst);
}

void Limbos::drain() {
  RetiredList all;
  {
    const std::lock_guard lock(mu_);
    all.append(std::move(sealed_));
    all.append(std::move(held_));
    waiting_ = {};
  }
  while (RetiredChunk* chunk = all.pop()) {
    for (const Retired& item : *chunk) free_(item);
    put_chunk(chunk);
  }
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo == nullptr) continue;
    for (const Retired& item : *limbo->fresh) free_(item);
    limbo->fresh->count = 0;
    limbo->fresh_count.store(0, std::memory_order_relaxed);
    limbo->fresh_bytes.store(0, std::memory_order_relaxed);
  }
}

}  // namespace TENUTO_NS::store
