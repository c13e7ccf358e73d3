// Lanes: persistent log areas, each held by one thread at a time. A thread takes a lane at its
// first write to a pool, keeps it, and hands it on when it ends. What the layers above keep by lane
// goes with it: the heap's cached blocks and freed blocks in limbo, the transaction of tx. An open
// transaction is rolled back before.
//
// The layers above rely on this: a later fence of the lane covers all that was flushed for it. A
// fence covers only the flushes of its own thread. So an ending thread fences once before it hands
// its lane on, and nothing is lost.
//
// The segment table in the head page is authoritative for which lanes exist. A new segment is
// zeroed and fenced before its table word publishes it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "file/pool_file.h"
#include "pm/format.h"
#include "pm/log.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

struct Lane {
  LaneId id;
  LogLine* lines = nullptr;   // kLaneLines of them, persistent
  Lane* next_idle = nullptr;  // the list of lanes that no thread holds; guarded by Lanes::mu_
  // NUMA (heap/numa.h): where its lines are. Of its holder: which one it is, and the node that it
  // was on when it took the lane.
  unsigned node = 0;
  unsigned holders = 0;
  unsigned holder_node = 0;
};

// The lane that this thread used last, and its pool, so that the next use finds it at once.
struct LastLane {
  std::uint64_t instance = 0;
  Lane* lane = nullptr;
};
inline constinit thread_local LastLane last_lane;

class Lanes {
 public:
  // Takes 512 KiB of the pool for another segment, on that node if possible. full: there is no
  // room, or none on that node and it must be `there`.
  using TakeSegment = std::function<Result<PoolOffset>(unsigned node, bool there)>;

  // Attaches to the lanes of the file. corrupt: the segment table has an impossible entry.
  static Result<std::unique_ptr<Lanes>> open(PoolFile& file, Report* report);
  ~Lanes();

  void set_take_segment(TakeSegment take) { take_segment_ = std::move(take); }
  // An ending thread calls it for its lane, before its last fence, to remove what the next holder
  // must not find there. The thread still holds the lane, and mine() finds it.
  using LaneEnd = std::function<void(Lane&)>;
  void set_lane_end(LaneEnd end);
  // From now on a thread prefers a lane whose lines are on its node. `of` tells the node of a
  // segment, `here` that of the calling thread, which takes a lane. Before the first use.
  struct NodesOf {
    std::function<unsigned(PoolOffset)> segment;
    std::function<unsigned()> thread;
  };
  void set_nodes(NodesOf nodes);
  // A lane, on the node if possible, that is no thread's from now on. Null: there is none to spare.
  // At most a quarter of the lanes are taken so: threads wait for a lane when the table cannot
  // grow.
  Lane* take_spare(unsigned node);
  void give_spare(Lane* lane);

  // The calling thread's lane. When living threads hold all lanes, the table grows. If it cannot
  // (table or pool full), the call waits until a thread ends. Cost when the thread has a lane: one
  // thread-local load and compare.
  Lane& mine() {
    if (last_lane.instance == instance_) [[likely]]
      return *last_lane.lane;
    return find_mine();
  }

  // All lanes that exist, for recovery and close. REQUIRES: quiescent.
  const std::vector<std::unique_ptr<Lane>>& all() const { return lanes_; }
  // Offsets of the segments outside the head. They are in frames, which recovery must keep.
  std::vector<PoolOffset> extra_segments() const;
  std::size_t count() const;

  // Calls f for every lane that no thread holds now, and holds it meanwhile.
  void for_each_idle(const std::function<void(Lane&)>& f);

 private:
  friend struct ThreadLanes;
  explicit Lanes(PoolFile& file);
  Lane& find_mine();
  Lane* acquire();
  void release(Lane* lane);
  void push_idle(Lane* lane);
  static constexpr unsigned kAnyNode = ~0u;
  Lane* pop_idle(unsigned node);
  using Fresh = std::array<std::unique_ptr<Lane>, kLanesPerSegment>;
  Fresh make_lanes();
  void attach(PoolOffset segment, Fresh fresh);
  bool grow(unsigned node, bool there);

  // Constant after open.
  PoolFile& file_;
  std::uint64_t instance_ = 0;  // never reused in this process
  TakeSegment take_segment_;
  LaneEnd lane_end_;  // guarded by process_locks.open
  NodesOf nodes_;     // empty: lanes are all alike
  // Guarded by mu_.
  mutable std::mutex mu_;
  std::condition_variable released_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  Lane* idle_ = nullptr;  // a stack; needs no memory
  std::size_t segments_ = 0;
  std::size_t spares_ = 0;  // taken by take_spare
  bool growing_ = false;
};

}  // namespace TENUTO_NS::pm
