// Where the heap gets frames: from the frame allocator, from extents that can do without theirs,
// and from growth of the file when there are none. Every frame that it hands out has space in the
// file, except from get_unfilled.
#pragma once

#include <functional>
#include <mutex>

#include "file/pool_file.h"
#include "frame/frames.h"
#include "heap/holes.h"
#include "heap/large_pages.h"
#include "tenuto/status.h"

namespace TENUTO_NS::heap {

class FrameSource {
 public:
  FrameSource(pm::PoolFile& file, frame::Frames& frames)
      : file_(file), frames_(frames), holes_(file), large_(file, holes_, frames) {}

  // As Frames::get and get_run. Grows the pool before it returns full. The frame bits are flushed,
  // not fenced.
  Result<PoolOffset> get(unsigned order, unsigned core);
  Result<PoolOffset> get_run(std::uint64_t huge_frames, unsigned core);
  // The same for a caller that fills holes itself.
  Result<PoolOffset> get_unfilled(unsigned order, unsigned core);
  void put(PoolOffset o, unsigned order, unsigned core);
  void put_run(PoolOffset o, std::uint64_t huge_frames, unsigned core);

  // `reclaim` gives frames back before the file grows, and returns whether it did. It is called
  // without the locks of this class. Set once, before use.
  void set_reclaim(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  // Makes sure that the frames have space (Holes::fill). REQUIRES: they are the caller's.
  Status fill(std::uint64_t first, std::uint64_t frames);
  // Gives the pages of all free huge frames and of all free slab frames back to the file system.
  void punch_free();

  frame::Frames& frames() { return frames_; }
  Holes& holes() { return holes_; }
  LargePages& large() { return large_; }

 private:
  void given_back(PoolOffset o, Status s);
  void punch_pieces(std::uint64_t frame, std::uint64_t end);
  template <class Get>
  Result<PoolOffset> get_or_grow(const Get& get, std::uint64_t frames);
  Status grow(std::uint64_t huge_frames);

  pm::PoolFile& file_;
  frame::Frames& frames_;
  Holes holes_;
  LargePages large_;
  std::function<bool()> reclaim_;
  std::mutex grow_mu_;
};

}  // namespace TENUTO_NS::heap
