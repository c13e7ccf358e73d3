// The size classes of small blocks. The steps are 16 bytes up to 64 bytes, and at most a quarter up
// to 4 KiB. Above that the sizes cut a slab into 13, 11, 10 ... 4 blocks with the least waste. A
// class whose size is a multiple of 64 has line-aligned blocks. A request for a multiple of 64
// bytes gets such a class.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "heap/format.h"
#include "tenuto/units.h"

namespace TENUTO_NS::heap {

inline constexpr std::array<std::uint32_t, 37> kClassBytes = {
    16,   32,   48,   64,   80,   96,   112,  128,  160,   192,   224,  256,  320,
    384,  448,  512,  640,  768,  896,  1024, 1280, 1536,  1792,  2048, 2560, 3072,
    3584, 4096, 4992, 5888, 6464, 7232, 8128, 9280, 10816, 12992, 16256};
inline constexpr unsigned kClasses = kClassBytes.size();
inline constexpr std::uint64_t kSmallBytesMax = kClassBytes.back();
inline constexpr std::uint32_t kTypeBytes = 8;

namespace internal {
constexpr auto make_class_table() {
  std::array<std::uint8_t, kSmallBytesMax / 16 + 1> table{};
  unsigned c = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    while (kClassBytes[c] < i * 16) ++c;
    // A multiple of 64 skips the classes that would break its alignment.
    unsigned fit = c;
    while (i % 4 == 0 && i != 0 && kClassBytes[fit] % 64 != 0) ++fit;
    table[i] = static_cast<std::uint8_t>(fit);
  }
  return table;
}
inline constexpr auto kClassTable = make_class_table();
}  // namespace internal

// The class of a request. REQUIRES: bytes <= kSmallBytesMax. Cost: one table load.
constexpr ClassId class_of(std::uint64_t bytes) {
  return {internal::kClassTable[(bytes + 15) / 16]};
}

// The smallest class for a request aligned to `align`, a power of two; kNoClass when there is none.
// Blocks begin at a multiple of the largest power of two in their size (slab_geometry).
inline constexpr ClassId kNoClass{kClasses};
constexpr ClassId class_of(std::uint64_t bytes, std::uint64_t align) {
  if (bytes > kSmallBytesMax || align > kFrameBytes) return kNoClass;
  ClassId c = class_of(bytes);
  if (align <= 16) return c;
  while (c != kNoClass && kClassBytes[c.value] % align != 0) c.value += 1;
  return c;
}

// Whether a block of this size is in a slab. An extent for an aligned request may be smaller than
// the largest class, but its size is never that of a class.
constexpr bool is_class_bytes(std::uint64_t bytes) {
  return bytes <= kSmallBytesMax && kClassBytes[class_of(bytes).value] == bytes;
}

// The first block of a slab is at a multiple of this. So blocks whose size is a power of two are
// aligned to their size, up to a frame.
constexpr std::uint32_t block_alignment(std::uint32_t block_bytes) {
  return std::min(block_bytes & (~block_bytes + 1), static_cast<std::uint32_t>(kFrameBytes));
}

// How a slab is cut for a class and the pool's number of stripes.
struct SlabGeometry {
  std::uint32_t stripes;
  std::uint32_t data_offset;
  std::uint32_t blocks;
};

namespace internal {
constexpr SlabGeometry geometry_behind(std::uint32_t block_bytes, std::uint32_t stripes,
                                       std::uint32_t header_lines, std::uint32_t alignment) {
  const auto header = header_lines * static_cast<std::uint32_t>(kLineBytes);
  const std::uint32_t data = (header + alignment - 1) / alignment * alignment;
  return {stripes, data, (static_cast<std::uint32_t>(kSlabBytes) - data) / block_bytes};
}
constexpr SlabGeometry geometry_aligned(std::uint32_t block_bytes, std::uint32_t stripes,
                                        std::uint32_t alignment) {
  for (;; ++stripes) {
    const SlabGeometry g = geometry_behind(block_bytes, stripes, 1 + stripes, alignment);
    if (g.blocks <= stripes * kStripeBits) return g;
  }
}
}  // namespace internal

constexpr SlabGeometry slab_geometry(std::uint32_t block_bytes, std::uint32_t stripes) {
  return internal::geometry_aligned(block_bytes, stripes, block_alignment(block_bytes));
}

// The same for a part whose blocks begin later. REQUIRES: the cut names a class.
constexpr SlabGeometry cut_geometry(const SlabCut& cut, std::uint32_t stripes) {
  const std::uint32_t bytes = kClassBytes[cut.class_id];
  return internal::geometry_behind(bytes, slab_geometry(bytes, stripes).stripes, cut.end_line,
                                   block_alignment(bytes));
}

// How a slab of one part is cut. With `room`, the stripes of another part fit behind its own, so
// that a morph (morph.h) takes no place from blocks. There is none where it would cost more than a
// 64th of the blocks: in the classes above 4 KiB.
constexpr SlabCut whole_cut(ClassId class_id, std::uint32_t pool_stripes, bool room) {
  const std::uint32_t bytes = kClassBytes[class_id.value];
  const SlabGeometry tight = slab_geometry(bytes, pool_stripes);
  const std::uint32_t end = 1 + tight.stripes;
  SlabCut cut{class_id.value, 1, static_cast<std::uint8_t>(room ? end + pool_stripes : end)};
  if (cut_geometry(cut, pool_stripes).blocks * 64 < tight.blocks * 63)
    cut.end_line = static_cast<std::uint8_t>(end);
  return cut;
}

// The geometry of a slab of typed blocks. The lines for their types are between stripes and blocks.
constexpr SlabGeometry typed_geometry(std::uint32_t block_bytes, std::uint32_t pool_stripes) {
  const std::uint32_t stripes = slab_geometry(block_bytes, pool_stripes).stripes;
  const std::uint32_t header = (1 + stripes) * static_cast<std::uint32_t>(kLineBytes);
  const std::uint32_t blocks =
      (static_cast<std::uint32_t>(kSlabBytes) - header) / (block_bytes + kTypeBytes);
  for (std::uint32_t lines = std::max(blocks / 8, 1u);; ++lines) {
    const SlabGeometry g = internal::geometry_behind(block_bytes, stripes, 1 + stripes + lines,
                                                     block_alignment(block_bytes));
    if (g.blocks <= lines * 8) return g;
  }
}

namespace internal {
constexpr bool alignment_costs_at_most_one_block() {
  for (const std::uint32_t bytes : kClassBytes) {
    for (std::uint32_t stripes = 1; stripes <= kStripesMax; ++stripes) {
      const SlabGeometry packed = geometry_aligned(bytes, stripes, 1);
      if (slab_geometry(bytes, stripes).blocks + 1 < packed.blocks) return false;
    }
  }
  return true;
}
static_assert(alignment_costs_at_most_one_block());
}  // namespace internal

static_assert(class_of(0).value == 0 && class_of(16).value == 0 && class_of(17).value == 1);
static_assert(kClassBytes[class_of(116 + 8).value] == 128);
static_assert(kClassBytes[class_of(kSmallBytesMax).value] == kSmallBytesMax);
static_assert(slab_geometry(16, 1).blocks <= kBlocksMax && slab_geometry(16256, 6).blocks == 4);

}  // namespace TENUTO_NS::heap
