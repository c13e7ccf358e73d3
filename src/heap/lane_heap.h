// What the heap keeps for each lane, in DRAM: the caches of free blocks, the state of its intents,
// and the freed blocks that may not be reused yet. Owner: whoever holds the lane; only what is
// atomic is read by others.
//
// Every operation of a lane has a sequence, and these follow one another:
//   sequence   its intent is written
//   cleared    its destinations and bits are stored, and flushed before the lane's next fence
//   durable    that fence returned
//   retiring   a word on media that says so was stored and flushed: a retired line, or the head of
//              the lane's next intent
//   retired    a later fence returned: recovery ignores the intent
// Until then its blocks are in limbo if it frees, so that a block never returns while an intent
// that names it could be replayed, and its destinations are pending: memory that contains one is
// not used again.
//   retired <= retiring, retired <= durable <= cleared <= sequence
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "file/lane.h"
#include "heap/arena.h"
#include "heap/intent_line.h"
#include "heap/tcache.h"
#include "pm/dirty_lines.h"

namespace TENUTO_NS::heap {

inline constexpr std::size_t kIntentLines = pm::kLaneIntentLines;
// Of one group: three groups fit, the one that is written and the two before it.
inline constexpr std::size_t kGroupLines = 8;
static_assert(3 * kGroupLines <= kIntentLines && kIntentLines <= 32);
inline constexpr std::size_t kQuarantineBatch = 16;  // blocks checked against other lanes at once

// Neighbouring destinations in one word: where the first is, and how many.
struct PendingDests {
  std::uint64_t raw = 0;

  static constexpr PendingDests make(PoolOffset first, std::size_t count) {
    return {first.value << 8 | count};
  }
  constexpr std::uint64_t first() const { return raw >> 8; }
  constexpr std::uint64_t last() const { return first() + 8 * (raw & 255) - 8; }
};

// What an intent line holds back until it is retired.
struct LimboLine {
  std::uint64_t sequence = 0;
  std::size_t count = 0;  // blocks; none unless it frees
  std::array<PoolOffset, kIntentPacked> block;
};

struct LaneHeap {
  pm::Lane* lane = nullptr;
  Arena* arena = nullptr;
  unsigned core = 0;
  std::array<std::array<ClassCache, kClasses>, kKinds> caches;  // by kind, class
  std::vector<PoolOffset> places;                               // scratch
  std::vector<IntentElement> batch;                             // scratch

  std::uint64_t evacuations = 0;  // seen

  // Sequences, never used twice in a lane. Intents stand in the ring of lines by `lines`.
  std::uint64_t sequence = 0;
  std::uint64_t durable = 0;
  std::uint64_t retiring = 0;
  std::uint64_t retired = 0;
  std::uint64_t lines = 0;          // written so far
  std::uint64_t lines_retired = 0;  // of them
  unsigned retired_turn = 0;        // which retired line is next
  pm::DirtyLines dirty;             // of operations that are not durable yet
  std::array<LimboLine, kIntentLines> limbo;
  // Retired frees, waiting until no other lane has a pending destination inside them.
  std::vector<PoolOffset> quarantine;
  std::vector<PoolOffset> quarantine_kept;  // scratch

  // Destinations that a live intent could still write to after a crash, by line: those of a bit
  // that is clear in the mask say nothing. Others check them before they reuse memory.
  alignas(kLineBytes) std::atomic<std::uint32_t> pending_mask = 0;
  std::atomic<std::uint64_t> cleared = 0;
  std::array<std::array<std::atomic<std::uint64_t>, kIntentPairs>, kIntentLines> pending{};

  void make_quarantine_room(std::size_t blocks) {
    quarantine_kept.reserve(blocks);
    quarantine.reserve(blocks);
  }
  // All of it may have to be kept.
  bool quarantine_full() const {
    return quarantine.size() >= std::min(quarantine.capacity(), quarantine_kept.capacity());
  }
  bool in_limbo() const { return lines != lines_retired; }
  LimboLine& limbo_at(std::uint64_t line) { return limbo[line % kIntentLines]; }
  pm::LogLine& line_at(std::uint64_t line) const {
    return lane->lines[pm::kLaneIntentLine + line % kIntentLines];
  }
  std::uint64_t& retired_word(std::size_t i) const {
    return lane->lines[pm::kLaneRetiredLine + i].word[0];
  }
  // Calls f(PendingDests) for all there are.
  template <class F>
  void for_each_pending(const F& f) const {
    std::uint32_t mask = pending_mask.load(std::memory_order_acquire);
    for (; mask != 0; mask &= mask - 1) {
      const auto slot = static_cast<std::size_t>(std::countr_zero(mask));
      for (const auto& dests : pending[slot]) {
        const PendingDests d{dests.load(std::memory_order_acquire)};
        if (d.raw != 0) f(d);
      }
    }
  }
};

}  // namespace TENUTO_NS::heap
