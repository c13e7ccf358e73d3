// The frames that the owners named after a crash. It exists between begin_recovery and
// end_recovery. DRAM only, one bit a base frame.
//
// Many threads call keep at once. Two owners of one frame are damage: each bit is set with one
// atomic or, and the thread that finds it set reports.
#pragma once

#include <cstdint>
#include <vector>

#include "frame/format.h"
#include "frame/lower.h"

namespace TENUTO_NS::frame {

class OwnedFrames {
 public:
  explicit OwnedFrames(const ZoneGeometry& g);

  // Frame numbers as in Lower. False when one of the frames was named before. REQUIRES: in the
  // zone, aligned.
  bool name(std::uint32_t frame, unsigned order);
  bool name_run(std::uint32_t first_child, std::uint32_t count);

  // Makes the lower state hold exactly the named frames and the zone's own. Returns how many base
  // frames were taken before and are not now. Not flushed.
  std::uint64_t apply(Lower& lower) const;

 private:
  bool name_child(std::uint32_t c);

  std::vector<Bitfield> bits_;
  std::vector<std::uint8_t> whole_;  // written only by the thread that set all the child's bits
};

}  // namespace TENUTO_NS::frame
