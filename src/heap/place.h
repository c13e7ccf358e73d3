// What is at an offset of the pool, in words for people: for the reports of frees that are refused,
// and of memory that was overwritten (Pool::describe).
#pragma once

#include <cstdint>
#include <string>

#include "heap/heap.h"

namespace TENUTO_NS::heap {

struct Place {
  enum class What : std::uint8_t {
    head,         // superblocks, roots, the first lanes
    slab_header,  // header, bits and types of a slab
    gap,          // of a slab: no block covers it
    block,        // of any size, or a free extent
    inner,        // taken by the heap for itself, or by the layers above for their logs
    nothing,      // no frame is taken here
  };
  enum class Use : std::uint8_t { allocated, reserved, free };

  What what = What::nothing;
  PoolOffset begin = {};    // of the block or slab
  std::uint64_t bytes = 0;  // usable ones of the block; of a slab header, those of its blocks
  Use use = Use::free;
  bool derived = false;
  std::uint64_t type = 0;
  std::uint64_t slab = 0;  // that the block is in (Slab::born). 0: none

  // "block of 128 bytes at offset 65792, allocated; the address is 16 bytes inside it"
  std::string text(PoolOffset o) const;
  // Why nothing can be freed by a pointer to o, and what to do. Null: a block can.
  const char* refusal(PoolOffset o) const;
};

}  // namespace TENUTO_NS::heap
