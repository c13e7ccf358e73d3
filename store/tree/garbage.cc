#include "store/tree/garbage.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "pm/plant.h"
#include "pm/trace.h"
#include "store/tree/epoch_slots.h"

namespace TENUTO_NS::store {

namespace {

// Places in blocks that iterators and views at rest hold. Without memory to note them, every block
// counts as held.
class HeldSet {
 public:
  // Reads what is held now.
  void read() {
    const pm::TraceUninterrupted alone;
    EpochRegistry& r = epoch_registry();
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

Garbage::Garbage(Free free, Ready ready) : free_(std::move(free)), ready_(std::move(ready)) {}

Garbage::~Garbage() {
  for (ThreadGarbage* l = lists_.load(std::memory_order_acquire); l != nullptr;) {
    delete std::exchange(l, l->next);
  }
  for (const auto& part : table_) delete part.load(std::memory_order_acquire);
}

template <class F>
void Garbage::each_list(F&& f) const {
  for (ThreadGarbage* l = lists_.load(std::memory_order_acquire); l != nullptr; l = l->next) f(*l);
}

std::size_t Garbage::index_of_mine() {
  return static_cast<std::size_t>(&my_epoch_slot() - epoch_slots_of_threads);
}

ThreadGarbage& Garbage::make() {
  for (std::size_t i = 0; i < kSpareAtOnce; ++i) {
    if (auto* chunk = new (std::nothrow) RetiredChunk) put_chunk(chunk);
  }
  const std::size_t slot = index_of_mine();
  auto& at = table_[slot / kPart];
  Part* part = at.load(std::memory_order_acquire);
  if (part == nullptr) {
    auto made = std::make_unique<Part>();
    if (at.compare_exchange_strong(part, made.get(), std::memory_order_acq_rel)) {
      part = made.release();
    }
  }
  auto* list = new ThreadGarbage;
  list->next = lists_.load(std::memory_order_relaxed);
  while (!lists_.compare_exchange_weak(list->next, list, std::memory_order_acq_rel)) {
  }
  (*part)[slot % kPart].store(list, std::memory_order_release);
  return *list;
}

// Null: there is no memory.
RetiredChunk* Garbage::new_chunk() {
  if (auto* chunk = new (std::nothrow) RetiredChunk) return chunk;
  const std::lock_guard lock(mu_);
  if (spares_ > 0) --spares_;
  return spare_.pop();
}

void Garbage::put_chunk(RetiredChunk* chunk) {
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

// REQUIRES: see ThreadGarbage::fresh. Without memory for another chunk the items stay where they
// are.
void Garbage::take_fresh(ThreadGarbage& list, RetiredList& out) {
  if (list.fresh->count == 0) return;
  if (!out.take_items(*list.fresh)) {
    RetiredChunk* chunk = new_chunk();
    if (chunk == nullptr) return;
    out.push(list.fresh.release());
    list.fresh.reset(chunk);
  }
  list.fresh_count.store(0, std::memory_order_relaxed);
  list.fresh_bytes.store(0, std::memory_order_relaxed);
}

void Garbage::take_going(ThreadGarbage& list, RetiredList& out) {
  if (list.going.empty() || TENUTO_PLANT("store_going_items_stay")) return;
  out.append(std::move(list.going));
  list.going_count.store(0, std::memory_order_relaxed);
  list.going_bytes.store(0, std::memory_order_relaxed);
}

void Garbage::take_from_those_at_rest(RetiredList& fresh, RetiredList& going) {
  if (TENUTO_PLANT("store_lists_of_resting_threads_stay")) return;
  const pm::TraceUninterrupted alone;
  EpochRegistry& r = epoch_registry();
  const std::lock_guard lock(r.mu);
  r.threads.for_each([&](EpochSlot& slot) {
    ThreadGarbage* list = list_of(static_cast<std::size_t>(&slot - epoch_slots_of_threads));
    if (list == nullptr) return;
    if (list->fresh_count.load(std::memory_order_relaxed) == 0 &&
        list->going_count.load(std::memory_order_relaxed) == 0) {
      return;
    }
    look_at(slot, 0, [&] {
      take_fresh(*list, fresh);
      take_going(*list, going);
    });
  });
}

void Garbage::hand_over(RetiredList&& items) {
  if (items.empty()) return;
  const std::lock_guard lock(mu_);
  const std::uint64_t epoch = advance_epoch();
  for (RetiredChunk* chunk = items.first(); chunk != nullptr; chunk = chunk->next) {
    chunk->epoch = epoch;
    waiting_.add(*chunk);
  }
  stamped_.append(std::move(items));
}

// Takes items whose epoch is over and that no rest holds. They stay free: a rest begins with a pin,
// and a later pin does not see them. The others of a chunk of which a rest holds some are freed
// here.
void Garbage::take_over(RetiredList& out, std::size_t items_max) {
  RetiredList over;
  {
    const pm::TraceUninterrupted alone;
    const std::lock_guard lock(mu_);
    const bool whole = TENUTO_PLANT("store_rests_hold_all");  // as if every rest were a pin
    const std::uint64_t oldest = oldest_epoch(whole);
    std::size_t items = 0;
    for (const RetiredChunk* c = held_.first(); c != nullptr; c = c->next) items += c->count;
    if (items < items_max) {
      over.append(std::move(held_));
    } else {
      items = 0;
    }
    while (!stamped_.empty() && stamped_.first()->epoch < oldest && items < items_max) {
      items += stamped_.first()->count;
      over.push(stamped_.pop());
    }
    for (RetiredChunk* c = over.first(); c != nullptr; c = c->next) waiting_.subtract(*c);
  }
  if (over.empty()) return;
  // After the pins were read: see epoch.h.
  HeldSet places;
  if (!TENUTO_PLANT("store_rests_hold_nothing")) places.read();
  RetiredList held;
  while (RetiredChunk* chunk = over.pop()) {
    Retired* const end = std::partition(chunk->begin(), chunk->end(),
                                        [&](const Retired& item) { return places.holds(item); });
    if (end == chunk->begin()) {
      out.push(chunk);
      continue;
    }
    std::for_each(end, chunk->end(), [this](const Retired& item) { free_(item); });
    chunk->count = static_cast<std::size_t>(end - chunk->begin());
    if (held.take_items(*chunk)) {
      put_chunk(chunk);
    } else {
      held.push(chunk);
    }
  }
  if (held.empty()) return;
  const std::lock_guard lock(mu_);
  for (RetiredChunk* c = held.first(); c != nullptr; c = c->next) waiting_.add(*c);
  held_.append(std::move(held));
}

void Garbage::free_all(RetiredList& items) {
  while (RetiredChunk* chunk = items.pop()) {
    for (const Retired& item : *chunk) free_(item);
    put_chunk(chunk);
  }
}

// What is going goes as the fresh list fills: nothing of it is left when that is full.
void Garbage::free_share(ThreadGarbage& list) {
  constexpr std::uint64_t kItemShare = kBatchBytes / kBatchItems;
  const std::uint64_t full = std::min(
      kBatchBytes,
      std::max(list.fresh->count * kItemShare, list.fresh_bytes.load(std::memory_order_relaxed)));
  const std::uint64_t kept = TENUTO_PLANT("store_garbage_freed_at_once")
                                 ? 0
                                 : list.going_taken - list.going_taken * full / kBatchBytes;
  std::uint64_t count = list.going_count.load(std::memory_order_relaxed);
  std::uint64_t bytes = list.going_bytes.load(std::memory_order_relaxed);
  if (count <= kept || !ready_()) return;
  while (count > kept) {
    RetiredChunk& chunk = *list.going.first();
    const Retired item = chunk.item[--chunk.count];
    if (chunk.count == 0) put_chunk(list.going.pop());
    free_(item);
    bytes -= item.bytes;
    --count;
  }
  list.going_count.store(count, std::memory_order_relaxed);
  list.going_bytes.store(bytes, std::memory_order_relaxed);
}

// The fresh list is full, or there is no memory for another chunk.
void Garbage::collect(ThreadGarbage& list) {
  if (!list.fresh->full() && TENUTO_PLANT("store_lists_of_resting_threads_stay")) return;
  free_share(list);
  RetiredList items;
  take_fresh(list, items);
  hand_over(std::move(items));
  if (!list.going.empty() || !ready_()) return;
  take_over(list.going, kTakenAtOnce);
  Waiting going;
  for (const RetiredChunk* c = list.going.first(); c != nullptr; c = c->next) going.add(*c);
  list.going_taken = going.items <= kFreedTogether ? 0 : going.items;
  list.going_count.store(going.items, std::memory_order_relaxed);
  list.going_bytes.store(going.bytes, std::memory_order_relaxed);
  free_share(list);
}

void Garbage::collect_with(ThreadGarbage* own) {
  if (!ready_()) return;
  RetiredList fresh;
  RetiredList going;
  if (own != nullptr) {
    take_fresh(*own, fresh);
    take_going(*own, going);
  }
  take_from_those_at_rest(fresh, going);
  hand_over(std::move(fresh));
  free_all(going);
  take_over(going, ~std::size_t{0});
  free_all(going);
}

void Garbage::collect_all() { collect_with(my_epoch_slot().depth > 0 ? &mine() : nullptr); }

void Garbage::collect_all_at_rest() {
  EpochSlot& own = my_epoch_slot();
  if (own.depth != 1 || TENUTO_PLANT("store_own_pin_holds_all")) return collect_all();
  ThreadGarbage& list = mine();
  // The calling thread's pin holds its tree by the epoch, and no block.
  const std::uint64_t pinned = own.state.load(std::memory_order_relaxed);
  own.state.store(pinned | EpochSlot::kResting, std::memory_order_release);
  collect_with(&list);
  own.state.exchange(pinned, std::memory_order_seq_cst);
}

void Garbage::drain() {
  RetiredList all;
  {
    const std::lock_guard lock(mu_);
    all.append(std::move(stamped_));
    all.append(std::move(held_));
    waiting_ = {};
  }
  each_list([&](ThreadGarbage& list) {
    take_going(list, all);
    for (const Retired& item : *list.fresh) free_(item);
    list.fresh->count = 0;
    list.fresh_count.store(0, std::memory_order_relaxed);
    list.fresh_bytes.store(0, std::memory_order_relaxed);
  });
  free_all(all);
}

// --- what waits, and the counts ------------------------------------------------------------------

void Garbage::for_each(const std::function<void(const Retired&)>& f) const {
  const auto each = [&](const RetiredChunk& chunk) {
    std::for_each(chunk.begin(), chunk.end(), f);
  };
  each_list([&](const ThreadGarbage& list) {
    each(*list.fresh);
    for (const RetiredChunk* c = list.going.first(); c != nullptr; c = c->next) each(*c);
  });
  const std::lock_guard lock(mu_);
  for (const RetiredChunk* c = stamped_.first(); c != nullptr; c = c->next) each(*c);
  for (const RetiredChunk* c = held_.first(); c != nullptr; c = c->next) each(*c);
}

Garbage::Waiting Garbage::waiting() const {
  Waiting w;
  {
    const std::lock_guard lock(mu_);
    w = waiting_;
  }
  each_list([&](const ThreadGarbage& list) {
    w.items += list.fresh_count.load(std::memory_order_relaxed) +
               list.going_count.load(std::memory_order_relaxed);
    w.bytes += list.fresh_bytes.load(std::memory_order_relaxed) +
               list.going_bytes.load(std::memory_order_relaxed);
  });
  return w;
}

template <class T>
T Garbage::sum(std::atomic<T> ThreadGarbage::*count) const {
  T n = 0;
  each_list([&](const ThreadGarbage& list) { n += (list.*count).load(std::memory_order_relaxed); });
  return n;
}
std::int64_t Garbage::records() const { return sum(&ThreadGarbage::records); }
std::int64_t Garbage::record_bytes() const { return sum(&ThreadGarbage::record_bytes); }
std::uint64_t Garbage::changes() const { return sum(&ThreadGarbage::changes); }

}  // namespace TENUTO_NS::store
