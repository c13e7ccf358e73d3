// The size classes of small blocks. Up to 4 KiB in steps of at most a quarter; above that the
// sizes that cut a slab into 13, 11, 10 ... 4 blocks with least waste. A class whose size is a
// multiple of 64 holds line-aligned blocks, and requests that are multiples of 64 get such a one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "heap/format.h"
#include "tenuto/units.h"

namespace tenuto::inline TENUTO_ABI::heap {

inline constexpr std::array<std::uint32_t, 37> kClassBytes = {
    16,   32,   48,   64,   80,   96,   112,  128,  160,   192,   224,  256,  320,
    384,  448,  512,  640,  768,  896,  1024, 1280, 1536,  1792,  2048, 2560, 3072,
    3584, 4096, 4992, 5888, 6464, 7232, 8128, 9280, 10816, 12992, 16256};
inline constexpr unsigned kClasses = kClassBytes.size();
inline constexpr std::uint64_t kSmallBytesMax = kClassBytes.back();

namespace internal {
constexpr auto make_class_table() {
  std::array<std::uint8_t, kSmallBytesMax / 16 + 1> table{};
  unsigned c = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    while (kClassBytes[c] < i * 16) ++c;
    // A multiple of 64 skips classes that would break its alignment.
    unsigned fit = c;
    while (i % 4 == 0 && i != 0 && kClassBytes[fit] % 64 != 0) ++fit;
    table[i] = static_cast<std::uint8_t>(fit);
  }
  return table;
}
inline constexpr auto kClassTable = make_class_table();
}  // namespace internal

// The class of a request. REQUIRES: bytes <= kSmallBytesMax. One table load.
constexpr ClassId class_of(std::uint64_t bytes) {
  return {internal::kClassTable[(bytes + 15) / 16]};
}

// The smallest class for a request aligned to `align`, a power of two; kNoClass when there is none.
// A slab's blocks begin at a multiple of the largest power of two in their size (slab_geometry).
inline constexpr ClassId kNoClass{kClasses};
constexpr ClassId class_of(std::uint64_t bytes, std::uint64_t align) {
  if (bytes > kSmallBytesMax || align > kFrameBytes) return kNoClass;
  ClassId c = class_of(bytes);
  if (align <= 16) return c;
  while (c != kNoClass && kClassBytes[c.value] % align != 0) c.value += 1;
  return c;
}

// How a slab of the class is cut, for the pool's number of stripes.
struct SlabGeometry {
  std::uint32_t stripes;
  std::uint32_t data_offset;
  std::uint32_t blocks;
};
constexpr SlabGeometry slab_geometry(std::uint32_t block_bytes, std::uint32_t stripes) {
  const std::uint64_t align = std::min<std::uint64_t>(block_bytes & -block_bytes, kFrameBytes);
  for (;; ++stripes) {
    const auto data = static_cast<std::uint32_t>(
        round_up(kLineBytes * (1 + stripes), std::max(align, kLineBytes)));
    const std::uint32_t blocks = (static_cast<std::uint32_t>(kSlabBytes) - data) / block_bytes;
    if (blocks <= stripes * kStripeBits) return {stripes, data, blocks};
  }
}

static_assert(class_of(0).value == 0 && class_of(16).value == 0 && class_of(17).value == 1);
static_assert(kClassBytes[class_of(116 + 8).value] == 128);
static_assert(kClassBytes[class_of(kSmallBytesMax).value] == kSmallBytesMax);
static_assert(slab_geometry(16, 1).blocks <= kBlocksMax && slab_geometry(16256, 6).blocks == 4);

}  // namespace tenuto::inline TENUTO_ABI::heap
