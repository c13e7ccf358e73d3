// What the scripts of heap_scripts.cc and heap_log_scripts.cc share.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "support/heap_scripts.h"
#include "support/heap_worker.h"

namespace tenuto::test {

// Scripts of extents and of the bookkeeping log.
std::vector<HeapScript> heap_log_scripts();

// Frees whatever waits: a pool of fixed size has no room for this, and looks everywhere.
inline void scavenge(HeapSession& s) {
  const std::uint64_t bytes = s.pool().file->bytes() - (1u << 20);
  EXPECT_EQ(s.pool().heap->reserve(bytes, heap::Kind::logged).error(), Status::full);
}

// heap_morph_scripts.cc
void add_morph_scripts(std::vector<HeapScript>& scripts);

}  // namespace tenuto::test
