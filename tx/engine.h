// The transactions of a pool, one for each lane, and their recovery.
//
// Thread safety: mine, reclaim and stats may be called by any thread. All other calls need a
// quiescent pool.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "file/lane.h"
#include "file/pool_file.h"
#include "heap/heap.h"
#include "tenuto/pool_options.h"
#include "tenuto/status.h"
#include "tx/open_engines.h"
#include "tx/txn.h"
#include "tx/watch.h"

namespace TENUTO_NS::tx {

struct EngineStats {
  std::uint64_t committed = 0;  // outermost transactions since open
  std::uint64_t aborted = 0;
  std::uint64_t entries = 0;     // log lines written
  std::uint64_t log_frames = 0;  // linked now
  std::uint64_t decisions = 0;   // that wait for pools which are not open
};

class Engine {
 public:
  Engine(pm::PoolFile& file, pm::Lanes& lanes, heap::Heap& heap);
  ~Engine();

  // Rolls back the transactions that did not commit, and completes the frees of those that did.
  // Those of several pools end as the pool that decides them says, or as `in_doubt`. Afterwards
  // this engine answers others (OpenEngines). REQUIRES: Heap::open and replay_intents have run;
  // finish_recovery and the first mine() follow. Idempotent. On a clean pool it finds and writes
  // nothing. corrupt: a lane's log is damaged, and nothing has changed; or the heap refused a block
  // that the log names. in_doubt: a pool that decides is not open; nothing has changed.
  Status recover(Report* report, std::uint64_t* rolled_back, InDoubt in_doubt = InDoubt::ask);

  // For OpenEngines. How this pool's transaction `mine` ended, which decides `part`.
  Verdict verdict(const TxnName& mine, const TxnName& part) const;
  // Whether this pool's transaction has ended, perhaps not durably.
  bool ended(const TxnName& mine) const;
  // The newest such transaction of each lane.
  std::vector<std::uint64_t> committed_by_lane() const;
  pm::PoolFile& file() const { return file_; }

  // The calling thread's transaction, open or not. Cost: a lookup of the lane and one load.
  Txn& mine() {
    pm::Lane& lane = lanes_.mine();
    Txn* txn = txns_[lane.id.value].load(std::memory_order_acquire);  // see make()
    return txn != nullptr ? *txn : make(lane);
  }

  // Whether the calling thread's transaction, if it has one, allocated the block. Makes none: what
  // only gives a block back needs no memory for it.
  bool allocated(PoolOffset block) {
    Txn* const txn = txns_[lanes_.mine().id.value].load(std::memory_order_acquire);
    return txn != nullptr && txn->allocated(block);
  }

  // Whether any thread has a transaction open.
  bool any_active() const;

  // Looks for mistakes of the program from now on (PoolOptions::on_mistake). REQUIRES: no
  // transaction has begun. Does nothing in the traced build.
  void watch(const Watch::Handler& handler);
  Watch* watch() const { return watch_.get(); }  // null: it does not look

  // Gives memory back to the heap when the pool is full: the blocks in limbo of `own`, and the
  // blocks in limbo and the log frames of all lanes that no thread holds.
  void reclaim(Txn& own);

  // As reclaim, but for all lanes. A close calls it. busy: a transaction is open.
  Status drain();

  // The pools whose parts may still ask this one, in order.
  std::vector<std::uint64_t> pools_waited_for() const;
  // Erases what that pool may still ask, durably when it returns. busy: a transaction is open.
  Status forget_pool(std::uint64_t pool_id);

  // Checks the logs of all lanes. REQUIRES: quiescent.
  Status validate(Report* report) const;

  EngineStats stats() const;

 private:
  friend class OpenEngines;
  Txn& make(const pm::Lane& lane);
  const TxLine* find_line(std::uint64_t lane) const;

  static constexpr std::size_t kLanesMax = pm::kLaneSegmentsMax * pm::kLanesPerSegment;

  // Constant after open.
  pm::PoolFile& file_;
  pm::Lanes& lanes_;
  heap::Heap& heap_;
  std::unique_ptr<Watch> watch_;
  // By lane. The thread that holds the lane fills its slot once (release). Any thread reads it
  // (acquire). The Txn belongs to the holder of the lane, except for its stats.
  std::array<std::atomic<Txn*>, kLanesMax> txns_{};
  Engine* next_open_ = nullptr;  // guarded by process_locks.engines
};

// For a pool that may be damaged: stores the old bytes of unfinished transactions back, as recover
// does. `notes` gets each place of a log that cannot be read. Returns the number of transactions
// that were open. Allocated and freed blocks are left alone.
std::uint64_t undo_what_is_left(pm::PoolFile& file, const std::vector<pm::Lane>& lanes,
                                std::vector<Report>& notes);

}  // namespace TENUTO_NS::tx
