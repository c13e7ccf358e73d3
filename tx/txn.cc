// The undo protocol. tests/tx_model.cc checks it by enumeration. T is the lane's transaction line,
// and s = committed + 1 is the sequence of the open transaction. `|` is a fence.
//
//   add, alloc, free   entries of s, flushed; so are those of fields, whose values wait in DRAM
//   |  undo entries | in-place stores        a store must not be durable before its old bytes
//   waiting values stored
//   |  last entries | allocation bits        only if something was logged after the last ready
//   bits of new blocks set; modified lines, new blocks and bits flushed
//   |  modified data | commit record         T promises all of it
//   T: frees_done, committed = s             one store: the commit, and the entries' retirement
//   |  commit record | freed bits            from here on the transaction survives every crash
//   bits of freed blocks cleared             flushed before the first fence of the lane's next
//                                            commit or abort; the blocks stay in limbo until T
//                                            has frees_done >= s
//
// A commit stores frees_done = s if s freed nothing, else s - 1. The fence before T made the clear
// bits of s - 1 durable. Until then the entries of s - 1 stayed readable, in the other area.
//
// One free and nothing else has one fence:
//   free's entry of s; bits of s - 1; T: frees_done = s - 2, committed = s
//   |  one free and its commit record | freed bits
// Before this fence a crash may leave T without the entry, or the entry without T. Either means
// that nothing was freed, and that s is used up; only both together mean the free. So they need no
// order. (Two frees do: a crash could leave T and one of their entries.) As the bits of s - 1 may
// come later than T, T does not say that they are durable. Their blocks stay in limbo, as
// older_limbo_, until the next T says so. But then they are durable, so the next transaction may
// overwrite the entries of s - 1. If s - 1 freed nothing, frees_done = s - 1.
//
// Abort: old bytes stored back, flushed | T: frees_done = s, committed = s | blocks and locks
// given back. Why a crash at any point of it is harmless:
//   - Until T is durable, recovery undoes s itself. Storing the same bytes twice is harmless. The
//     locks and the new blocks are kept until after T's fence, so nobody else has changed or taken
//     them.
//   - `restored bytes | retirement`: without it T could be durable and the bytes not.
//   - `retirement | locks and blocks`: without it a crash would undo s once more. That would
//     destroy what other threads have written there since, and free blocks that they have taken.
//   - frees_done is s although s may have logged frees. Those frees did not happen and must not be
//     redone. frees_done is stored before committed, in the same line, so no crash shows only
//     committed = s. The first fence makes the frees of s - 1 durable. A crash that shows
//     frees_done = s and committed = s - 1 still undoes s.
//   - A stale entry of s is never undone again. Only entries of committed + 1 are undone, and
//     committed never decreases.
//   - Sequences never repeat. T uses up the sequence of an abort. After a crash, recovery uses up
//     the open sequence if it finds an entry of it. If it finds none, none can appear later.
#include "tx/txn.h"

#include <algorithm>
#include <cstring>

#include "pm/assert.h"
#include "pm/plant.h"
#include "pm/trace.h"
#include "tenuto/persist.h"
#include "tenuto/tx.h"
#include "tx/engine.h"

