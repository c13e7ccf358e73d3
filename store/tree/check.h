// Validation of trees against their leaves, their records and the heap (Store::validate).
#pragma once

#include <cstdint>
#include <unordered_map>

#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// Blocks of the pool: offset -> reachable, not only retired.
using Reached = std::unordered_map<std::uint64_t, bool>;

// Checks the tree and notes the blocks that it reaches. REQUIRES: no thread writes meanwhile.
Status validate(const Tree& tree, Reached& reached, Report* report);
// Notes the blocks of a tree that waits to be given back.
void note_dropped(const Tree& tree, Reached& reached);
// Compares the heap with the blocks that all trees of a pool reach.
Status check_heap(const Ground& ground, const Reached& reached, Report* report);

}  // namespace TENUTO_NS::store
