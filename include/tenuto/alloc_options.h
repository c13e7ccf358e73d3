// What a caller may ask of a block besides its size.
#pragma once

#include <cstdint>

#include "tenuto/abi.h"

namespace TENUTO_NS {

struct AllocOptions {
  // The block starts at a multiple of this, in the pool and in memory. It is a power of two up to
  // 2 MiB, else invalid_argument. A request for a multiple of 64 bytes is always 64-byte aligned.
  std::uint64_t align = 16;
  bool zero = false;  // all its usable bytes are zero when the block becomes reachable
  // A number that the caller chooses. Pool::first and next find blocks by it. 0: no type. A type
  // costs 8 bytes, and one flushed line at the allocation.
  std::uint64_t type = 0;
};

}  // namespace TENUTO_NS
