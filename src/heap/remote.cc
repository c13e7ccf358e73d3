// The batches of remote.h: how they are filled, handed over and taken. The protocol of a logged
// batch is in remote_free.cc.
#include "heap/remote.h"

#include <algorithm>
#include <new>
#include <utility>

#include "heap/heap_paths.h"
#include "pm/metadata_key.h"
#include "pm/no_memory.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kTakenAtOnce = 4;  // batches, by a thread that needs blocks
// What the thread that takes a batch touches on the recorder's node: the batch, the list of spare
// ones; and of a ring its state in two lines.
constexpr unsigned kBatchLines = sizeof(RemoteBatch) / kLineBytes + 1;
constexpr unsigned kRingLines = 2;
}  // namespace

// --- lists ---------------------------------------------------------------------------------------

RemoteFrees::~RemoteFrees() {
  for (OfNode& n : nodes_)
    while (n.newest != nullptr) delete std::exchange(n.newest, n.newest->made_before);
}

bool RemoteFrees::push(unsigned node, RemoteBatch* batch) {
  OfNode& n = nodes_[node];
  const std::lock_guard lock(n.mu);
  const unsigned count = n.count.load(std::memory_order_relaxed);
  if (count == kInboxMost) return false;
  batch->next = nullptr;
  (n.last != nullptr ? n.last->next : n.first) = batch;
  n.last = batch;
  n.count.store(count + 1, std::memory_order_relaxed);
  return true;
}

