// Where the heap gets frames: the frame allocator, and the growth of the file when that is full.
#pragma once

#include <mutex>

#include "frame/frames.h"
#include "pm/pool_file.h"
#include "tenuto/status.h"

namespace tenuto::inline TENUTO_ABI::heap {

class FrameSource {
 public:
  FrameSource(pm::PoolFile& file, frame::Frames& frames) : file_(file), frames_(frames) {}

  // As Frames::get and get_run; grows the pool before it says full. The frame bits are flushed,
  // not fenced.
  Result<PoolOffset> get(unsigned order, unsigned core);
  Result<PoolOffset> get_run(std::uint64_t huge_frames, unsigned core);
  void put(PoolOffset o, unsigned order, unsigned core);
  void put_run(PoolOffset o, std::uint64_t huge_frames, unsigned core);

  frame::Frames& frames() { return frames_; }

 private:
  void given_back(PoolOffset o, Status s);
  template <class Get>
  Result<PoolOffset> get_or_grow(const Get& get, std::uint64_t huge_frames);

  pm::PoolFile& file_;
  frame::Frames& frames_;
  std::mutex grow_mu_;
};

}  // namespace tenuto::inline TENUTO_ABI::heap
