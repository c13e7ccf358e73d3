// free_from of a block of another node, with Consistency::log and a plain word: the protocol of a
// logged batch (remote.h).
//
//   W{b,d} in the ring | d = 0                                      each free; the recorder
//   bits of all blocks = 0 | retired = W | the blocks are reused    a batch; who takes it
// First fence: as in every free, W is durable before the destination changes; it also makes the
// destinations of earlier frees durable. Second: recovery must clear the bits until they are
// durably clear. Third: recovery would free the blocks of their next owners.
//
// The argument for a single free (malloc.cc) holds without a change, because W stays alive: it has
// the same meaning in the ring of a batch as in the lane of its thread. Other intents that name d
// are of the same thread, or of threads that touch d after this thread's next fence. Recovery
// replays them in any order: d = 0 only if d still is b, and b has no other owner before W is
// retired.
//
// A versioned free is not recorded: its intent would have to be found and retired when the word's
// version wraps, and a batch may wait for long. Nor is one of typed blocks, which a walk would
// show, nor one of a batch of frees, which share bits and lines anyway.
//
// Medium cache: nothing is flushed, and the order of stores is that of the steps. A destination is
// pending there, too, until the batch is done, so freed blocks go through the quarantine.
#include <optional>

#include "heap/heap_paths.h"
#include "heap/word_kind.h"
#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

// A spare lane becomes the ring of a new batch. Null: no lane, or no memory.
RemoteBatch* Heap::State::make_logged_batch(LaneHeap& h) {
  pm::Lane* const lane = lanes.take_spare(h.numa->node);
  if (lane == nullptr) return nullptr;
  RemoteBatch* batch = nullptr;
  const auto make = [&] {
    LaneHeap& ring = lane_heap(*lane);
    batch = remote.make(h.numa->node);
    if (batch != nullptr) batch->ring = &ring;
  };
  if (!pm::had_memory(make) || batch == nullptr) {
    lanes.give_spare(lane);
    return nullptr;
  }
  // What an earlier holder left in the lane.
  LaneHeap& ring = *batch->ring;
  flush_recorded(ring, h);
  drain_limbo(ring);
  empty_caches(ring);
  hand_over(ring);
  for (const PoolOffset block : ring.quarantine) retire(h, block);
  ring.quarantine.clear();
  return batch;
}

// The batch that the next free of a block of the node goes into; it has room. Null: there is none.
// `full` gets the one that is full, which is to be handed over after the next fence.
RemoteBatch* Heap::State::logged_batch(LaneHeap& h, unsigned node, RemoteBatch*& full) {
  LaneNuma& n = *h.numa;
  RemoteBatch*& batch = n.logged[node];
  if (batch != nullptr && !batch->full()) return batch;
  full = std::exchange(batch, nullptr);
  batch = remote.spare(n.node, true);
  if (batch == nullptr) batch = make_logged_batch(h);
  if (batch == nullptr && full != nullptr) {  // no lane is spare: this thread empties its own
    take_batch(h, *std::exchange(full, nullptr));
    batch = remote.spare(n.node, true);
  }
  return batch;
}

