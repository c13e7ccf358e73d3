// One zone while the pool is open: its persistent lower state and its trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "frame/lower.h"
#include "frame/trees.h"
#include "tenuto/units.h"

namespace TENUTO_NS::frame {

class Zone {
 public:
  // The tree counters start at zero, so no frame is handed out before count_free.
  Zone(std::byte* pool, const ZoneGeometry& g, std::uint32_t index)
      : lower(pool, g),
        use_(lower.use()),
        index_(index),
        trees_(round_up(g.trees, kTreesPerLine) / kTreesPerLine) {}

  std::uint32_t index() const { return index_; }
  ZoneUse use() const { return use_; }
  const ZoneGeometry& geometry() const { return lower.geometry(); }
  std::uint32_t trees() const { return geometry().trees; }
  Tree& tree(std::uint32_t t) { return trees_[t / kTreesPerLine].trees[t % kTreesPerLine]; }

  FrameId id_of(std::uint32_t frame) const { return {geometry().base + frame}; }
  // Whether [frame, frame + frames) is inside the zone's usable frames.
  bool inside(FrameId frame, std::uint64_t frames) const;

  // The frame's number from the zone's base. REQUIRES: inside.
  std::uint32_t relative(FrameId frame) const {
    return static_cast<std::uint32_t>(frame.value - geometry().base);
  }

  // The sum of the free counters of a tree's children.
  unsigned free_in_children(std::uint32_t t) const;
  // Sets every tree's counter to that sum, unreserved. REQUIRES: quiescent.
  void count_free();

  Lower lower;
  unsigned node = 0;  // NUMA; constant when the zone is in service

 private:
  struct alignas(kLineBytes) TreeLine {
    Tree trees[kTreesPerLine] = {};
  };

  ZoneUse use_;  // in DRAM, because the header may be damaged later
  std::uint32_t index_;
  std::vector<TreeLine> trees_;
};

}  // namespace TENUTO_NS::frame
