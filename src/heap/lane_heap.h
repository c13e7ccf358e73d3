// What the heap keeps for each lane, in DRAM: the caches of free blocks, the state of its intents,
// and the freed blocks that may not be reused yet. Owner: whoever holds the lane; only
// pending_dest is read by others.
//
// Limbo (protocol F1 of 09-protocols): free_from makes only its intent durable; the cleared
// destination and bit ride on the lane's next fence. A free goes through
//   cleared    its stores are flushed
//   durable    a later fence of this lane returned
//   retiring   lane.retired = its sequence was stored and flushed
//   (gone)     a later fence returned: recovery ignores the intent, the block may be reused
// so a block never returns while an intent that names it could be replayed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "heap/arena.h"
#include "heap/tcache.h"
#include "pm/lane.h"

namespace tenuto::inline TENUTO_ABI::heap {

inline constexpr unsigned kFreeSlots = pm::kLaneFreeSlots;
inline constexpr unsigned kRetireEvery = kFreeSlots / 2;  // frees under one retired word
inline constexpr std::size_t kQuarantineBatch = 16;  // blocks checked against other lanes at once

enum class LimboStage : std::uint8_t { cleared, durable, retiring };

struct LimboFree {
  PoolOffset block;
  std::uint64_t sequence = 0;
  LimboStage stage = LimboStage::cleared;
};

struct LaneHeap {
  pm::Lane* lane = nullptr;
  Arena* arena = nullptr;
  unsigned core = 0;
  std::array<std::array<ClassCache, kClasses>, 2> caches;  // by kind, class
  std::vector<PoolOffset> spill;                           // scratch

  // Intents. A sequence is never used twice in a lane; free intent `s` stands in slot s % slots of
  // the ring, counted by free_count alone.
  std::uint64_t sequence = 0;
  unsigned malloc_slot = 0;
  std::uint64_t frees = 0;
  std::array<LimboFree, kFreeSlots> limbo{};  // ring: frees - limbo_count .. frees - 1
  unsigned limbo_count = 0;
  // Destinations that a live free intent could still write to after a crash; 0: none. Others
  // check it before they reuse memory that contains one.
  alignas(kLineBytes) std::array<std::atomic<std::uint64_t>, kFreeSlots> pending_dest{};
  // Retired frees, waiting until no other lane has a pending destination inside them.
  std::vector<PoolOffset> quarantine;

  LimboFree& limbo_at(unsigned i) { return limbo[(frees - limbo_count + i) % kFreeSlots]; }
};

}  // namespace tenuto::inline TENUTO_ABI::heap
