// Where the heap gets frames: from the frame allocator, from extents that can do without theirs,
// and from growth of the file when there are none. Every frame that it hands out has space in the
// file, except from get_unfilled.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "file/pool_file.h"
#include "frame/frames.h"
#include "heap/fresh_frames.h"
#include "heap/holes.h"
#include "heap/large_pages.h"
#include "tenuto/status.h"

namespace TENUTO_NS::heap {

class Numa;

class FrameSource {
 public:
  static constexpr std::uint64_t kNoRecordZones = ~std::uint64_t{0};

  // record_zones_from: HeapOptions::memory_max.
  FrameSource(pm::PoolFile& file, frame::Frames& frames,
              std::uint64_t record_zones_from = kNoRecordZones)
      : file_(file),
        frames_(frames),
        holes_(file),
        large_(file, holes_, frames),
        record_zones_from_(file.frees_wait() ? record_zones_from : kNoRecordZones) {}

  // As Frames::get and get_run. Grows the pool before it returns full. The frame bits are flushed,
  // not fenced.
  Result<PoolOffset> get(unsigned order, unsigned core, frame::ZoneUse use = frame::ZoneUse::any);
  Result<PoolOffset> get_run(std::uint64_t huge_frames, unsigned core);
  // As get, of the core's node alone. REQUIRES: set_numa.
  Result<PoolOffset> get_there(unsigned order, unsigned core);
  // As get, for a caller that fills holes itself.
  Result<PoolOffset> get_unfilled(unsigned order, unsigned core,
                                  frame::ZoneUse use = frame::ZoneUse::any);
  // Whether records have zones of their own. Makes the first one if it is time for that and there
  // is room.
  bool has_record_zones() {
    if (frames_.has(frame::ZoneUse::records)) return true;
    const std::uint64_t bytes = file_.bytes();
    if (bytes < record_zones_from_ || bytes == refused_at_.load(std::memory_order_relaxed))
      return false;
    return make_record_zone();
  }
  void put(PoolOffset o, unsigned order, unsigned core);
  void put_run(PoolOffset o, std::uint64_t huge_frames, unsigned core);

  // Wear levelling: who chooses free frames before the frame allocator does. Set once, before use.
  void set_fresh(FreshFrames* fresh) { fresh_ = fresh; }
  // A frame for a slab, or a chunk of two huge frames or one (`order` tells), with at most so many
  // lines for each 64 KiB, on the core's node. Never grows the file. REQUIRES: set_fresh. full:
  // there is none. The chunk's holes are not filled.
  Result<PoolOffset> get_fresher(std::uint64_t worn_max, unsigned core);
  Result<PoolOffset> get_fresher_chunk(std::uint64_t worn_max, unsigned core, unsigned& order);

  // `reclaim` gives frames back before the file grows, and returns whether it did. It is called
  // without the locks of this class. Set once, before use.
  void set_reclaim(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  // NUMA: frames of the core's node first. Once, before use.
  void set_numa(Numa* numa);

  // From now on the file grows once more at most, by a 32nd, or not at all where that is too
  // little: full.
  void grow_little() { growth_.store(Growth::little, std::memory_order_relaxed); }
  bool grows_little() const { return growth_.load(std::memory_order_relaxed) == Growth::little; }
  // From now on the file does not grow: full, where it would.
  void end_growth() { growth_.store(Growth::none, std::memory_order_relaxed); }

  // Makes sure that the frames have space (Holes::fill). REQUIRES: they are the caller's.
  Status fill(std::uint64_t first, std::uint64_t frames);
  // Gives the pages of all free huge frames and of all free slab frames back to the file system.
  void punch_free();

  frame::Frames& frames() { return frames_; }
  Holes& holes() { return holes_; }
  LargePages& large() { return large_; }

 private:
  Result<FrameId> choose(unsigned order, unsigned core, frame::ZoneUse use, unsigned node);
  Result<FrameId> choose_run(std::uint64_t huge_frames, unsigned core, unsigned node);
  Result<PoolOffset> filled(Result<PoolOffset> got, unsigned order, unsigned core);
  unsigned node_of(unsigned core) const;
  void given_back(PoolOffset o, Status s);
  class Held;
  void fill_around(std::uint64_t frame);
  template <class Get>
  Result<PoolOffset> get_or_grow(const Get& get, std::uint64_t frames, frame::ZoneUse use);
  Status grow(std::uint64_t huge_frames, frame::ZoneUse use, unsigned node = frame::kAnyNode);
  // numa.cc
  Result<PoolOffset> get_near(const std::function<Result<FrameId>(unsigned)>& get,
                              std::uint64_t frames, unsigned node, frame::ZoneUse use);
  bool make_record_zone();

  pm::PoolFile& file_;
  frame::Frames& frames_;
  Holes holes_;
  LargePages large_;
  Numa* numa_ = nullptr;  // null: one node
  // More than any pool has if records need no zones of their own.
  const std::uint64_t record_zones_from_;
  std::atomic<std::uint64_t> refused_at_ = 0;  // the pool's bytes when it had no room for one
  enum class Growth : std::uint8_t { by_policy, little, none };
  std::atomic<Growth> growth_ = Growth::by_policy;
  std::function<bool()> reclaim_;
  FreshFrames* fresh_ = nullptr;
  std::mutex grow_mu_;
};

}  // namespace TENUTO_NS::heap
