// What every operation of the heap goes through, inlined: half of the instructions of one were
// calls. heap_state.h says what each does.
#pragma once

#include "heap/heap_state.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

[[gnu::always_inline]] inline Block Heap::State::take_cached(LaneHeap& h, std::uint64_t bytes,
                                                             bool near) const {
  if (bytes >= cached_end) return {};
  const ClassId c = class_of(bytes);
  ClassCache& cache = h.caches[static_cast<unsigned>(Kind::logged)][c.value];
  return {near ? cache.take_near() : cache.take(), kClassBytes[c.value]};
}

// `index_in` tells the block's index in the slab, which has no old part.
template <class F>
[[gnu::always_inline]] inline SlabBlock Heap::State::find_slab_block(PoolOffset o,
                                                                     const F& index_in) const {
  const PageTable::Entry e = pages.find(o);
  if (e.owner == PageOwner::none) return {};
  Slab* const slab = e.slab();
  if (const OldPart* old = slab->old.load(std::memory_order_acquire)) [[unlikely]]
    return old_block(*slab, *old, o);
  return {slab, index_in(*slab)};
}
[[gnu::always_inline]] inline SlabBlock Heap::State::slab_block(PoolOffset o) const {
  return find_slab_block(o, [&](const Slab& slab) { return slab.index_of(o); });
}
[[gnu::always_inline]] inline SlabBlock Heap::State::slab_block_of(PoolOffset block) const {
  return find_slab_block(block, [&](const Slab& slab) { return slab.index_of_start(block); });
}

// False: the block, its slab or the pool needs more, or the cache is full.
[[gnu::always_inline]] inline bool Heap::State::give_to_cache(LaneHeap& h, PoolOffset block,
                                                              const SlabBlock& b) const {
  const Slab* const slab = b.slab;
  if (slab == nullptr || wear != nullptr || h.numa != nullptr) return false;
  if (slab->leaving.load(std::memory_order_relaxed) || slab->is_old()) return false;
  if (is_derived(slab->kind)) return false;
  ClassCache& cache = h.caches[static_cast<unsigned>(slab->kind)][slab->class_id.value];
  return cache.put(block, cache.stripes() == 1 ? 0 : slab->stripe_of(b.index));
}

inline void Heap::State::give_back(LaneHeap& h, PoolOffset block, const SlabBlock& b) {
  if (!give_to_cache(h, block, b)) [[unlikely]]
    give_back_slowly(h, block, b);
}

inline void Heap::State::give_back(LaneHeap& h, PoolOffset block) {
  give_back(h, block, slab_block_of(block));
}

inline void Heap::State::give_back_at_once(LaneHeap& h, PoolOffset block, const SlabBlock& b) {
  if (!numa.on()) return give_back(h, block, b);
  retire(h, block);  // another lane's recorded free may name a word in it
}

[[gnu::always_inline]] inline IntentElement Heap::State::element(const void* dest,
                                                                 const Block& block,
                                                                 std::uint32_t version) const {
  const SlabBlock b = slab_block_of(block.offset);
  return {file.offset_of(dest), block.offset, block.bytes, version, b.index, b.slab};
}

[[gnu::always_inline]] inline void Heap::State::begin_intents(LaneHeap& h) {
  if (h.live_lines + kGroupLines > kIntentLines) [[unlikely]]
    drain_limbo(h);
  h.begin_intents();
}

[[gnu::always_inline]] inline void Heap::State::fence_lane(LaneHeap& h, const char* first,
                                                           const char* then) {
  if (stores_persist) return tenuto::fence(first, then);
  h.dirty.fence(first, then);
  const bool early = TENUTO_PLANT("heap_block_reused_before_retirement");
  h.durable = h.cleared.load(std::memory_order_relaxed);
  h.retired = early ? h.durable : h.retiring;
  if (h.wants_end()) end_retired(h);
}

[[gnu::always_inline]] inline void Heap::State::end_intents(LaneHeap& h) {
  h.cleared.store(h.sequence, std::memory_order_release);
  if (stores_persist) h.end_at_once();
}

}  // namespace TENUTO_NS::heap
