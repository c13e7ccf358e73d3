// Records that were freed on medium journal, and whose blocks may not be written again yet.
//
// There, the frames of records are mapped shared (PoolFile::share): they are the pool file's own
// pages, so a store to a record's block needs no private copy of its page, and the kernel drops
// pages that nobody reads. In return the kernel may write a page back at any moment. So the file
// may have stores that are in no durable epoch. Why that is harmless:
//   - A record's block is stored to only while no durable state names it. A crash leaves the state
//     of the last durable epoch, or of a later one. Whatever the file has in the block then, no
//     leaf names it.
//   - A record is stored to before a leaf names it, and flushed. Its lines are in the ring until a
//     checkpoint has synced the file, and with it the page. So a replay restores what a leaf names.
//   - A slab's header is stored to when the slab is empty: made or erased. Then all its records'
//     frees have left this queue. So no durable state has a record in it, and recovery discards a
//     slab without marked blocks, whatever its header says. It looks only at frames that the frame
//     bits say are taken; these are private, as all that changes in place.
//   - Stripes and their seal are written by a clean close, and mean nothing until the superblock
//     says clean.
//
//   unlinked, flushed, fenced | no reader | release: stamp = epoch | durable_epoch >= stamp: free
//
// Authoritative: nothing here is on media. A crash frees what waits, because no mark names it.
// Bound: what is freed while an epoch becomes durable, and a batch for each lane. A full pool syncs
// and takes all of it, but for the batches of threads that are not idle.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace TENUTO_NS::heap {

struct DeferredBatch {
  static constexpr unsigned kBlocks = 64;

  unsigned count = 0;
  std::uint64_t stamp = 0;  // free when this epoch is durable
  std::unique_ptr<DeferredBatch> next;
  std::array<PoolOffset, kBlocks> block;

  bool full() const { return count == kBlocks; }
};

// The batches of all lanes, oldest first. Thread safety: any thread. Throws nothing.
class DeferredFrees {
 public:
  DeferredFrees() = default;
  ~DeferredFrees();
  DeferredFrees(const DeferredFrees&) = delete;
  DeferredFrees& operator=(const DeferredFrees&) = delete;

  // An empty batch; null: no memory.
  std::unique_ptr<DeferredBatch> empty();
  // For a batch whose blocks are free.
  void recycle(std::unique_ptr<DeferredBatch> batch);
  // Stamps the batch with epoch(), which is called under the lock, so that stamps ascend.
  template <class Epoch>
  void add(std::unique_ptr<DeferredBatch> batch, const Epoch& epoch) {
    const std::lock_guard lock(mu_);
    batch->stamp = epoch();
    DeferredBatch* const added = batch.get();
    (newest_ != nullptr ? newest_->next : oldest_) = std::move(batch);
    newest_ = added;
    oldest_stamp_.store(oldest_->stamp, std::memory_order_relaxed);
  }
  // The oldest batch, if its epoch is not later than `durable`. Null: there is none. Cost without
  // one: a load.
  std::unique_ptr<DeferredBatch> take(std::uint64_t durable);
  bool any() const { return oldest_stamp_.load(std::memory_order_relaxed) != kNone; }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  static constexpr unsigned kSpareMost = 64;

  std::mutex mu_;
  // Guarded by mu_.
  std::unique_ptr<DeferredBatch> oldest_;
  DeferredBatch* newest_ = nullptr;
  std::unique_ptr<DeferredBatch> spare_;
  unsigned spares_ = 0;
  std::atomic<std::uint64_t> oldest_stamp_{kNone};  // stored under mu_
};

}  // namespace TENUTO_NS::heap
