// How a transaction ends by its protocol: commit, roll-back, and the blocks that wait in limbo. The
// argument is at the head of txn.cc.
#include <algorithm>

#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tenuto/persist.h"
#include "tx/engine.h"
#include "tx/txn.h"

namespace TENUTO_NS::tx {

namespace {

constexpr std::size_t kLimboBlocksMax = 1024;  // above it, limbo is drained at once
constexpr std::uint64_t kLimboBytesMax = 4u << 20;

}  // namespace

// Flushes every line once, although added ranges and new blocks may share lines. The two sets are
// walked side by side and are never merged: a cancelled block is skipped, and a range added next to
// it must not be skipped with it.
void Txn::flush_modified(bool new_blocks) {
  std::uint64_t flushed = 0;  // everything below it is flushed
  const auto flush_range = [&](std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t from = std::max(flushed, round_down(begin, kLineBytes));
    if (from >= end) return;
    flushed = round_up(end, kLineBytes);
    flush_bytes(file_.at<std::byte>({from}), flushed - from);
  };
  RangeSet::Cursor added(added_);
  if (new_blocks && new_blocks_.size() != 0) {
    new_blocks_.sort();
    for (const NewBlock& b : new_blocks_) {
      if (b.cancelled || b.bytes == 0) continue;
      for (; added.get() != nullptr && added.get()->begin < b.offset.value; added.next()) {
        flush_range(added.get()->begin, added.get()->end);
      }
      flush_range(b.offset.value, b.offset.value + b.bytes);
    }
  }
  for (; added.get() != nullptr; added.next()) flush_range(added.get()->begin, added.get()->end);
}

// REQUIRES: what the two numbers promise is durable. The order of the stores keeps (T1).
void Txn::write_header(std::uint64_t frees_done, std::uint64_t committed) {
  TxLine& line = tx_line(lane_);
  const std::uint64_t done_salt = salt_of(lane_.id, WordPlace::frees_done);
  const std::uint64_t committed_salt = salt_of(lane_.id, WordPlace::committed);
  const SealedWord last{SealedWord::make(committed, committed_salt)};
  if (TENUTO_PLANT("tx_committed_before_frees_done")) store_ordered(line.committed, last);
  store_ordered(line.frees_done, SealedWord{SealedWord::make(frees_done, done_salt)});
  publish(line.committed, last);
}

void Txn::release_limbo() {
  for (std::vector<heap::Block>* const blocks : {&older_limbo_, &limbo_}) {
    for (const heap::Block& b : *blocks) heap_.release(b.offset);
    blocks->clear();
  }
  limbo_bytes_ = 0;
}

void Txn::commit_outermost() {
  if (engine_.watch() != nullptr) [[unlikely]] {
    static_cast<void>(ready());
    look_for_mistakes("commit of");
  }
  if (log_.size() == 0) {
    if (added_.empty()) return;
    flush_modified(false);
    fence("overwritten bytes", "commit returns");
    return;
  }
  // What this transaction may rely on.
  if (file_.consistency() == Consistency::gc) heap_.fence_thread();
  if (is_one_free()) return commit_one_free();
  const std::uint64_t s = log_.sequence();
  if (!fields_.empty() && !TENUTO_PLANT("tx_fields_stored_after_the_commit_record")) {
    static_cast<void>(ready());
  }
  if (undo_pending_ || alloc_pending_) fence("last entries", "allocation bits");
  if (TENUTO_PLANT("tx_commit_record_before_data")) write_header(s - 1, s);
  store_bits();
  flush_modified(!TENUTO_PLANT("tx_new_blocks_not_flushed"));
  dirty_.fence("modified data", "commit record");
  store_record();
  fence("commit record", "freed bits");
  finish_commit();
}

// One free is all that was logged, and nothing else has to be flushed.
bool Txn::is_one_free() const { return log_.size() == 1 && freed_.size() == 1 && added_.empty(); }

void Txn::commit_one_free() {
  const std::uint64_t s = log_.sequence();
  const bool early = TENUTO_PLANT("tx_one_free_promises_bits_of_its_fence");
  write_header(limbo_.empty() || early ? s - 1 : s - 2, s);
  dirty_.fence("one free and its commit record", "freed bits");
  committed_ = s;
  if (TENUTO_PLANT("tx_one_free_releases_the_one_before")) release_limbo();
  for (const heap::Block& b : older_limbo_) {
    heap_.release(b.offset);
    limbo_bytes_ -= b.bytes;
  }
  older_limbo_.clear();
  older_limbo_.swap(limbo_);
  keep_in_limbo();
}

// REQUIRES: all entries are durable.
void Txn::store_bits() {
  bits_stored_ = true;
  for (const NewBlock& b : new_blocks_) {
    if (!b.cancelled) dirty_.add(heap_.mark_allocated(b.offset));
  }
  if (!TENUTO_PLANT("tx_bits_freed_before_commit")) return;
  for (const heap::Block& b : freed_) dirty_.add(heap_.mark_free(b.offset));
}

void Txn::store_record() {
  const std::uint64_t s = log_.sequence();
  const bool frees = !freed_.empty() && !TENUTO_PLANT("tx_frees_done_before_durable");
  write_header(frees ? s - 1 : s, s);
}

// REQUIRES: the commit record is durable.
void Txn::finish_commit() {
  committed_ = log_.sequence();
  if (TENUTO_PLANT("tx_fields_stored_after_the_commit_record")) store_waiting();
  if (in_limbo()) release_limbo();
  for (const NewBlock& b : new_blocks_) {
    if (any_typed_ && !b.cancelled) heap_.confirm_allocated(b.offset);
    if (!b.cancelled) continue;
    transient(file_.at<void>(b.offset), b.bytes);
    if (!TENUTO_PLANT("tx_cancelled_block_reused_at_once")) heap_.release(b.offset);
  }
  if (!freed_.empty()) keep_in_limbo();
}

// REQUIRES: the commit record is durable, limbo_ is empty.
void Txn::keep_in_limbo() {
  Watch* const watch = engine_.watch();
  for (const heap::Block& b : freed_) {
    if (watch != nullptr) watch->taken(b.offset);
    if (!TENUTO_PLANT("tx_bits_freed_before_commit")) dirty_.add(heap_.mark_free(b.offset));
    if (watch != nullptr) watch->freed(b.offset);
    limbo_bytes_ += b.bytes;
  }
  limbo_.swap(freed_);
  const bool much = limbo_.size() > kLimboBlocksMax || limbo_bytes_ > kLimboBytesMax;
  if (TENUTO_PLANT("tx_freed_blocks_reused_at_once")) release_limbo();
  if (much) drain();
}

// Of several pools another one may fail after the bits were stored (joint.cc). The new blocks are
// freed as if they had been committed.
void Txn::clear_bits() {
  for (const NewBlock& b : new_blocks_) {
    if (b.cancelled || TENUTO_PLANT("tx_bits_of_a_failed_commit_stay")) continue;
    heap_.confirm_allocated(b.offset);
    const bool claimed = heap_.claim_free(b.offset);
    TENUTO_ASSERT(claimed);
    dirty_.add(heap_.mark_free(b.offset));
  }
}

void Txn::roll_back() {
  if (engine_.watch() != nullptr) [[unlikely]]
    look_for_mistakes("abort of");
  if (log_.size() > 0) {
    const std::uint64_t s = log_.sequence();
    decisions_.withdraw();
    log_.restore(kept_);
    if (bits_stored_) clear_bits();
    flush_modified(false);
    dirty_.fence("restored bytes", "retirement");
    if (!TENUTO_PLANT("tx_abort_reuses_sequence")) {
      write_header(TENUTO_PLANT("tx_abort_keeps_frees_done") ? s - 1 : s, s);
      fence("retirement", "locks and blocks");
      committed_ = s;
    }
    release_limbo();
  }
  for (const NewBlock& b : new_blocks_) {
    if (!(b.cancelled && TENUTO_PLANT("tx_cancelled_block_reused_at_once")))
      heap_.release(b.offset);
  }
  for (const heap::Block& b : freed_) heap_.unclaim_free(b.offset);
  fields_.clear();
}

void Txn::drain() {
  const pm::MetadataOpen open;
  if (!in_limbo()) return;
  dirty_.fence("freed bits", "drained mark");
  TxLine& line = tx_line(lane_);
  const std::uint64_t salt = salt_of(lane_.id, WordPlace::frees_done);
  publish(line.frees_done, SealedWord{SealedWord::make(committed_, salt)});
  fence("drained mark", "freed blocks reused");
  release_limbo();
}

}  // namespace TENUTO_NS::tx
