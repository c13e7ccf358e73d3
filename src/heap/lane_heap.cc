// Makes what DRAM holds for a lane.
#include "heap/lane_heap.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "heap/heap_paths.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

LaneHeap& Heap::State::make_lane_heap(pm::Lane& lane) {
  const pm::MetadataOpen rights;  // here, as prepare_thread has none
  std::atomic<LaneHeap*>& at = lane_heaps[lane.id.value];
  auto fresh = std::make_unique<LaneHeap>();
  fresh->lane = &lane;
  fresh->core = lane.id.value % static_cast<unsigned>(arenas.size());
  fresh->arena = arenas[fresh->core].get();
  if (numa.on()) {
    fresh->numa = std::make_unique<LaneNuma>();
    join_node(*fresh, lane.holder_node);
  }
  fresh->make_quarantine_room(2 * kQuarantineBatch);
  if (stores_persist) fresh->dirty.turn_off();
  if (file.frees_wait()) fresh->deferred = deferred.empty();
  // Start above every sequence that the lane's lines contain.
  for (std::size_t i = pm::kLaneRetiredLine; i < pm::kLaneUndoLine; ++i) {
    const pm::LogLine& line = lane.lines[i];
    const std::uint64_t said = i < pm::kLaneIntentLine ? line.word[0] : pm::log_sequence(line);
    if (TENUTO_PLANT("heap_lane_sequence_starts_anew")) continue;
    fresh->sequence = std::max(fresh->sequence, said);
  }
  fresh->durable = fresh->retiring = fresh->retired = fresh->sequence;
  fresh->cleared.store(fresh->sequence, std::memory_order_relaxed);
  LaneHeap* h = fresh.get();
  {
    const std::lock_guard lock(lane_heaps_mu);
    lane_heaps_owned.push_back(std::move(fresh));
    at.store(h, std::memory_order_release);
    const std::size_t end = lane_heaps_end.load(std::memory_order_relaxed);
    lane_heaps_end.store(std::max(end, std::size_t{lane.id.value} + 1), std::memory_order_release);
  }
  return *h;
}

}  // namespace TENUTO_NS::heap
