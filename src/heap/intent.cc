// The life of an intent: written before its operation, replayed by recovery after a crash, retired
// afterwards. The operations and the argument for each protocol are in malloc.cc.
//
// An intent is over when its sequence <= the lane's retired sequence. This is the highest one in
// the lane's retired lines and in the heads of its intents. malloc_to on a plain word stores it in
// a retired line, because other threads may use the word after this thread's next fence. Other
// operations leave it to the head of the lane's next intent, which is written anyway.
//   intents, which carry the last sequence known to be durable | destinations and bits
// A new intent may overwrite a line that carried it. The lines written since carry at least as
// much, and there are always more than one group of them.
//
// On medium cache an operation retires its intent with its last store, in a retired line.
#include <algorithm>

#include "heap/heap_paths.h"
#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

std::size_t Heap::State::write_intents(LaneHeap& h, IntentOp op, const IntentElement* e,
                                       std::size_t n) {
  begin_intents(h);
  std::size_t done = 0;
  for (std::size_t i = 0; i < kGroupLines && done < n; ++i) {
    std::uint64_t words[7];
    const std::size_t count = pack_intent(words, op, h.retiring, e + done, n - done);
    h.write_line(op, words, e + done, count, !stores_persist);
    if (h.numa != nullptr) h.numa->count(NumaAccess::log, h.lane->node);
    done += count;
    if (TENUTO_PLANT("heap_batch_fits_one_line")) return n;
  }
  return done;
}

void Heap::State::end_retired(LaneHeap& h) {
  h.end_retired([&](PoolOffset block) {
    if (h.quarantine.size() + 1 < kQuarantineBatch) [[likely]] {
      h.quarantine.push_back(block);  // it has room
    } else {
      retire(h, block);
    }
  });
}

void Heap::State::drain_limbo(LaneHeap& h) {
  fence_words(h);
  if (h.live_lines != 0) {
    fence_lane(h, "cleared destinations and bits", "their intents are retired");
    h.publish_retired(h.durable);
    fence_lane(h, "retired intents", "their blocks are reused");
    end_retired(h);
  }
  empty_quarantine(h);
}

// Flushes what the lane's intents up to `upto` stored. It reads the intents as recovery does,
// because the lane's owner may be writing the next ones. The slab's shadow belongs to other
// threads, so this flushes every line that a slab's header can have.
void Heap::State::flush_effects(const LaneHeap& h, std::uint64_t upto) {
  bool extents_too = false;
  for (std::size_t i = 0; i < kIntentLines; ++i) {
    const pm::LogLine& line = h.line_at(i);
    pm::LogLine copy;
    copy.seal = __atomic_load_n(&line.seal, __ATOMIC_ACQUIRE);
    for (std::size_t w = 0; w < 7; ++w) {
      copy.word[w] = __atomic_load_n(&line.word[w], __ATOMIC_ACQUIRE);
    }
    if (pm::log_line_state(copy) != pm::LogLineState::sealed) continue;
    const std::optional<IntentView> v = unpack_intent(copy.word);
    if (!v || pm::log_sequence(copy) > upto) continue;
    for (std::size_t k = 0; k < v->count; ++k) {
      const IntentElement& e = v->element[k];
      flush(*file.at<std::uint64_t>(e.dest));
      if (!e.block) continue;
      if (!is_class_bytes(e.bytes)) {
        extents_too = true;
        continue;
      }
      const PoolOffset slab{round_down(e.block.value, kSlabBytes)};
      flush_bytes(file.at<std::byte>(slab), kLineBytes * (1 + kHeaderLinesMax));
    }
  }
  if (extents_too) extents.flush_log();
}