// Nothing: this free is not recorded, or `dest` is not right.
std::optional<Status> Heap::State::free_remote(PtrWord& dest) {
  if (gc || internal || !numa.two_phase() || !is_word(dest)) return std::nullopt;
  LaneHeap& h = mine();
  LaneNuma& n = *h.numa;
  look_where_now_and_then(h);
  const std::uint64_t raw = __atomic_load_n(&dest.raw, __ATOMIC_ACQUIRE);
  const void* const target = PtrWord::decode(&dest, raw);
  if (target == nullptr || !file.contains(target)) return std::nullopt;
  const PoolOffset block = file.offset_of(target);
  const SlabBlock b = slab_block(block);
  if (!b || b.index == kNoBlock || b.slab->kind != Kind::logged) return std::nullopt;
  if (b.slab->owner == n.node || b.slab->is_old()) return std::nullopt;
  if (canary_bytes != 0 && !TENUTO_PLANT("heap_numa_canary_not_looked_at")) {
    if (const Status s = check_canary(block, b.slab->block_bytes); s != Status::ok) return s;
  }
  if (const RemoteBatch* const now = n.logged[b.slab->owner]) {
    const auto end = now->block.begin() + now->count;
    if (std::find(now->block.begin(), end, block) != end) return Status::invalid_argument;
  }
  RemoteBatch* full = nullptr;
  RemoteBatch* const batch = logged_batch(h, b.slab->owner, full);
  if (batch == nullptr) return std::nullopt;

  LaneHeap& ring = *batch->ring;
  const IntentElement e{file.offset_of(&dest), block, b.slab->block_bytes, 0, b.index, b.slab};
  const bool early = TENUTO_PLANT("heap_numa_destination_before_intent");
  std::uint64_t expected = raw;
  const std::uint64_t null = PtrWord::encode(&dest, nullptr);
  const auto clear = [&] {
    return __atomic_compare_exchange_n(&dest.raw, &expected, null, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
  };
  const bool cleared = early && clear();
  if (early) h.dirty.add(dest.raw);
  ring.begin_intents();
  std::uint64_t words[7];
  pack_one(words, IntentOp::free_from, ring.retiring, e, 0);
  ring.write_line(IntentOp::free_from, words, &e, 1,
                  !TENUTO_PLANT("heap_numa_destination_not_pending"));
  n.count(NumaAccess::log, ring.lane->node);
  fence_lane(h, "recorded free intent", "destination cleared");
  if (full != nullptr) hand_over(h, full);
  if (!cleared && !clear()) {
    // Another thread has freed the word. This intent is retired with its batch, before another
    // thread can get the block.
    n.logged[b.slab->owner] = nullptr;
    take_batch(h, *batch);
    return Status::invalid_argument;
  }
  h.dirty.add(dest.raw);
  n.count(NumaAccess::buffer, n.node);
  n.recorded.add(1);
  n.held_bytes_in.add(b.slab->block_bytes);
  n.held_blocks_in.add(1);
  batch->block[batch->count++] = block;
  if (batch->full() && TENUTO_PLANT("heap_numa_batch_before_its_destinations")) {
    hand_over(h, std::exchange(n.logged[b.slab->owner], nullptr));
  }
  return Status::ok;
}

// Clears the bits, and retires the intents. Blocks that were free already are taken out.
void Heap::State::clear_recorded(LaneHeap& h, RemoteBatch& batch) {
  LaneNuma& n = *h.numa;
  LaneHeap& ring = *batch.ring;
  const bool early = TENUTO_PLANT("heap_numa_retired_before_bits");
  if (early) ring.publish_retired(ring.sequence);
  for (unsigned i = 0; i < batch.count; ++i) {
    PoolOffset& block = batch.block[i];
    const SlabBlock b = slab_block(block);
    n.held_bytes_out.add(b.slab->block_bytes);
    n.held_blocks_out.add(1);
    n.count(NumaAccess::state, b.slab->owner);
    if (!claim(block, b)) {
      n.late.add(1);
      block = {};
      continue;
    }
    n.count(NumaAccess::bits, b.slab->node);
    const std::uint64_t& word = b.slab->store_persistent(b.index, false);
    if (!TENUTO_PLANT("heap_numa_bits_not_flushed")) h.dirty.add(word);
  }
  h.dirty.fence("bits of recorded frees", "their intents are retired");
  n.count(NumaAccess::log, ring.lane->node);
  if (!early && !TENUTO_PLANT("heap_numa_ring_never_retired")) {
    ring.publish_retired(ring.sequence);
  }
  fence("recorded frees are retired", "their blocks are reused");
  ring.end_all();
}

}  // namespace TENUTO_NS::heap
