// The transactions of a pool: one a lane, and their recovery.
//
// Thread safety: mine, reclaim and stats from any thread; the others quiescent.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "file/lane.h"
#include "file/pool_file.h"
#include "heap/heap.h"
#include "tenuto/status.h"
#include "tx/txn.h"

namespace TENUTO_NS::tx {

struct EngineStats {
  std::uint64_t committed = 0;  // outermost transactions since open
  std::uint64_t aborted = 0;
  std::uint64_t entries = 0;     // log lines written
  std::uint64_t log_frames = 0;  // linked now
};

class Engine {
 public:
  Engine(pm::PoolFile& file, pm::Lanes& lanes, heap::Heap& heap);
  ~Engine();

  // Rolls back what did not commit and completes the frees of what did. After Heap::open and
  // replay_intents, before finish_recovery and before the first mine(). Idempotent; on a clean
  // pool it finds nothing and writes nothing. corrupt when a lane's log is damaged; then nothing
  // was changed, unless the heap refused a block that the log names.
  Status recover(Report* report, std::uint64_t* rolled_back);

  // The calling thread's transaction, open or not. Cost: the lane's lookup and one load.
  Txn& mine() {
    pm::Lane& lane = lanes_.mine();
    Txn* txn = txns_[lane.id.value].load(std::memory_order_acquire);  // see make()
    return txn != nullptr ? *txn : make(lane);
  }

  // Hands blocks that wait in limbo, and log frames, back to the heap: those of `own` and of all
  // lanes that no thread holds. For when the pool is full.
  void reclaim(Txn& own);

  // Before the pool is closed: as reclaim for all lanes. busy when a transaction is open.
  Status drain();

  // Whether all lanes' logs are sound. Quiescent.
  Status validate(Report* report) const;

  EngineStats stats() const;

 private:
  Txn& make(const pm::Lane& lane);

  static constexpr std::size_t kLanesMax = pm::kLaneSegmentsMax * pm::kLanesPerSegment;

  // Constant after open.
  pm::PoolFile& file_;
  pm::Lanes& lanes_;
  heap::Heap& heap_;
  // By lane. A slot is filled by the thread that holds the lane, once (release), and read by any
  // (acquire); what it points to belongs to the holder, but for its stats.
  std::array<std::atomic<Txn*>, kLanesMax> txns_{};
};

// Stores the old bytes of transactions that did not end back, as recover does, in a pool of which
// parts may be damaged: `notes` gets each place of a log that cannot be read. Returns how many
// transactions it found open. Blocks are left alone.
std::uint64_t undo_what_is_left(pm::PoolFile& file, const std::vector<pm::Lane>& lanes,
                                std::vector<Report>& notes);

}  // namespace TENUTO_NS::tx
