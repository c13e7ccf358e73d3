// What a caller may ask of a block besides its size.
#pragma once

#include <cstdint>

#include "tenuto/abi.h"

namespace TENUTO_NS {

struct AllocOptions {
  // The block starts at a multiple of this in the pool, and in memory. A power of two up to 2 MiB,
  // else invalid_argument. A request for a multiple of 64 bytes is 64-byte aligned without asking.
  std::uint64_t align = 16;
  bool zero = false;  // the bytes asked for are zero when the block becomes reachable
  // A number of the caller's, by which Pool::first and next find the block; 0: none. It costs a
  // flushed line when the block is allocated, and 8 bytes.
  std::uint64_t type = 0;
};

}  // namespace TENUTO_NS
