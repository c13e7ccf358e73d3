// What each step of a transaction script does (tx_world.h), and what the world must show after it.
#pragma once

#include <cstdint>
#include <vector>

#include "support/tx_parts.h"
#include "support/tx_world.h"

namespace tenuto::test {

inline constexpr std::uint64_t kTypes = 3;              // of blocks that something points to
inline constexpr std::uint64_t kHeldType = kTypes + 1;  // of those that nothing points to

std::vector<PoolOffset> blocks_of_type(TxParts& p, std::uint64_t type);

// Makes and frees so many extents that freed ones are reused at once.
Status cancel_many(Transaction& tx);

// Runs one step. `choice` selects the words and destinations, `after` is the world after it. ok
// also for a step that aborts, if the world is then as it was.
Status perform(TxParts& p, World& w, Op op, std::uint64_t choice, const WorldState& after);

}  // namespace tenuto::test