// Retires every intent, of any lane, that names the word. Called when the word's version enters the
// next quarter of the range: an intent that is half of the range old would look like a new one. It
// fences; this is rare.
void Heap::State::retire_intents_naming(LaneHeap& h, PoolOffset dest) {
  drain_limbo(h);
  const std::size_t end = lane_heaps_end.load(std::memory_order_acquire);
  for (std::size_t id = 0; id < end; ++id) {
    const LaneHeap* other = lane_heaps[id].load(std::memory_order_acquire);
    if (other == nullptr || other == &h) continue;
    const std::uint64_t cleared = other->cleared.load(std::memory_order_acquire);
    bool named = false;
    other->for_each_pending([&](PendingDests d) {
      named = named || (dest.value >= d.first() && dest.value <= d.last());
    });
    if (!named || TENUTO_PLANT("heap_version_wraps_over_other_lanes")) continue;
    flush_effects(*other, cleared);
    fence_lane(h, "another lane's destinations and bits", "its intents are retired");
    std::uint64_t& word = other->retired_word(pm::kLaneRetiredLines - 1);
    std::uint64_t said = __atomic_load_n(&word, __ATOMIC_ACQUIRE);
    while (said < cleared && !__atomic_compare_exchange_n(&word, &said, cleared, false,
                                                          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    }
    flush(word);  // durable with the intent that follows
  }
}

// --- quarantine ----------------------------------------------------------------------------------

// A live intent of another lane may name a destination inside a freed block. If the block were
// reused, a replay could write into its new owner's data, when these look like the old pointer or
// like an older version. So the block waits here until that lane has retired the intent.
//
// If the quarantine is full and there is no memory for more room, the block is dropped: it is free
// on media, but only the next open uses it. That takes more blocks that wait for other lanes than
// there was ever room for.
void Heap::State::retire(LaneHeap& h, PoolOffset block) {
  // With recorded frees (remote.h) words are pending also where stores persist.
  if (stores_persist && !numa.on()) return give_back(h, block);
  const std::size_t n = h.quarantine.size();
  if (h.quarantine_full() && !pm::had_memory([&] { h.make_quarantine_room(2 * n); })) {
    empty_quarantine(h);
  }
  if (h.quarantine_full()) return;
  h.quarantine.push_back(block);
  if (h.quarantine.size() >= kQuarantineBatch) empty_quarantine(h);
}

// Whether a pending destination may be inside one of the blocks. Usually none is, and nothing has
// to be sorted. Compares a few bits of the slab's number; an extent may be anywhere.
bool Heap::State::any_pending_near(const std::vector<PoolOffset>& blocks) const {
  const auto bit_of = [](std::uint64_t offset) {
    return std::uint64_t{1} << (offset / kSlabBytes % 64);
  };
  std::uint64_t near = 0;
  for (const PoolOffset block : blocks) {
    near |= pages.find(block).owner != PageOwner::none ? bit_of(block.value) : ~std::uint64_t{0};
  }
  bool found = false;
  const std::size_t end = lane_heaps_end.load(std::memory_order_acquire);
  for (std::size_t id = 0; id < end && !found; ++id) {
    const LaneHeap* lane = lane_heaps[id].load(std::memory_order_acquire);
    if (lane == nullptr) continue;
    lane->for_each_pending([&](PendingDests d) {
      found = found || ((bit_of(d.first()) | bit_of(d.last())) & near) != 0;
    });
  }
  return found;
}

void Heap::State::empty_quarantine(LaneHeap& h) {
  if (h.quarantine.empty()) return;
  std::vector<PoolOffset>& blocks = h.quarantine;
  if (!any_pending_near(blocks)) {
    for (const PoolOffset block : blocks) give_back(h, block);
    blocks.clear();
    return;
  }
  std::sort(blocks.begin(), blocks.end());
  std::vector<PoolOffset>& kept = h.quarantine_kept;
  kept.clear();  // has room
  const std::size_t lanes_used = lane_heaps_end.load(std::memory_order_acquire);
  const std::size_t end = TENUTO_PLANT("heap_quarantine_skipped") ? 0 : lanes_used;
  for (std::size_t id = 0; id < end; ++id) {
    const LaneHeap* other = lane_heaps[id].load(std::memory_order_acquire);
    if (other == nullptr) continue;
    other->for_each_pending([&](PendingDests d) {
      // From the last block that starts at or before the last destination, while they overlap.
      auto after = std::upper_bound(blocks.begin(), blocks.end(), PoolOffset{d.last()});
      while (after != blocks.begin()) {
        const PoolOffset before = *std::prev(after);
        if (d.first() >= before.value + block_bytes(before)) break;
        kept.push_back(before);
        after = blocks.erase(std::prev(after));
      }
    });
  }
  for (const PoolOffset block : blocks) give_back(h, block);
  blocks.swap(kept);
}

std::uint64_t Heap::State::block_bytes(PoolOffset block) const {
  if (const Slab* slab = slab_block(block).slab; slab != nullptr) return slab->block_bytes;
  return extents.find(block, Kind::logged, Wanted::not_free).value_or(Block{}).bytes;
}

}  // namespace TENUTO_NS::heap
