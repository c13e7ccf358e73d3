// What the heap tells about itself: its figures, and its blocks.
#include <algorithm>

#include "heap/heap_paths.h"
#include "pm/metadata_key.h"

namespace TENUTO_NS::heap {

std::uint64_t Heap::State::cached_bytes(Kind kind) const {
  std::uint64_t bytes = 0;
  const std::size_t end = lane_heaps_end.load(std::memory_order_acquire);
  for (std::size_t id = 0; id < end; ++id) {
    const LaneHeap* h = lane_heaps[id].load(std::memory_order_acquire);
    if (h == nullptr) continue;
    const auto& caches = h->caches[static_cast<unsigned>(kind)];
    for (std::size_t c = 0; c < caches.size(); ++c) {
      bytes += std::uint64_t{caches[c].count()} * kClassBytes[c];
    }
  }
  return bytes;
}

// A logged block has a bit that tells whether it is held. A derived one is held unless it is free
// or in a cache.
HeapStats Heap::stats() const {
  const pm::MetadataOpen rights;
  HeapStats s;
  const ExtentStats e = state_->extents.stats();
  s.allocated_bytes = e.allocated_bytes;
  s.cached_bytes = e.leaving_bytes;
  std::uint64_t derived = 0;
  s.extents = e.count;
  s.objects = e.live_logged;
  s.reclaimed_bytes = e.reclaimed_bytes;
  s.retained_bytes = e.retained_bytes;
  s.book_bytes = e.book.bytes;
  s.book_list_bytes = e.book.list_bytes;
  s.book_live_entries = e.book.live_entries;
  s.book_fast_gcs = e.book.fast_gcs;
  s.book_slow_gcs = e.book.slow_gcs;
  s.book_segments_given_back = e.book.segments_given_back;
  for (const auto& arena : state_->arenas) {
    arena->for_each_slab([&](const Slab& slab) {
      s.slabs += slab.is_old() ? 0 : 1;
      s.morphed_slabs += slab.is_old() ? 1 : 0;
      if (!slab.is_old()) {
        const unsigned taken = slab.blocks - slab.free_count;
        s.slabs_by_tenth[std::min(taken * 10 / slab.blocks, 9u)] += 1;
      }
      const std::uint64_t used = std::uint64_t{slab.used()} * slab.block_bytes;
      if (!is_logged(slab.kind)) {
        derived += used;
        return;
      }
      const std::uint64_t held = std::uint64_t{slab.held_count()} * slab.block_bytes;
      s.objects += slab.live_count();
      s.allocated_bytes += held;
      s.cached_bytes += used - std::min(used, held);
    });
  }
  // Other threads may have moved blocks since.
  const State::Waiting recorded = state_->recorded_waiting();
  const std::uint64_t held = std::min(recorded.held_bytes, s.allocated_bytes);
  s.allocated_bytes -= held;
  s.cached_bytes += held;
  s.objects -= std::min(recorded.held_blocks, s.objects);
  const std::uint64_t waiting =
      state_->cached_bytes(Kind::derived) + state_->cached_bytes(Kind::record) +
      state_->deferred_bytes.load(std::memory_order_relaxed) + recorded.derived_bytes +
      (state_->wear == nullptr ? 0 : state_->wear->resting_bytes());
  const std::uint64_t cached = std::min(derived, waiting);
  s.allocated_bytes += derived - cached;
  s.cached_bytes += cached;
  state_->add_wear(s, wear_table());
  return s;
}

void Heap::empty_all_caches() {
  const pm::MetadataOpen rights;
  State& s = *state_;
  static_cast<void>(s.free_all_deferred());  // if it fails, the pool turns read-only
  s.collect_all_recorded();
  for (const auto& h : s.lane_heaps_owned) s.empty_caches(*h);
}

void Heap::for_each(Kind kind, const std::function<void(PoolOffset, std::uint64_t)>& f) {
  const pm::MetadataOpen rights;
  State& s = *state_;
  empty_all_caches();
  s.for_each_slab([&](Slab& slab) {
    if (is_logged(slab.kind) != is_logged(kind)) return;
    const auto in_use = [&](std::size_t w) {
      const std::uint64_t reserved = slab.reserved_bits[w].load(std::memory_order_acquire);
      return is_logged(kind) ? slab.live_word(w) | reserved : slab.used_word(w) & ~reserved;
    };
    for (std::size_t w = 0; w < slab.words(); ++w) {
      // `f` may free blocks that come later.
      for (std::uint64_t left = in_use(w); left != 0; left &= in_use(w) & (left - 1)) {
        f(slab.block_offset(first_block(w, left)), slab.block_bytes);
      }
    }
  });
  const PoolOffset table = is_logged(kind) ? wear_table() : PoolOffset{};  // the heap's own
  s.extents.for_each(kind, [&](PoolOffset o, std::uint64_t bytes) {
    if (o != table || !table) f(o, bytes);
  });
}

}  // namespace TENUTO_NS::heap
