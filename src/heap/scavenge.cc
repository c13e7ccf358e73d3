// What a full pool still finds: blocks and frames that wait somewhere for a thread, and the free
// blocks of other cores' slabs. Costs a look at all lanes and arenas, so only a full pool does it.
#include "heap/heap_paths.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

void Heap::State::scavenge(LaneHeap& h) {
  collect_recorded(h);
  drain_limbo(h);
  lanes.for_each_idle([this](pm::Lane& lane) {
    LaneHeap* idle = lane_heaps[lane.id.value].load(std::memory_order_acquire);
    if (idle == nullptr) return;
    drain_limbo(*idle);
    empty_caches(*idle);
    hand_over(*idle);
  });
  free_deferred(h);
  empty_quarantine(h);  // again: some blocks may have waited for an idle lane
  collect_recorded(h);  // and what that gave to other nodes
  empty_caches(h);
  for (const auto& arena : arenas) arena->trim();
  extents.give_back_free();
}

// For a full pool: a block of another core's slab. One at a time: the cache keeps blocks of its own
// node alone, and the other core may need the rest.
Result<PoolOffset> Heap::State::take_elsewhere(const LaneHeap& h, ClassId class_id, Kind kind) {
  if (TENUTO_PLANT("heap_full_beside_free_blocks")) return Status::full;
  for (std::size_t i = 1; i < arenas.size(); ++i) {
    TakenBlock b{};
    Arena& other = *arenas[(h.core + i) % arenas.size()];
    const Result<unsigned> got = other.take(class_id, kind, &b, 1, Arena::From::its_slabs);
    if (got) return b.offset;
    if (got.error() != Status::full) return got.error();
  }
  return Status::full;
}

}  // namespace TENUTO_NS::heap
