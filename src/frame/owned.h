// The frames that the layers above named after a crash. It lives between begin_recovery and
// end_recovery. DRAM only, one bit a base frame.
//
// keep is called by many threads at once. Two owners of one frame are damage: each bit is set with
// one atomic or, and whoever finds it set reports.
#pragma once

#include <cstdint>
#include <vector>

#include "frame/format.h"
#include "frame/lower.h"

namespace TENUTO_NS::frame {

class OwnedFrames {
 public:
  explicit OwnedFrames(const ZoneGeometry& g);

  // Frames of the zone as Lower numbers them. false: one of them was named before. REQUIRES: in the
  // zone, aligned.
  bool name(std::uint32_t frame, unsigned order);
  bool name_run(std::uint32_t first_child, std::uint32_t count);

  // Makes the lower state hold exactly what was named and what is the zone's own. Returns the base
  // frames that were taken before and are not now. Not flushed.
  std::uint64_t apply(Lower& lower) const;

 private:
  bool name_child(std::uint32_t c);

  std::vector<Bitfield> bits_;
  std::vector<std::uint8_t> whole_;  // written only by the one who set all the child's bits
};

}  // namespace TENUTO_NS::frame
