// Where the heap gets frames: the frame allocator, what the extents can do without, and the growth
// of the file when there are none. What it hands out has space in the file.
#pragma once

#include <functional>
#include <mutex>

#include "file/pool_file.h"
#include "frame/frames.h"
#include "heap/holes.h"
#include "tenuto/status.h"

namespace TENUTO_NS::heap {

class FrameSource {
 public:
  FrameSource(pm::PoolFile& file, frame::Frames& frames)
      : file_(file), frames_(frames), holes_(file) {}

  // As Frames::get and get_run; grows the pool before it says full. The frame bits are flushed,
  // not fenced.
  Result<PoolOffset> get(unsigned order, unsigned core);
  Result<PoolOffset> get_run(std::uint64_t huge_frames, unsigned core);
  // The same for somebody who looks after holes himself.
  Result<PoolOffset> get_unfilled(unsigned order, unsigned core);
  void put(PoolOffset o, unsigned order, unsigned core);
  void put_run(PoolOffset o, std::uint64_t huge_frames, unsigned core);

  // Somebody who gives frames back before the file grows, and says whether he did. Called without
  // locks of this class; set once, before use.
  void set_reclaim(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  // Gives the pages of all free huge frames, and of free slab frames, back to the file system.
  void punch_free();

  frame::Frames& frames() { return frames_; }
  Holes& holes() { return holes_; }

 private:
  void given_back(PoolOffset o, Status s);
  void punch_pieces(std::uint64_t frame, std::uint64_t end);
  template <class Get>
  Result<PoolOffset> get_or_grow(const Get& get, std::uint64_t huge_frames);

  pm::PoolFile& file_;
  frame::Frames& frames_;
  Holes holes_;
  std::function<bool()> reclaim_;
  std::mutex grow_mu_;
};

}  // namespace TENUTO_NS::heap
