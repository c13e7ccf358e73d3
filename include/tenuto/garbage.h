// Garbage: objects that a program allocated and lost, so that no pointer leads to them.
// Pool::find_garbage lists it, and frees it if asked to.
//
// It follows pointers from the root object. It looks at each aligned word of an object as a Ptr and
// as a VPtr, and takes for a pointer whatever leads to an allocated block (conservative marking,
// Boehm and Weiser 1988; Makalu and Ralloc for persistent memory). So a number that looks like a
// pointer keeps a block, and no block is lost that a sound pointer leads to. A Ptr may point into a
// block, a VPtr points to its begin. Pointers in records of the store, in other pools and in DRAM
// do not count. A filter for the root object or for a type tells where its pointers are, which is
// exact (tenuto/references.h).
//
// It reads every reachable object once for each way in which it is reached, and no record. Garbage
// is freed 256 blocks at a time, each time in one transaction: durable and atomic. Objects have no
// checksums: what only a damaged pointer led to counts as lost, and is freed. So validate the
// containers first. Memory: two bits for 16 bytes of the pool, one more for each type that pointers
// say, and for each thread 4 MiB and up to four words for each pointer that it has still to follow.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tenuto/abi.h"
#include "tenuto/references.h"

namespace TENUTO_NS {

struct GarbageOptions {
  // Of the root object. Empty: it is read word by word.
  PointerFilter root_filter = {};
  // By type (AllocOptions::type). Objects of other types, and those without one, are read word by
  // word.
  std::map<std::uint64_t, PointerFilter> filters = {};
  bool free = false;     // frees Garbage::lost
  unsigned threads = 0;  // 0: one a core; 256 at most
};

// Blocks of one type and size.
struct GarbageRow {
  std::uint64_t type = 0;         // 0: none
  std::uint64_t block_bytes = 0;  // usable bytes of each
  std::uint64_t blocks = 0;

  std::uint64_t bytes() const { return blocks * block_bytes; }
};

struct Garbage {
  std::uint64_t reached_blocks = 0;  // the root object, and what it leads to
  std::uint64_t reached_bytes = 0;
  // Objects with a type that the root does not lead to, and what only these lead to. A walk by type
  // (Pool::objects) reaches them, so they are never freed. Sorted by type and size.
  std::vector<GarbageRow> walked;
  // Objects without a type that nothing leads to. Sorted by size.
  std::vector<GarbageRow> lost;
  std::uint64_t freed_blocks = 0;
  std::uint64_t freed_bytes = 0;
  double mark_ms = 0;  // what following the pointers took
};

}  // namespace TENUTO_NS
