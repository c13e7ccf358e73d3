// The trees of one zone in DRAM: a counter of free base frames for every 32 huge frames (64 MiB),
// and whether a core has reserved the tree. Rebuilt from the children at open.
//
// A reserved tree's counter moves into the core's slot (slot.h); what other cores free into the
// tree meanwhile collects here. Quiescent, with s the slot that reserved t, if any:
//   t.free + s.free == sum of the free counters of t's children
#pragma once

#include <cstdint>
#include <optional>

#include "frame/format.h"
#include "frame/word.h"

namespace TENUTO_NS::frame {

// Trees by their free frames. Partial ones are filled first, so that free ones stay free: this is
// what keeps huge frames whole.
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
  // As many as there are, at most `frames`.
  constexpr std::optional<Tree> take_up_to(unsigned frames) const {
    if (free() == 0) return std::nullopt;
    return make(free() - (free() < frames ? free() : frames), reserved());
  }
  // The counter goes to the slot that reserves.
  constexpr std::optional<Tree> reserve(TreeClass c) const {
    if (!reservable(c)) return std::nullopt;
    return make(0, true);
  }
  // The counter comes back.
  constexpr std::optional<Tree> unreserve(unsigned frames) const {
    if (!reserved() || free() + frames > kTreeFrames) return std::nullopt;
    return make(free() + frames, false);
  }
};
static_assert(Tree::make(kTreeFrames, true).free() == kTreeFrames);
static_assert(Tree::make(kTreeFrames, true).reserved());

// One cache line of trees: where a core looks first.
inline constexpr std::uint32_t kTreesPerLine = kLineBytes / sizeof(Tree);

}  // namespace TENUTO_NS::frame
