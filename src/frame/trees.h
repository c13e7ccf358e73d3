// The trees of one zone in DRAM. A tree has a counter of free base frames for 32 huge frames
// (64 MiB), and a bit that a core has reserved it. Rebuilt from the children at open.
//
// The counter of a reserved tree moves into the core's slot (slot.h). The tree's word then collects
// what other cores free into the tree. When quiescent, with s the slot that reserved t, if any:
//   t.free + s.free == sum of the free counters of t's children
#pragma once

#include <cstdint>
#include <optional>

#include "frame/format.h"
#include "frame/word.h"

namespace TENUTO_NS::frame {

// Trees by their free frames. Base frames fill partial trees first, so that free trees stay free.
// This keeps huge frames whole.
struct TreeClass {
  unsigned min;
  unsigned max;

  constexpr bool has(unsigned free) const { return min <= free && free <= max; }
};
inline constexpr unsigned kAllocatedBelow = kTreeFrames / 8;           // 12.5 %
inline constexpr unsigned kFreeAbove = kTreeFrames - kTreeFrames / 8;  // 87.5 %
inline constexpr TreeClass kPartial{kAllocatedBelow, kFreeAbove};
inline constexpr TreeClass kFree{kFreeAbove + 1, kTreeFrames};
constexpr TreeClass allocated_with(unsigned frames) { return {frames, kAllocatedBelow - 1}; }

struct Tree {
  std::uint16_t raw;

  static constexpr std::uint16_t kReservedBit = 0x8000;

  static constexpr Tree make(unsigned free, bool reserved) {
    return {static_cast<std::uint16_t>(free | (reserved ? kReservedBit : 0u))};
  }
  constexpr unsigned free() const { return raw & 0x7fffu; }
  constexpr bool reserved() const { return (raw & kReservedBit) != 0; }
  constexpr bool reservable(TreeClass c) const { return !reserved() && c.has(free()); }

  constexpr std::optional<Tree> give(unsigned frames) const {
    if (free() + frames > kTreeFrames) return std::nullopt;
    return make(free() + frames, reserved());
  }
  // Takes min(free, frames).
  constexpr std::optional<Tree> take_up_to(unsigned frames) const {
    if (free() == 0) return std::nullopt;
    return make(free() - (free() < frames ? free() : frames), reserved());
  }
  // The counter moves to the slot that reserves the tree.
  constexpr std::optional<Tree> reserve(TreeClass c) const {
    if (!reservable(c)) return std::nullopt;
    return make(0, true);
  }
  // The counter, now `frames`, moves back.
  constexpr std::optional<Tree> unreserve(unsigned frames) const {
    if (!reserved() || free() + frames > kTreeFrames) return std::nullopt;
    return make(free() + frames, false);
  }
};
static_assert(Tree::make(kTreeFrames, true).free() == kTreeFrames);
static_assert(Tree::make(kTreeFrames, true).reserved());

// Trees in one cache line. A core looks first in the line of its last tree.
inline constexpr std::uint32_t kTreesPerLine = kLineBytes / sizeof(Tree);

}  // namespace TENUTO_NS::frame
