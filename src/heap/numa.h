// NUMA in the heap: which node threads, arenas and zones are on. How frees reach another node is in
// remote.h. The numbers are dealt out so that a number tells the node without a table:
//
//   arena, shard of the extents, reservation of the frames: number c is on node c % nodes
//   zone: on the node that it grew for, simulated ones that were there at the open in turn;
//         on a real machine where the system says its first page is
//   lane: on the node of its segment's zone; a thread prefers a lane of its node
//   thread: on the node of the processor that it runs on. Looked at when it takes a lane, and now
//           and then when it needs new blocks
//
// With one node all of it is off: `on()` is false, and LaneHeap::numa is null.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "file/pool_file.h"
#include "pm/topology.h"
#include "tenuto/numa.h"

namespace TENUTO_NS::heap {

class Numa {
 public:
  // Throws bad_alloc.
  Numa(const NumaOptions& options, const pm::PoolFile& file);

  bool on() const { return nodes_ > 1; }
  unsigned nodes() const { return nodes_; }
  bool simulated() const { return simulated_; }
  bool two_phase() const { return options_.two_phase; }
  // How many arenas, shards and reservations there are: a multiple of the nodes.
  unsigned cores() const { return cores_; }
  unsigned node_of_core(unsigned core) const { return core % nodes_; }
  // The arena of a lane on the node.
  unsigned core_of(unsigned node, unsigned lane) const {
    return node + nodes_ * (lane % (cores_ / nodes_));
  }

  // The node of the calling thread, which takes a lane.
  unsigned deal();
  // The same later. `dealt`: what it got then.
  unsigned here(unsigned dealt) const;
  void pin(unsigned node) const;

  // Whether a zone for the node is worth a try: not since one was refused to a pool of this size,
  // nor since one came to lie elsewhere, until the pool is twice as large.
  bool may_grow(unsigned node, std::uint64_t pool_bytes) const {
    return refused_at_[node].load(std::memory_order_relaxed) != pool_bytes &&
           pool_bytes >= again_at_[node].load(std::memory_order_relaxed);
  }
  void refused(unsigned node, std::uint64_t pool_bytes) {
    refused_at_[node].store(pool_bytes, std::memory_order_relaxed);
  }
  // Its zone is on another node, as when the node is full or the process may not use its memory.
  void missed(unsigned node, std::uint64_t pool_bytes) {
    again_at_[node].store(2 * pool_bytes, std::memory_order_relaxed);
  }
  // The zone with this number is made for the node. One thread at a time.
  void plan(std::size_t zone, unsigned node) {
    if (zone < planned_.size()) planned_[zone] = static_cast<std::uint8_t>(node + 1);
  }
  // While it lives, memory that the calling thread takes from the system is on the node.
  class Preferred {
   public:
    Preferred(const Numa& numa, unsigned node);
    ~Preferred();
    Preferred(const Preferred&) = delete;
    Preferred& operator=(const Preferred&) = delete;

   private:
    bool bound_ = false;
    pm::Topology::Policy before_;
  };
  // For Frames: where the zone is. From then on its missing pages come from there.
  unsigned node_of_zone(const pm::ZoneEntry& zone, std::size_t index) const;

  std::atomic<std::uint64_t> frames_remote = 0;

 private:
  const NumaOptions options_;
  const pm::PoolFile& file_;
  const pm::Topology topology_;
  unsigned nodes_ = 1;
  unsigned cores_ = 1;
  bool simulated_ = false;
  std::atomic<unsigned> dealt_ = 0;
  std::array<std::atomic<std::uint64_t>, kNodesMax> refused_at_{};
  std::array<std::atomic<std::uint64_t>, kNodesMax> again_at_{};
  std::array<std::uint8_t, pm::kZonesMax> planned_{};  // node + 1; 0: not planned
};

}  // namespace TENUTO_NS::heap
