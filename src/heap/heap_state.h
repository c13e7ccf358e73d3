// The parts of a Heap, shared by the files that implement it: heap.cc (blocks), intent.cc
// (malloc_to and free_from), recover.cc (opening, closing, validation).
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "heap/arena.h"
#include "heap/extent.h"
#include "heap/frame_source.h"
#include "heap/heap.h"
#include "heap/lane_heap.h"
#include "heap/page_table.h"

namespace tenuto::inline TENUTO_ABI::heap {

inline constexpr std::size_t kLanesMax = pm::kLaneSegmentsMax * pm::kLanesPerSegment;

struct Heap::State {
  State(pm::PoolFile& f, frame::Frames& fr, pm::Lanes& l, const HeapOptions& o);

  const HeapOptions options;
  pm::PoolFile& file;
  pm::Lanes& lanes;
  PageTable pages;
  FrameSource frames;
  Extents extents;
  std::vector<std::unique_ptr<Arena>> arenas;
  std::unique_ptr<std::atomic<LaneHeap*>[]> lane_heaps;  // by lane id
  std::atomic<std::size_t> lane_heaps_end = 0;           // ids at and above have none
  std::mutex lane_heaps_mu;
  std::vector<std::unique_ptr<LaneHeap>> lane_heaps_owned;
  bool clean = true;  // the pool was closed cleanly before this open
  std::mutex log_frames_mu;
  std::vector<PoolOffset> log_frames;  // named by own_log_frame

  // --- heap.cc
  LaneHeap& mine();
  LaneHeap& lane_heap(pm::Lane& lane);
  Result<Block> reserve(LaneHeap& h, std::uint64_t bytes, Kind kind, std::uint64_t align = 16);
  Result<PoolOffset> refill(LaneHeap& h, ClassCache& cache, ClassId class_id, Kind kind);
  // To the lane's cache, or to the slab when the cache is full; extents go to the free extents.
  void give_back(LaneHeap& h, PoolOffset block);
  void give_to_slabs(std::vector<PoolOffset>& blocks);
  void empty_caches(LaneHeap& h);
  // Everything that idle lanes and this one hold without need, back to slabs and frames.
  void scavenge(LaneHeap& h);
  // In the old part of a morphed slab when a held block of it starts there, else in the new one.
  SlabBlock slab_block(PoolOffset o) const;

  // --- intent.cc
  bool is_word(const PtrWord& dest) const;
  void publish_block(LaneHeap& h, const Block& block, PtrWord& dest);
  void before_fence(LaneHeap& h);
  void after_fence(LaneHeap& h);
  void drain_limbo(LaneHeap& h);
  // Flushes again what a lane's thread flushed and may not have fenced.
  void flush_unfenced(LaneHeap& h);
  // A logged block whose free is durable and retired: reused once no lane can still write into it.
  void retire(LaneHeap& h, PoolOffset block);
  void empty_quarantine(LaneHeap& h);

  // --- recover.cc
  void find_slabs();
  Status replay_line(pm::LogLine& line, std::uint64_t retired, Report* report);
  // In recovery, when nothing is held yet: in the part whose blocks have that size, in each part.
  SlabBlock slab_block(PoolOffset o, std::uint64_t bytes) const;
  std::array<SlabBlock, 2> parts_at(PoolOffset o) const;
  Status settle(Slab& slab, Report* report) const;
  void settle_part(Slab& slab) const;
  Status validate_slab(const Slab& slab, Report* report);
  Status own_frames(std::uint64_t* leaked, Report* report);
  template <class F>
  void for_each_slab(const F& f) {
    for (const auto& arena : arenas) arena->for_each_slab(f);
  }
};

}  // namespace tenuto::inline TENUTO_ABI::heap
