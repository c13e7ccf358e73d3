// What DRAM holds for each lane: the caches of free blocks, the state of the lane's intents, and
// freed blocks that may not be reused yet. Owner: the thread that holds the lane. Other threads
// read only the atomic members.
//
// Every intent has a sequence. It passes these points in order:
//   sequence   the intent is written
//   cleared    its destinations and bits are stored, and flushed before the lane's next fence
//   durable    that fence returned
//   retiring   a word on media that records this was stored and flushed: a retired line, or the
//              head of the lane's next intent
//   retired    a later fence returned: recovery ignores the intent
// The members below are the highest sequence at each point:
//   retired <= retiring, retired <= durable <= cleared <= sequence
// Until an intent is retired, recovery could replay it. So the blocks that it frees wait in limbo.
// And the words that a replay could write are pending: memory that contains one is not reused.
//
// On medium cache an intent passes all points when its operation is done
// (Heap::State::end_intents): no block waits, and no word is pending.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "file/lane.h"
#include "heap/arena.h"
#include "heap/deferred.h"
#include "heap/intent_line.h"
#include "heap/remote.h"
#include "heap/tcache.h"
#include "pm/dirty_lines.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

inline constexpr std::size_t kIntentLines = pm::kLaneIntentLines;
// Lines of one group. Three groups fit: the one being written and the two before it.
inline constexpr std::size_t kGroupLines = 8;
static_assert(3 * kGroupLines <= kIntentLines && kIntentLines <= 32);
inline constexpr std::size_t kQuarantineBatch = 16;  // blocks checked against other lanes at once

// Neighbouring destinations in one word: the offset of the first, and how many.
struct PendingDests {
  std::uint64_t raw = 0;

  static constexpr PendingDests make(PoolOffset first, std::size_t count) {
    return {first.value << 8 | count};
  }
  constexpr std::uint64_t first() const { return raw >> 8; }
  constexpr std::uint64_t last() const { return first() + 8 * (raw & 255) - 8; }
};

// The blocks that an intent line holds back until it is retired.
struct LimboLine {
  std::uint64_t sequence = 0;
  std::size_t count = 0;  // of blocks; 0 unless the intent frees
  std::array<PoolOffset, kIntentPacked> block;
};

struct LaneHeap {
  pm::Lane* lane = nullptr;
  Arena* arena = nullptr;
  unsigned core = 0;
  std::array<std::array<ClassCache, kClasses>, kKinds> caches;  // by kind, class
  std::vector<PoolOffset> places;                               // scratch
  std::vector<IntentElement> batch;                             // scratch

  std::unique_ptr<DeferredBatch> deferred;  // null: no memory, or not needed

  std::uint64_t evacuations = 0;  // how many this lane has seen

  std::unique_ptr<LaneNuma> numa;  // null: one node

  // Sequences are never used twice in a lane.
  std::uint64_t sequence = 0;
  std::uint64_t durable = 0;
  std::uint64_t retiring = 0;
  std::uint64_t retired = 0;
  // The lines are a ring. `live_lines` of them, from the oldest on, have intents that are not
  // retired.
  unsigned oldest_line = 0;
  unsigned live_lines = 0;
  unsigned next_line = 0;     // behind these
  unsigned retired_turn = 0;  // the retired line to write next
  pm::DirtyLines dirty;       // of operations that are not durable yet
  std::array<LimboLine, kIntentLines> limbo;
  // Freed blocks whose intents are retired. They wait until no other lane has a pending destination
  // inside them.
  std::vector<PoolOffset> quarantine;
  std::vector<PoolOffset> quarantine_kept;  // scratch
  std::size_t quarantine_room = 0;          // of both

  // Consistency::gc: words that this lane stored since its last fence, and the blocks that wait
  // for it (gc.cc).
  struct Unfenced {
    const std::uint64_t* word = nullptr;
    PoolOffset freed;  // 0: the word was attached
    SlabBlock at;      // of the freed block
  };
  static constexpr std::size_t kUnfencedMost = 64;
  unsigned unfenced_count = 0;
  std::array<Unfenced, kUnfencedMost> unfenced;

  // Destinations that the replay of a live intent could write, by line. A line whose bit in the
  // mask is clear has none. Other threads check them before they reuse memory.
  alignas(kLineBytes) std::atomic<std::uint32_t> pending_mask = 0;
  std::atomic<std::uint64_t> cleared = 0;
  std::array<std::array<std::atomic<std::uint64_t>, kIntentPairs>, kIntentLines> pending{};

