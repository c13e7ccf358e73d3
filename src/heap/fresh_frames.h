// Chooses free frames by how often they were written (wear.h): the least written ones first. It
// takes them from the frame allocator by number. It never grows the file: when it finds nothing,
// the allocator chooses as usual, and then the file grows.
//
// A look at all frames would take long in a large pool. So it looks at a part of the pool at a
// time, each in turn, and keeps the best of what it saw, of each NUMA node. What it kept may be
// taken meanwhile; then the next one is tried.
//
// Thread safety: any thread. One lock, a leaf but for the frame allocator, which has none.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "file/pool_file.h"
#include "frame/frames.h"
#include "heap/wear.h"
#include "pm/short_lock.h"
#include "tenuto/numa.h"

namespace TENUTO_NS::heap {

class FreshFrames {
 public:
  FreshFrames(const pm::PoolFile& file, frame::Frames& frames, const Wear& wear, unsigned nodes)
      : file_(file), frames_(frames), wear_(wear), nodes_(nodes) {}

  // A free frame of 64 KiB of the node, or of any, with at most `worn_max` lines; none if it sees
  // none.
  std::optional<FrameId> take_slab(std::uint64_t worn_max, unsigned node = frame::kAnyNode);
  // `count` free huge frames in a row at a multiple of `align` huge frames. At most `worn_max`
  // lines for each 64 KiB.
  std::optional<FrameId> take_huge(std::uint64_t count, std::uint64_t align, std::uint64_t worn_max,
                                   unsigned node = frame::kAnyNode);

 private:
  static constexpr std::uint64_t kLookUnits = 4096;  // at a time: 256 MiB
  static constexpr std::size_t kKept = 64;
  static constexpr unsigned kMissesMax = 16;
  static constexpr std::uint64_t kLookHuge = 256;  // 512 MiB
  static constexpr std::uint64_t kHugeFramesEach = kHugeBytes / kFrameBytes;

  struct Seen {
    std::uint64_t worn = 0;
    std::uint64_t number = 0;
  };
  // What is kept of a node.
  struct Kept {
    std::vector<Seen> seen;  // the least written one last
    unsigned misses = 0;     // that it had nothing good enough
  };
  std::optional<FrameId> take_kept(Kept& kept, std::uint64_t worn_max);
  void look();
  std::uint64_t worn_huge(std::uint64_t huge) const;

  const pm::PoolFile& file_;
  frame::Frames& frames_;
  const Wear& wear_;
  const unsigned nodes_;
  pm::ShortLock mu_;
  // Guarded by mu_.
  std::array<Kept, kNodesMax> kept_;
  std::uint64_t next_unit_ = 0;
  std::uint64_t next_huge_ = 0;
};

}  // namespace TENUTO_NS::heap