namespace TENUTO_NS::tx {

Txn::Txn(Engine& engine, pm::PoolFile& file, heap::Heap& heap, const pm::Lane& lane)
    : engine_(engine),
      file_(file),
      heap_(heap),
      lane_(lane),
      log_(file, heap, lane),
      decisions_(file, heap, lane) {
  const TxLine& line = tx_line(lane);
  const bool sound = line.committed.sound(salt_of(lane.id, WordPlace::committed)) &&
                     line.frees_done.sound(salt_of(lane.id, WordPlace::frees_done));
  if (!sound) {
    broken_ = Status::corrupt;
    static_cast<void>(file_.damaged(file_.offset_of(&line), "line of a lane's transactions"));
  }
  committed_ = line.committed.number();
}

Txn::~Txn() {
  Transaction::lose(*this);
  if (file_.forked()) return;
  if (joint_ != nullptr) joint_->lose(*this);
  end_locks();
}

Status Txn::begin() {
  if (file_.forked()) return Status::forked;
  if (in_callbacks_) return Status::invalid_argument;
  if (depth_ > 0) {
    TENUTO_TRY(status());
    depth_ += 1;
    return Status::ok;
  }
  TENUTO_TRY(broken_);
  TENUTO_TRY(file_.writable());
  if (committed_ + 1 >= pm::kLogSequenceMax) return Status::full;
  if (!heap_ready_) heap_.prepare_thread();
  heap_ready_ = true;
  log_.start(committed_ + 1);
  depth_ = 1;
  pm::trace_tx(pm::TraceTx::begun);
  return Status::ok;
}

// --- what a transaction logs ---------------------------------------------------------------------

Status Txn::make_log_room_slowly() {
  const Status s = log_.make_room();
  if (s != Status::full) return s;
  engine_.reclaim(*this);
  return log_.make_room();
}

Status Txn::log_old_bytes(Range r) {
  for (std::uint64_t at = r.begin; at < r.end; at += kEntryBytes) {
    const std::size_t length = std::min<std::uint64_t>(kEntryBytes, r.end - at);
    TENUTO_TRY(make_log_room());
    log_.append(EntryHead::make(EntryKind::undo, {at}, length), file_.at<std::byte>({at}));
    undo_pending_ = true;
  }
  return Status::ok;
}

// Adds the parts of `r` that are neither added nor in a new block, after f(part) has returned ok.
template <class F>
Status Txn::for_each_gap(Range r, F&& f) {
  for (std::uint64_t at = r.begin; at < r.end;) {
    const RangeSet::Answer fresh = new_blocks_.at(at);
    const RangeSet::Answer added = added_.at(at);
    if (fresh.inside || added.inside) {
      at = std::max(fresh.inside ? fresh.until : 0, added.inside ? added.until : 0);
      continue;
    }
    const Range gap{at, std::min({r.end, fresh.until, added.until})};
    added_.make_room();
    TENUTO_TRY(f(gap));
    added_.insert(gap);
    at = gap.end;
  }
  return Status::ok;
}

Status Txn::log_later(const void* p, std::size_t bytes) {
  const pm::MetadataOpen rights;
  TENUTO_TRY(status());
  const std::uint64_t begin = file_.offset_of(p).value;
  TENUTO_DCHECK(file_.contains(p) && in_log_reach(file_, begin, bytes));
  TENUTO_DCHECK(!new_blocks_.at(begin).inside && !added_.at(begin).inside);
  return log_old_bytes({begin, begin + bytes});
}

Status Txn::add_later(const void* p, std::size_t bytes) {
  const pm::MetadataOpen rights;
  TENUTO_TRY(status());
  return add_bytes(p, bytes);
}

Status Txn::add_bytes(const void* p, std::size_t bytes) {
  if (!file_.contains(p)) return refuse_foreign(p);
  const Range r{file_.offset_of(p).value, file_.offset_of(p).value + bytes};
  if (!file_.in_range({r.begin}, bytes) && !in_log_reach(file_, r.begin, bytes))
    return Status::invalid_argument;
  if (Watch* const watch = engine_.watch()) [[unlikely]]
    watch->cover(*this, r, true);
  if (savepoints_.any()) savepoints_.save(file_.at<std::byte>({0}), r);
  // Most are one entry behind all others.
  const bool one = r.begin >= added_.end() && new_blocks_.size() == 0;
  if (!one || bytes > kEntryBytes || bytes == 0)
    return for_each_gap(r, [this](Range gap) { return log_old_bytes(gap); });
  added_.make_room();
  TENUTO_TRY(make_log_room());
  log_.append(EntryHead::make(EntryKind::undo, {r.begin}, bytes), p);
  undo_pending_ = true;
  added_.insert(r);
  return Status::ok;
}

Status Txn::overwrite(const void* p, std::size_t bytes) {
  const pm::MetadataOpen rights;
  TENUTO_TRY(status());
  if (!file_.contains(p)) return refuse_foreign(p);
  const std::uint64_t begin = file_.offset_of(p).value;
  if (!in_log_reach(file_, begin, bytes)) return Status::invalid_argument;
  if (TENUTO_PLANT("tx_overwritten_bytes_not_flushed")) return Status::ok;
  if (Watch* const watch = engine_.watch()) [[unlikely]]
    watch->cover(*this, {begin, begin + bytes}, true);
  // What was added before, and waits for its fence, may not be stored to yet.
  const RangeSet::Answer first = added_.at(begin);
  const bool added = first.inside || first.until < begin + bytes;
  if (undo_pending_ && added && !TENUTO_PLANT("tx_added_bytes_overwritten_early"))
    TENUTO_TRY(ready());
  return for_each_gap({begin, begin + bytes}, [](Range) { return Status::ok; });
}

Status Txn::ready() {
  const pm::MetadataOpen rights;
  TENUTO_TRY(status());
  if (joint_ != nullptr) [[unlikely]]
    return joint_->ready();
  if (undo_pending_) {
    fence("undo entries", "in-place stores");
    entries_durable();
  }
  return Status::ok;
}

void Txn::entries_durable() {
  undo_pending_ = alloc_pending_ = false;
  store_waiting();
}

Status Txn::on_commit(std::function<void()> f) {
  TENUTO_TRY(status());
  on_commit_.push_back(std::move(f));
  return Status::ok;
}

Status Txn::on_abort(std::function<void()> f) {
  TENUTO_TRY(status());
  on_abort_.push_back(std::move(f));
  return Status::ok;
}

Status Txn::on_end(std::function<void(bool)> f) {
  TENUTO_TRY(status());
  std::function<void()> committed = [f] { f(true); };
  std::function<void()> aborted = [f = std::move(f)] { f(false); };
  if (on_abort_.size() == on_abort_.capacity()) on_abort_.reserve(2 * on_abort_.size() + 1);
  on_commit_.push_back(std::move(committed));
  on_abort_.push_back(std::move(aborted));
  return Status::ok;
}

// --- log frames ---------------------------------------------------------------------------------

void Txn::trim(std::size_t keep) {
  const pm::MetadataOpen open;
  TENUTO_ASSERT(depth_ == 0 && !in_limbo());
  log_.trim(keep);
  if (keep == 0) decisions_.trim();
  stats_.decisions.store(decisions_.waiting(), std::memory_order_relaxed);
  stats_.frames.store(log_.frames(), std::memory_order_relaxed);
}

void Txn::adopt_frames(std::size_t area, FrameChain chain) {
  log_.adopt_frames(area, std::move(chain));
  stats_.frames.store(log_.frames(), std::memory_order_relaxed);
}

void Txn::adopt_decisions(PoolOffset frame) {
  decisions_.adopt(frame);
  stats_.decisions.store(decisions_.waiting(), std::memory_order_relaxed);
}

}  // namespace TENUTO_NS::tx