  // One pass over the quarantine may have to keep all of it.
  void make_quarantine_room(std::size_t blocks) {
    quarantine_kept.reserve(blocks);
    quarantine.reserve(blocks);
    quarantine_room = blocks;
  }
  bool quarantine_full() const { return quarantine.size() == quarantine_room; }
  static unsigned after(unsigned line) { return line + 1 == kIntentLines ? 0 : line + 1; }
  pm::LogLine& line_at(std::size_t line) const { return lane->lines[pm::kLaneIntentLine + line]; }
  std::uint64_t& retired_word(std::size_t i) const {
    return lane->lines[pm::kLaneRetiredLine + i].word[0];
  }
  // Says in the next intents, or in a retired line, what is durable.
  void begin_intents() {
    const bool early = TENUTO_PLANT("heap_free_retired_before_durable");
    retiring = std::max(retiring, early ? cleared.load() : durable);
  }
  void publish_retired(std::uint64_t upto) {
    retiring = upto;
    tenuto::publish(retired_word(retired_turn++ % 2), upto);
  }
  // Writes the next line, which has the elements e[0 .. count). `waits`: the operation is not over
  // when its stores are made. REQUIRES: the line is free, and begin_intents was called.
  // Inline: of one element nearly all of it is known to the compiler.
  [[gnu::always_inline]] void write_line(IntentOp op, const std::uint64_t (&words)[7],
                                         const IntentElement* e, std::size_t count, bool waits) {
    const bool frees = op == IntentOp::free_from || op == IntentOp::versioned_free;
    bool is_pending = waits && op != IntentOp::malloc_to;
    if (op == IntentOp::versioned_malloc && TENUTO_PLANT("heap_versioned_malloc_not_pending")) {
      is_pending = false;
    }
    const unsigned line = next_line;
    LimboLine& l = limbo[line];
    l.sequence = ++sequence;
    l.count = frees && waits ? count : 0;
    for (std::size_t k = 0; k < l.count; ++k) l.block[k] = e[k].block;
    if (is_pending) set_pending(line, e, count);
    pm::write_log_line(line_at(line), words, sequence);
    next_line = after(line);
    live_lines += 1;
  }
  // Medium cache: what the intents are about is stored, so they are over. The ring begins anew.
  void end_at_once() {
    store_retired_at_once();
    durable = retired = sequence;
    next_line = oldest_line;
    live_lines = 0;
  }
  // The same for one element, without the ring: begin_intents, write_line and end_at_once.
  [[gnu::always_inline]] void begin_one_at_once(IntentOp op, const IntentElement& e,
                                                std::uint64_t type) {
    std::uint64_t words[7];
    pack_one(words, op, retiring, e, type);
    pm::store_log_line(line_at(next_line), words, ++sequence);
  }
  [[gnu::always_inline]] void end_one_at_once() {
    cleared.store(sequence, std::memory_order_release);
    store_retired_at_once();
  }
  // Of a lane that is the ring of a batch (remote.h): all its intents are retired.
  void end_all() {
    durable = retired = sequence;
    cleared.store(sequence, std::memory_order_release);
    oldest_line = next_line;
    live_lines = 0;
    pending_mask.store(0, std::memory_order_release);
  }
  // Whether intents are retired that hold something back: blocks, or memory with pending words.
  // Those of plain mallocs hold nothing, and leave the ring a few at once. (The intents in the ring
  // have consecutive sequences.)
  bool wants_end() const {
    const bool holds = pending_mask.load(std::memory_order_relaxed) != 0;
    return sequence - live_lines < retired && (holds || live_lines >= kGroupLines);
  }
  // Takes the intents that are retired off the ring. Calls f(block) for each that they freed.
  template <class F>
  void end_retired(const F& f) {
    while (live_lines != 0 && limbo[oldest_line].sequence <= retired) {
      const LimboLine& l = limbo[oldest_line];
      const std::uint32_t bit = 1u << oldest_line;
      const std::uint32_t mask = pending_mask.load(std::memory_order_relaxed);
      if ((mask & bit) != 0) pending_mask.store(mask & ~bit, std::memory_order_release);
      oldest_line = after(oldest_line);
      live_lines -= 1;
      for (std::size_t i = 0; i < l.count; ++i) f(l.block[i]);
    }
  }

  // Calls f(PendingDests) for all pending destinations.
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

 private:
  void store_retired_at_once() {
    retiring = sequence;
    if (TENUTO_PLANT("heap_intents_on_cache_never_retired")) return;
    tenuto::store_published(retired_word(0), sequence);
  }
  // Publishes the destinations that a replay of the intent would write.
  void set_pending(unsigned line, const IntentElement* e, std::size_t n) {
    const bool neighbours = n == 1 || e[n - 1].dest.value == e[0].dest.value + 8 * (n - 1);
    const PendingDests first = PendingDests::make(e[0].dest, neighbours ? n : 1);
    pending[line][0].store(first.raw, std::memory_order_relaxed);
    const std::uint64_t second = neighbours ? 0 : PendingDests::make(e[1].dest, 1).raw;
    pending[line][1].store(second, std::memory_order_relaxed);
    const std::uint32_t mask = pending_mask.load(std::memory_order_relaxed) | 1u << line;
    pending_mask.store(mask, std::memory_order_release);
  }
};

}  // namespace TENUTO_NS::heap
