#include "frame/zone.h"

namespace TENUTO_NS::frame {

bool Zone::inside(FrameId frame, std::uint64_t frames) const {
  const ZoneGeometry& g = geometry();
  const std::uint64_t begin = g.base + g.usable_begin();
  const std::uint64_t end = g.base + g.end();
  return frame.value >= begin && frame.value < end && frames <= end - frame.value;
}

unsigned Zone::free_in_children(std::uint32_t t) const {
  unsigned free = 0;
  for (std::uint32_t c = 0; c < kTreeChildren; ++c) {
    free += lower.child(t * kTreeChildren + c).free();
  }
  return free;
}

void Zone::count_free() {
  for (std::uint32_t t = 0; t < trees(); ++t) {
    store(tree(t), Tree::make(free_in_children(t), false));
  }
}

}  // namespace TENUTO_NS::frame
