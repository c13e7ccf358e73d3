// The blocks that a transaction allocates, takes over and frees. Its commit and its abort are in
// txn_commit.cc.
#include <cstring>

#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tenuto/persist.h"
#include "tx/engine.h"
#include "tx/txn.h"

namespace TENUTO_NS::tx {

namespace {
constexpr std::size_t kFreedFirst = 8;  // the first capacity for freed blocks
}

Result<heap::Block> Txn::reserve(std::uint64_t bytes, const AllocOptions& options) {
  if (options.type != 0) return heap_.reserve_typed(bytes, options.type, options.align);
  return heap_.reserve(bytes, heap::Kind::logged, options.align);
}

Result<void*> Txn::alloc(std::uint64_t bytes, const AllocOptions& options) {
  const pm::MetadataOpen rights;
  if (const Status s = status(); s != Status::ok) return s;
  new_blocks_.make_room();
  TENUTO_TRY(make_log_room());
  Result<heap::Block> block = reserve(bytes, options);
  if (!block && block.error() == Status::full) {
    engine_.reclaim(*this);
    block = reserve(bytes, options);
  }
  if (!block) return block.error();
  if (options.zero) bytes = heap_.usable(*block);
  take_over(block->offset, bytes, options.type != 0);
  void* const data = file_.at<void>(block->offset);
  if (options.zero) std::memset(data, 0, bytes);
  return data;
}

Status Txn::adopt(PoolOffset block, std::uint64_t bytes) {
  const pm::MetadataOpen rights;
  TENUTO_TRY(status());
  new_blocks_.make_room();
  TENUTO_TRY(make_log_room());
  take_over(block, bytes, true);  // it may have a type
  return Status::ok;
}

// A reserved block becomes one of the transaction. REQUIRES: there is room.
void Txn::take_over(PoolOffset block, std::uint64_t bytes, bool typed) {
  if (Watch* const watch = engine_.watch()) [[unlikely]]
    watch->cover(*this, {block.value, block.value + bytes}, false);
  if (!TENUTO_PLANT("tx_adopted_block_has_no_entry"))
    log_.append(EntryHead::make(EntryKind::alloc, block, 0), nullptr);
  alloc_pending_ = true;
  any_typed_ = any_typed_ || typed;
  new_blocks_.add(block, bytes);
}

Status Txn::free(const void* p) {
  const pm::MetadataOpen rights;
  TENUTO_TRY(status());
  if (!file_.contains(p)) return refuse_foreign(p);
  const PoolOffset offset = file_.offset_of(p);
  if (NewBlock* b = new_blocks_.find(offset)) {
    if (b->cancelled) return Status::invalid_argument;
    savepoints_.make_room_to_cancel();
    savepoints_.cancel(new_blocks_.index_of(*b));
    // The block goes back only after T. Until then recovery would clear the bit of its next owner.
    b->cancelled = true;
    if (TENUTO_PLANT("tx_cancelled_block_reused_at_once")) heap_.release(offset);
    return Status::ok;
  }
  const Result<heap::Block> block = heap_.find_allocated(offset);
  if (!block) return Status::invalid_argument;
  TENUTO_TRY(heap_.check_canary(*block));
  TENUTO_TRY(make_log_room());
  if (freed_.size() == freed_.capacity() && !TENUTO_PLANT("tx_free_without_room")) {
    freed_.reserve(2 * freed_.size() + kFreedFirst);
  }
  if (!heap_.claim_free(offset)) return Status::invalid_argument;
  log_.append(EntryHead::make(EntryKind::free, offset, 0), nullptr);
  freed_.push_back(*block);
  return Status::ok;
}

}  // namespace TENUTO_NS::tx
