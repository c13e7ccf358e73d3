#include "heap/deferred.h"

#include <new>
#include <utility>

#include "heap/heap_paths.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

namespace {

constexpr unsigned kBatchesAtOnce = 2;  // freed when one is handed over, so that they get fewer

// One by one: a long list must not be freed by recursion.
void free_list(std::unique_ptr<DeferredBatch> list) {
  while (list != nullptr) list = std::move(list->next);
}

}  // namespace

DeferredFrees::~DeferredFrees() {
  free_list(std::move(oldest_));
  free_list(std::move(spare_));
}

std::unique_ptr<DeferredBatch> DeferredFrees::empty() {
  {
    const std::lock_guard lock(mu_);
    if (spare_ != nullptr) {
      std::unique_ptr<DeferredBatch> batch = std::move(spare_);
      spare_ = std::move(batch->next);
      spares_ -= 1;
      return batch;
    }
  }
  return std::unique_ptr<DeferredBatch>(new (std::nothrow) DeferredBatch);
}

void DeferredFrees::recycle(std::unique_ptr<DeferredBatch> batch) {
  batch->count = 0;
  const std::lock_guard lock(mu_);
  if (spares_ == kSpareMost) return;
  batch->next = std::move(spare_);
  spare_ = std::move(batch);
  spares_ += 1;
}

std::unique_ptr<DeferredBatch> DeferredFrees::take(std::uint64_t durable) {
  if (oldest_stamp_.load(std::memory_order_relaxed) > durable) return nullptr;
  const std::lock_guard lock(mu_);
  if (oldest_ == nullptr || oldest_->stamp > durable) return nullptr;
  std::unique_ptr<DeferredBatch> batch = std::move(oldest_);
  oldest_ = std::move(batch->next);
  if (oldest_ == nullptr) newest_ = nullptr;
  oldest_stamp_.store(oldest_ == nullptr ? kNone : oldest_->stamp, std::memory_order_relaxed);
  return batch;
}

// --- the heap's part -----------------------------------------------------------------------------

// Needs no memory: without a batch it waits for the device.
void Heap::State::defer(LaneHeap& h, const SlabBlock& b, PoolOffset block) {
  if (!file.frees_wait() || TENUTO_PLANT("heap_record_reused_before_it_is_durable")) {
    return give_back(h, block);
  }
  if (h.deferred == nullptr) h.deferred = deferred.empty();
  if (h.deferred == nullptr) {
    if (file.sync() == Status::ok) give_back(h, block);  // else the pool is read-only
    return;
  }
  deferred_bytes.fetch_add(b.slab->block_bytes, std::memory_order_relaxed);
  h.deferred->block[h.deferred->count++] = block;
  if (!h.deferred->full()) return;
  hand_over(h);
  free_durable(h, kBatchesAtOnce);
}

void Heap::State::hand_over(LaneHeap& h) {
  if (h.deferred == nullptr || h.deferred->count == 0) return;
  deferred.add(std::move(h.deferred), [this] { return file.epoch(); });
}

// To the slabs, not to the lane's caches: a slab of records is filled as a whole (arena.h). But
// blocks of wear levelling have to rest.
void Heap::State::give_deferred(DeferredBatch& batch, LaneHeap& by) {
  std::uint64_t bytes = 0;
  const std::span<PoolOffset> blocks{batch.block.data(), batch.count};
  for (const PoolOffset block : blocks) bytes += slab_block(block).slab->block_bytes;
  deferred_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  if (wear == nullptr) return give_to_slabs(blocks, by);
  for (const PoolOffset block : blocks) give_back(by, block);
}

void Heap::State::free_durable(LaneHeap& h, unsigned batches) {
  const std::uint64_t durable = file.durable_epoch();
  for (unsigned i = 0; i < batches; ++i) {
    std::unique_ptr<DeferredBatch> batch = deferred.take(durable);
    if (batch == nullptr) return;
    give_deferred(*batch, h);
    deferred.recycle(std::move(batch));
  }
}

void Heap::State::free_deferred(LaneHeap& h) {
  if (!file.frees_wait()) return;
  hand_over(h);
  if (!deferred.any() || file.sync() != Status::ok) return;
  const std::uint64_t durable = file.durable_epoch();
  while (std::unique_ptr<DeferredBatch> batch = deferred.take(durable)) {
    give_deferred(*batch, h);
    deferred.recycle(std::move(batch));
  }
}

Status Heap::State::free_all_deferred() {
  if (!file.frees_wait() || lane_heaps_owned.empty()) return Status::ok;
  for (const auto& h : lane_heaps_owned) hand_over(*h);
  TENUTO_TRY(file.sync());
  free_deferred(*lane_heaps_owned.front());
  return Status::ok;
}

}  // namespace TENUTO_NS::heap
