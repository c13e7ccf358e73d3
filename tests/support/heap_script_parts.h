// Shared by heap_scripts.cc and the other files with scripts.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "support/heap_scripts.h"
#include "support/heap_worker.h"

namespace tenuto::test {

// Scripts of extents and of the bookkeeping log.
std::vector<HeapScript> heap_log_scripts();

// Makes all waiting memory free: this request is too large for the pool, so the heap searches
// everywhere.
inline void scavenge(HeapSession& s) {
  const std::uint64_t bytes = s.pool().file->bytes() - (1u << 20);
  EXPECT_EQ(s.pool().heap->reserve(bytes, heap::Kind::logged).error(), Status::full);
}

// heap_morph_scripts.cc
void add_morph_scripts(std::vector<HeapScript>& scripts);

}  // namespace tenuto::test
