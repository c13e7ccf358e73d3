// What a caller may ask of a block besides its size, and a block that it has reserved.
#pragma once

#include <cstdint>

#include "tenuto/abi.h"
#include "tenuto/units.h"

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

// A block that only this process knows; a crash frees it. Give it to Pool::publish or cancel.
// `bytes` is the usable size.
struct Reserved {
  PoolOffset offset;
  void* data = nullptr;
  std::uint64_t bytes = 0;
};

}  // namespace TENUTO_NS
