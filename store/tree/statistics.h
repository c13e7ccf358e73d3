// Counts of a tree, and an estimate of how many records a range holds.
#pragma once

#include <cstdint>
#include <string_view>

#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// Only what concerns a tree is set. Cost: a walk over the index. The first call after a crash also
// reads every record.
StoreStats stats_of(const Tree& tree);
// How many records are in [from, to), to == null: to the end. An estimate from the index alone.
std::uint64_t estimate(const Tree& tree, std::string_view from, const std::string_view* to);

}  // namespace TENUTO_NS::store
