// Wear levelling in the heap: the rest of freed blocks (rest.h), and what lanes' caches give back.
#include <algorithm>

#include "heap/heap_paths.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

namespace {
constexpr std::size_t kEndedAtOnce = 256;  // rests that one call ends, of a core
}  // namespace

void Heap::State::begin_wear(frame::Frames& of) {
  wear = std::make_unique<Wear>(file, options, numa.cores());
  fresh_frames = std::make_unique<FreshFrames>(file, of, *wear, numa.nodes());
  frames.set_fresh(fresh_frames.get());
  extents.set_wear(wear.get());
}

// Whatever way led here, the block is free on media, and no replay can write into it.
bool Heap::State::rest(unsigned core, PoolOffset block, const SlabBlock& b) {
  if (TENUTO_PLANT("heap_wear_no_rest")) return false;
  Resting r{0, block, 0, Resting::What::extent};
  if (!b) {
    extents.kill_derived(block, core);
  } else {
    if (b.slab->leaving.load(std::memory_order_relaxed)) return false;  // its frame will rest
    r.what = Resting::What::block;
    if (is_derived(b.slab->kind)) {
      r.bytes = b.slab->block_bytes;
      if (!b.slab->set_reserved(b.index)) {
        static_cast<void>(file.damaged(block, "block that is freed twice"));
        return true;
      }
    }
  }
  r.since_ms = wear->now_ms();
  if (wear->rest(core).add(r)) return true;
  if (r.bytes != 0) b.slab->clear_reserved(b.index);
  wear->forced.fetch_add(1, std::memory_order_relaxed);
  return false;
}

bool Heap::State::give_to_rest(LaneHeap& h, PoolOffset block, const SlabBlock& b) {
  if (h.numa != nullptr && b && b.slab->owner != h.numa->node) [[unlikely]] {
    // What no batch takes rests here (give_remote).
    if (!b.slab->is_old() && !TENUTO_PLANT("heap_numa_caches_keep_blocks_of_other_nodes"))
      return false;
  }
  return rest(h.core, block, b);
}

// To the slabs, to the free extents, or to the frame allocator.
void Heap::State::end_rest(const Resting* r, std::size_t n, LaneHeap& h) {
  std::array<PoolOffset, kEndedAtOnce> blocks;
  std::size_t count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    switch (r[i].what) {
      case Resting::What::extent:
        extents.release(r[i].at, 0);
        break;
      case Resting::What::slab_frame:
        frames.put(r[i].at, frame::kOrderSlab, 0);
        break;
      case Resting::What::block:
        if (r[i].bytes != 0) {
          const SlabBlock b = slab_block(r[i].at);
          b.slab->clear_reserved(b.index);
        }
        blocks[count++] = r[i].at;
    }
  }
  give_to_slabs({blocks.data(), count}, h);
}

void Heap::State::end_rests(LaneHeap& h) {
  if (wear->table_due()) write_wear_table(h.core);
  const auto queues = static_cast<unsigned>(wear->queues().size());
  const unsigned nodes = numa.nodes();
  const unsigned turn = wear->turn.fetch_add(1, std::memory_order_relaxed) % (queues / nodes);
  end_due_rests(h, h.core);
  end_due_rests(h, (h.core + nodes * (turn + 1)) % queues);
}

void Heap::State::end_due_rests(LaneHeap& h, unsigned core) {
  std::array<Resting, kEndedAtOnce> r;
  const bool early = TENUTO_PLANT("heap_wear_rests_too_short");
  const std::int64_t until = wear->now_ms() - (early ? wear->rest_ms() / 2 : wear->rest_ms());
  const std::size_t n = wear->rest(core).take(until, r.data(), r.size());
  wear->rested.fetch_add(n, std::memory_order_relaxed);
  end_rest(r.data(), n, h);
}

// One round is for what rests now: others may add meanwhile.
void Heap::State::end_all_due_rests(LaneHeap& h) {
  for (unsigned core = 0; core < wear->queues().size(); ++core) {
    const std::size_t count = wear->rest(core).count();
    for (std::size_t n = 0; n < count; n += kEndedAtOnce) end_due_rests(h, core);
  }
}

bool Heap::State::force_rests(LaneHeap& h) {
  if (TENUTO_PLANT("heap_wear_full_while_blocks_rest")) return false;
  std::array<Resting, kEndedAtOnce> r;
  std::size_t ended = 0;
  for (const auto& queue : wear->queues()) {
    const std::size_t n = queue->take(INT64_MAX, r.data(), r.size());
    wear->forced.fetch_add(n, std::memory_order_relaxed);
    end_rest(r.data(), n, h);
    ended += n;
  }
  // A slab or a chunk that is empty now serves requests of every size.
  for (const auto& arena : arenas) arena->trim();
  extents.give_back_free();
  return ended != 0;
}

// Without a lane nothing was freed.
void Heap::State::end_all_rests() {
  if (lane_heaps_owned.empty() || TENUTO_PLANT("heap_wear_close_forgets_resting_blocks")) return;
  LaneHeap& h = *lane_heaps_owned.front();
  std::array<Resting, kEndedAtOnce> r;
  for (const auto& queue : wear->queues()) {
    while (const std::size_t n = queue->take(INT64_MAX, r.data(), r.size())) {
      end_rest(r.data(), n, h);
    }
  }
}

// Blocks from a cache. With wear levelling nobody has written to them.
void Heap::State::give_unused(std::span<PoolOffset> blocks, LaneHeap& h) {
  if (wear != nullptr) {
    for (const PoolOffset o : blocks) wear->gave_unused(*slab_block(o).slab, o);
  }
  give_to_slabs(blocks, h);
}

}  // namespace TENUTO_NS::heap
