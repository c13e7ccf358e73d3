#include "tx/engine.h"

#include <algorithm>

#include "pm/metadata_key.h"
#include "pm/plant.h"

namespace TENUTO_NS::tx {

Engine::Engine(pm::PoolFile& file, pm::Lanes& lanes, heap::Heap& heap)
    : file_(file), lanes_(lanes), heap_(heap) {
  lanes_.set_lane_end([this](pm::Lane& lane) {
    Txn* txn = txns_[lane.id.value].load(std::memory_order_acquire);
    if (txn != nullptr && txn->active() && !TENUTO_PLANT("tx_open_transaction_handed_on")) {
      if (watch_ != nullptr) watch_->left_open(*txn);
      txn->abandon();
    }
    heap_.fence_thread();  // Consistency::gc: nobody else would know of its last calls
  });
}

Engine::~Engine() {
  const pm::MetadataOpen rights;
  OpenEngines::remove(*this);
  lanes_.set_lane_end({});
  for (auto& slot : txns_) delete slot.load(std::memory_order_acquire);
}

void Engine::watch(const Watch::Handler& handler) {
  if (Watch::kPossible && handler) watch_ = std::make_unique<Watch>(file_, heap_, handler);
}

Txn& Engine::make(const pm::Lane& lane) {
  const pm::MetadataOpen rights;
  auto txn = std::make_unique<Txn>(*this, file_, heap_, lane);
  // Pairs with the acquire loads in mine, drain and stats.
  txns_[lane.id.value].store(txn.get(), std::memory_order_release);
  return *txn.release();
}

void Engine::reclaim(Txn& own) {
  const pm::MetadataOpen rights;
  own.drain();
  lanes_.for_each_idle([this](pm::Lane& lane) {
    Txn* txn = txns_[lane.id.value].load(std::memory_order_acquire);
    if (txn == nullptr || txn->active()) return;
    txn->drain();
    txn->trim(0);
  });
}

bool Engine::any_active() const {
  return std::any_of(txns_.begin(), txns_.end(), [](const auto& slot) {
    const Txn* txn = slot.load(std::memory_order_acquire);
    return txn != nullptr && txn->needs_pool();
  });
}

Status Engine::drain() {
  const pm::MetadataOpen rights;
  for (auto& slot : txns_) {
    Txn* txn = slot.load(std::memory_order_acquire);
    if (txn == nullptr) continue;
    if (txn->needs_pool()) return Status::busy;
    txn->drain();
    txn->trim(0);
  }
  return Status::ok;
}

std::vector<std::uint64_t> Engine::pools_waited_for() const {
  const pm::MetadataOpen rights;
  std::vector<std::uint64_t> ids;
  for (const auto& slot : txns_) {
    const Txn* txn = slot.load(std::memory_order_acquire);
    if (txn != nullptr) txn->decisions().pools(ids);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Status Engine::forget_pool(std::uint64_t pool_id) {
  const pm::MetadataOpen rights;
  if (any_active()) return Status::busy;
  for (auto& slot : txns_) {
    Txn* txn = slot.load(std::memory_order_acquire);
    if (txn != nullptr) txn->forget_pool(pool_id);
  }
  fence("decisions forgotten", "pool used");
  return file_.acknowledge(Durability::sync);
}

EngineStats Engine::stats() const {
  EngineStats sum;
  for (const auto& slot : txns_) {
    const Txn* txn = slot.load(std::memory_order_acquire);
    if (txn == nullptr) continue;
    sum.committed += txn->stats().committed.load(std::memory_order_relaxed);
    sum.aborted += txn->stats().aborted.load(std::memory_order_relaxed);
    sum.entries += txn->stats().entries.load(std::memory_order_relaxed);
    sum.log_frames += txn->stats().frames.load(std::memory_order_relaxed);
    sum.decisions += txn->stats().decisions.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace TENUTO_NS::tx