RemoteBatch* RemoteFrees::pop(unsigned node) {
  OfNode& n = nodes_[node];
  if (n.count.load(std::memory_order_relaxed) == 0) return nullptr;
  const std::lock_guard lock(n.mu);
  RemoteBatch* const batch = n.first;
  if (batch == nullptr) return nullptr;
  n.first = batch->next;
  if (n.first == nullptr) n.last = nullptr;
  n.count.store(n.count.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  return batch;
}

RemoteBatch* RemoteFrees::spare(unsigned node, bool rings) {
  OfNode& n = nodes_[node];
  const std::lock_guard lock(n.mu);
  RemoteBatch*& list = n.spare[rings ? 1 : 0];
  if (list == nullptr) return nullptr;
  return std::exchange(list, list->next);
}

RemoteBatch* RemoteFrees::make(unsigned node) {
  auto* batch = new (std::nothrow) RemoteBatch;
  if (batch == nullptr) return nullptr;
  batch->from = node;
  OfNode& n = nodes_[node];
  const std::lock_guard lock(n.mu);
  batch->made_before = std::exchange(n.newest, batch);
  return batch;
}

void RemoteFrees::recycle(RemoteBatch* batch) {
  batch->count = 0;
  OfNode& n = nodes_[batch->from];
  const std::lock_guard lock(n.mu);
  RemoteBatch*& list = n.spare[batch->ring != nullptr ? 1 : 0];
  batch->next = list;
  list = batch;
}

// --- plain batches -------------------------------------------------------------------------------

// Needs no memory: without a batch the block goes to its slab.
void Heap::State::give_remote(LaneHeap& h, PoolOffset block, const SlabBlock& b) {
  LaneNuma& n = *h.numa;
  RemoteBatch*& batch = n.plain[b.slab->owner];
  if (batch == nullptr && numa.two_phase() && !n.direct) {
    batch = remote.spare(n.node, false);
    if (batch == nullptr) batch = remote.make(n.node);
  }
  if (batch == nullptr || n.direct || !numa.two_phase()) {
    if (wear != nullptr && rest(h.core, block, b)) return;
    n.count(NumaAccess::slabs, b.slab->owner, kLinesOfGive);
    return b.slab->arena->give(*b.slab, &b.index, 1);
  }
  n.count(NumaAccess::buffer, n.node);
  n.recorded.add(1);
  if (is_derived(b.slab->kind)) n.derived_bytes_in.add(b.slab->block_bytes);
  batch->block[batch->count++] = block;
  if (batch->full()) hand_over(h, std::exchange(batch, nullptr));
}

// To the inbox of its blocks' node. If that is full, this thread does what it is for.
void Heap::State::hand_over(LaneHeap& h, RemoteBatch* batch) {
  LaneNuma& n = *h.numa;
  const unsigned node = slab_block(batch->block[0]).slab->owner;
  n.count(NumaAccess::buffer, node);
  if (remote.push(node, batch)) return;
  if (TENUTO_PLANT("heap_numa_batch_dropped_when_inbox_is_full")) return;
  take_batch(h, *batch);
}

// The blocks become free: for this lane, if they are of its node, else in their slabs.
void Heap::State::take_batch(LaneHeap& h, RemoteBatch& batch) {
  LaneNuma& n = *h.numa;
  n.count(NumaAccess::buffer, batch.from, kBatchLines);
  if (batch.ring != nullptr) {
    n.count(NumaAccess::buffer, batch.from, kRingLines);
    clear_recorded(h, batch);
  }
  const std::span<PoolOffset> blocks{batch.block.data(), batch.count};
  n.taken.add(blocks.size());
  bool near = true;
  for (const PoolOffset block : blocks) {
    if (!block) continue;  // it was free already
    const SlabBlock b = slab_block(block);
    near = near && b.slab->owner == n.node;
    if (batch.ring == nullptr && is_derived(b.slab->kind)) {
      n.derived_bytes_out.add(b.slab->block_bytes);
    }
  }
  (near ? n.batches_taken : n.batches_pushed).add(1);
  if (batch.ring != nullptr) {
    for (const PoolOffset block : blocks) {
      if (block) retire(h, block);
    }
  } else if (near && !n.direct) {
    for (const PoolOffset block : blocks) give_back(h, block);
  } else if (wear != nullptr) {
    for (const PoolOffset block : blocks) {
      const SlabBlock b = slab_block(block);
      if (!rest(h.core, block, b)) b.slab->arena->give(*b.slab, &b.index, 1);
    }
  } else {
    give_to_slabs(blocks, h);
  }
  remote.recycle(&batch);
}

void Heap::State::take_inbox(LaneHeap& h) {
  if (TENUTO_PLANT("heap_numa_inbox_never_taken")) return;
  for (unsigned i = 0; i < kTakenAtOnce; ++i) {
    RemoteBatch* const batch = remote.pop(h.numa->node);
    if (batch == nullptr) return;
    h.numa->count(NumaAccess::buffer, h.numa->node);
    take_batch(h, *batch);
  }
}

// --- collecting ----------------------------------------------------------------------------------

// While it lives, what the lane gives back goes to slabs at once.
struct Heap::State::Direct {
  explicit Direct(LaneHeap& h) : lane(h), before(h.numa->direct) { h.numa->direct = true; }
  ~Direct() { lane.numa->direct = before; }
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;
  LaneHeap& lane;
  bool before;
};

// Takes what is in the hands of the lane `of`. REQUIRES: the caller holds both lanes, or the pool
// is quiescent.
void Heap::State::flush_recorded(LaneHeap& of, LaneHeap& by) {
  LaneNuma& n = *of.numa;
  const Direct direct(by);
  const bool any = std::any_of(n.logged.begin(), n.logged.end(),
                               [](const RemoteBatch* b) { return b != nullptr; });
  // Before their intents are retired, this thread's fence covers what the other one stored last.
  if (any && &of != &by && !TENUTO_PLANT("heap_numa_idle_lane_not_flushed")) {
    by.dirty.take(of.dirty);
  }
  const auto take = [&](RemoteBatch*& at) {
    RemoteBatch* const batch = std::exchange(at, nullptr);
    if (batch == nullptr) return;
    if (batch->count != 0) return take_batch(by, *batch);
    remote.recycle(batch);
  };
  for (unsigned i = 0; i < numa.nodes(); ++i) take(n.logged[i]);
  for (unsigned i = 0; i < numa.nodes(); ++i) take(n.plain[i]);
}

// Blocks of slabs that are to become empty may be among them (evacuate.cc).
void Heap::State::flush_plain(LaneHeap& h) {
  const Direct direct(h);
  for (RemoteBatch*& at : h.numa->plain) {
    RemoteBatch* const batch = std::exchange(at, nullptr);
    if (batch != nullptr) take_batch(h, *batch);
  }
}

void Heap::State::take_inboxes(LaneHeap& by) {
  const Direct direct(by);
  for (unsigned node = 0; node < numa.nodes(); ++node) {
    while (RemoteBatch* const batch = remote.pop(node)) take_batch(by, *batch);
  }
}

// What idle lanes, this lane and the inboxes have. For a full pool and trim.
void Heap::State::collect_recorded(LaneHeap& h) {
  if (!numa.on() || TENUTO_PLANT("heap_numa_full_pool_leaves_batches")) return;
  const Direct direct(h);
  flush_recorded(h, h);
  lanes.for_each_idle([&](pm::Lane& lane) {
    LaneHeap* const idle = lane_heaps[lane.id.value].load(std::memory_order_acquire);
    if (idle != nullptr) flush_recorded(*idle, h);
  });
  take_inboxes(h);
  empty_quarantine(h);
}

// The same of all lanes. REQUIRES: quiescent.
void Heap::State::collect_all_recorded() {
  if (!numa.on() || lane_heaps_owned.empty() || file.read_only()) return;
  if (TENUTO_PLANT("heap_numa_close_leaves_batches")) return;
  LaneHeap& by = *lane_heaps_owned.front();
  const Direct direct(by);
  for (const auto& h : lane_heaps_owned) flush_recorded(*h, by);
  take_inboxes(by);
  empty_quarantine(by);
}

// From now on nothing waits in a batch: the pool is being closed.
void Heap::State::end_recording() {
  collect_all_recorded();
  for (const auto& h : lane_heaps_owned) {
    if (h->numa != nullptr) h->numa->direct = true;
  }
}

// --- figures -------------------------------------------------------------------------------------

NumaStats Heap::numa_stats() const {
  const pm::MetadataOpen rights;
  State& s = *state_;
  NumaStats to;
  to.nodes = s.numa.nodes();
  to.simulated = s.numa.simulated();
  if (!s.numa.on()) return to;
  for (std::size_t i = 0; i < s.file.zone_count(); ++i) {
    to.zones[s.frames.frames().node_of(frame_of_offset(PoolOffset{s.file.zone(i).offset}))] += 1;
  }
  to.frames_remote = s.numa.frames_remote.load(std::memory_order_relaxed);
  std::uint64_t taken = 0;
  s.for_each_lane_numa([&](const LaneNuma& n) {
    for (std::size_t a = 0; a < kNumaAccesses; ++a) {
      to.local[a] += n.local[a].get();
      to.remote[a] += n.remote[a].get();
    }
    to.frees_recorded += n.recorded.get();
    taken += n.taken.get();
    to.batches_taken += n.batches_taken.get();
    to.batches_pushed += n.batches_pushed.get();
    to.frees_late += n.late.get();
  });
  to.frees_waiting = to.frees_recorded - std::min(to.frees_recorded, taken);
  return to;
}

// Of the blocks in batches, what the slabs count as in use. Others see it as cached.
Heap::State::Waiting Heap::State::recorded_waiting() const {
  Waiting w;
  for_each_lane_numa([&](const LaneNuma& n) {
    w.held_bytes += n.held_bytes_in.get() - n.held_bytes_out.get();
    w.held_blocks += n.held_blocks_in.get() - n.held_blocks_out.get();
    w.derived_bytes += n.derived_bytes_in.get() - n.derived_bytes_out.get();
  });
  return w;
}

}  // namespace TENUTO_NS::heap
