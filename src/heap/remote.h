// Two-phase deallocation (PMAlloc): a block of another node is not freed where it is. The free is
// recorded in a batch on the thread's own node. A full batch goes to the inbox of the block's node.
// A thread there takes it when it needs blocks, before it takes any from a slab. If too many
// batches wait, the freeing thread does the work of its batch itself.
//
// There are two kinds of batches. Both are in DRAM.
//   plain    the blocks are free on media, and nothing waits for them: derived blocks, and logged
//            ones whose intents are retired
//   logged   blocks of plain free_from whose bits are still set. The intents of the batch keep
//            them free over a crash. So that they can wait, while the thread goes on in its lane,
//            they are in a lane of their own: the batch's ring (Lanes::take_spare).
//
// The life of a logged batch, W being the intents in its ring, d the destinations:
//   W{b,d} | d = 0 (*)  ...  handed over  B = 0 for all | retired = W | the blocks are reused
//   (*) As in every free: flushed and fenced by the recorder's next fence, and the batch is handed
//       over only after that.
// Authoritative: W, as for every free that is under way. Recovery replays it from the ring as from
// any lane, and knows nothing of batches. The blocks are in use until the batch is done: their
// live_bits and bits are set. So nothing on the other node is touched by a free.
// What this changes for callers is in NumaOptions: a second word that leads to the block is refused
// late. The word itself is cleared by compare-and-swap, so of two threads that free one word one is
// refused at once.
//
//   a block is in at most one batch; a logged batch has as many live intents as blocks
//   a batch is: in the hands of a lane, in the inbox of the blocks' node, or spare
//
// Bound: two batches, plain and logged, for each lane and other node; kInboxMost in an inbox. A
// full pool, trim, close and everything that REQUIRES a quiescent pool takes all of them, but those
// in the hands of lanes whose threads live.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "tenuto/numa.h"
#include "tenuto/units.h"

namespace TENUTO_NS::heap {

struct LaneHeap;

struct alignas(kLineBytes) RemoteBatch {
  static constexpr unsigned kBlocks = 28;  // as many as a ring has lines

  RemoteBatch* next = nullptr;
  RemoteBatch* made_before = nullptr;  // of the same node
  LaneHeap* ring = nullptr;            // null: a plain batch
  unsigned count = 0;
  unsigned from = 0;  // the node of the recorder
  std::array<PoolOffset, kBlocks> block;

  bool full() const { return count == kBlocks; }
};
static_assert(sizeof(RemoteBatch) == 4 * kLineBytes);

// It owns all batches, and lists those that no lane has. Thread safety: any thread. Throws nothing.
class RemoteFrees {
 public:
  static constexpr unsigned kInboxMost = 16;  // batches

  RemoteFrees() = default;
  ~RemoteFrees();
  RemoteFrees(const RemoteFrees&) = delete;
  RemoteFrees& operator=(const RemoteFrees&) = delete;

  // False: the inbox is full.
  bool push(unsigned node, RemoteBatch* batch);
  // Null: the inbox is empty. Cost then: a load.
  RemoteBatch* pop(unsigned node);
  // An empty batch for a recorder on the node. With `rings` one that has a ring, else one without.
  // Null: there is none.
  RemoteBatch* spare(unsigned node, bool rings);
  // A new one. Null: no memory.
  RemoteBatch* make(unsigned node);
  void recycle(RemoteBatch* batch);

 private:
  struct alignas(2 * kLineBytes) OfNode {
    std::mutex mu;
    // Guarded by mu. first, last: the inbox.
    RemoteBatch* first = nullptr;
    RemoteBatch* last = nullptr;
    RemoteBatch* spare[2] = {};     // plain, with rings
    RemoteBatch* newest = nullptr;  // of all that were made for recorders on the node
    std::atomic<unsigned> count = 0;
  };
  std::array<OfNode, kNodesMax> nodes_;
};

// What a lane has for NUMA. Owner: the thread that holds the lane. The counters are read by all.
struct LaneNuma {
  unsigned node = 0;
  unsigned holders = ~0u;  // Lane::holders when the lane was looked at
  unsigned looks = 0;
  bool direct = false;  // blocks of other nodes go to their slabs at once: everything is collected
  // Under way, by the node of the blocks.
  std::array<RemoteBatch*, kNodesMax> plain{};
  std::array<RemoteBatch*, kNodesMax> logged{};

  struct Counter {
    std::atomic<std::uint64_t> n = 0;
    void add(std::uint64_t k) {
      n.store(n.load(std::memory_order_relaxed) + k, std::memory_order_relaxed);
    }
    std::uint64_t get() const { return n.load(std::memory_order_relaxed); }
  };
  std::array<Counter, kNumaAccesses> local;
  std::array<Counter, kNumaAccesses> remote;
  // recorded, and taken by this lane; of logged batches, and of derived blocks in plain ones.
  Counter recorded, taken, late;
  Counter batches_taken, batches_pushed;
  Counter held_bytes_in, held_bytes_out, held_blocks_out, held_blocks_in;
  Counter derived_bytes_in, derived_bytes_out;

  void count(NumaAccess what, unsigned of_node, std::uint64_t lines = 1) {
    auto& counters = of_node == node ? local : remote;
    counters[static_cast<std::size_t>(what)].add(lines);
  }
};

}  // namespace TENUTO_NS::heap
