// The protocol of a transaction over several pools: two-phase commit with presumed abort.
//
// Of the pools that the transaction changed, the one with the smallest id decides. Its transaction
// is D, of sequence d; those of the other pools are parts P. Each keeps its own log and transaction
// line T, as in txn.cc. `|` is one fence for all pools.
//
//   entries of D and of every P
//   |  entries of all pools | in-place stores and allocation bits
//   modified lines, new blocks and bits of all, flushed
//   D: a decision line for each P            means "committed" once D's T says committed >= d
//   each P: a prepared entry                 means "ask D before you undo this"
//   |  all prepared | decision
//   D's T: committed = d                     this one store commits the transaction in all pools
//   |  decision | commit records of the parts
//   each P's T: committed
//   |  commit records of the parts | freed bits
//
// One fence more than a transaction in one pool, however many pools there are.
//
// Authoritative: until its T moves on, a part with a prepared entry is what D's T and its decision
// lines say (Engine::verdict). Without a prepared entry it is undone, as ever.
//   - Before the decision is durable, D's recovery finds D open, by its entries or by its decision
//     lines. It erases these lines, then uses d up. The parts find committed >= d and no line:
//     aborted.
//   - Then every part finds committed >= d and its line, until its own T is durable. Then it never
//     asks again, and the line may go.
//   - `all prepared | decision`: without it D could have committed what a part would undo, or what
//     is not there.
//   - `decision | commit records of the parts`: without it a part could commit what D undoes.
//   - D has entries or decision lines that are durable before anybody names it. So a pool that says
//     committed < d has not begun D: it is an older copy, and the part stays in doubt. Entries of
//     frees may go again. So a D with no others needs one fence more: `lines of the decider |
//     others name it`.
//   - The smallest id decides, so pools can be opened in the order of their ids, and none waits for
//     one that waits for it.
//
// Under a journal a fence orders nothing between two pools, because each has epochs of its own. So
// D syncs before a part names it, the parts sync before the decision, and D syncs before the parts
// commit: three syncs, one after the other. On other media these do nothing.
#include "tx/joint.h"

#include <algorithm>
#include <exception>

#include "pm/metadata_key.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "pm/trace.h"
#include "tenuto/persist.h"
#include "tx/engine.h"
#include "tx/txn.h"

namespace TENUTO_NS::tx {

// --- who is in it --------------------------------------------------------------------------------

// Both pools are marked before: an older version must not open what it would not understand.
Status Txn::begin_with(Txn& first, Durability wanted) {
  const pm::MetadataOpen rights;
  if (&first == this) return begin();
  TENUTO_TRY(first.status());
  if (depth_ > 0 && (joint_ == nullptr || joint_ != first.joint_)) return Status::invalid_argument;
  if (depth_ > 0) return begin();
  TENUTO_TRY(file_.writable());
  std::shared_ptr<Joint> joint = first.joint_;
  if (joint == nullptr) {
    joint = std::make_shared<Joint>(first);
    first.forget_also();
    joint->make_room();
    joint->add(first);
  }
  if (joint->has_pool(file_.superblock().pool_id)) return Status::invalid_argument;
  joint->make_room();
  TENUTO_TRY(first.file_.mark_joint());
  TENUTO_TRY(file_.mark_joint());
  TENUTO_TRY(begin());
  depth_ = 2;  // the outer level is the joint's
  joint->add(*this);
  first.joint_ = joint;
  const bool alone = TENUTO_PLANT("tx_durability_of_the_leader_alone");
  if (wanted == Durability::sync && !alone) joint->leader().also_sync_ = true;
  joint_ = std::move(joint);
  return Status::ok;
}

bool Joint::has_pool(std::uint64_t pool_id) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Txn* p) { return p->file_.superblock().pool_id == pool_id; });
}

bool Joint::holds(const void* mutex) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Txn* p) { return p->holds_lock(mutex); });
}

void Joint::make_room() {
  parts_.reserve(parts_.size() + 1);
  changed_.reserve(parts_.size() + 1);
  leader_.also_.reserve(parts_.size() + 1);
}

void Joint::add(Txn& part) {
  parts_.push_back(&part);
  if (&part != &leader_) leader_.also_.push_back(&part.file_);
}

void Joint::lose(Txn& gone) {
  if (ending_) {
    std::replace(parts_.begin(), parts_.end(), &gone, static_cast<Txn*>(nullptr));
    return;
  }
  std::erase(parts_, &gone);
  if (parts_.empty()) return;
  roll_back();
  if (&gone != &leader_) {
    std::erase(leader_.also_, &gone.file_);
    return;
  }
  for (Txn* p : parts_) {
    p->depth_ = 0;
    p->joint_ = nullptr;
    p->end(false);
  }
}

Status Joint::ready() {
  const auto waits = [](const Txn* p) { return p->undo_pending_; };
  if (std::none_of(parts_.begin(), parts_.end(), waits)) return Status::ok;
  fence("undo entries", "in-place stores");
  for (Txn* p : parts_) p->entries_durable();
  return Status::ok;
}

// --- commit --------------------------------------------------------------------------------------

Status Joint::ready_to_commit() const {
  for (Txn* p : parts_) {
    if (p != &leader_ && p->depth_ != 1) return Status::aborted;  // its own level was not committed
    TENUTO_TRY(p->status());
    TENUTO_TRY(p->file_.writable());
  }
  return Status::ok;
}

Status Joint::commit() {
  Status refused = ready_to_commit();
  if (refused == Status::ok) refused = commit_all();
  if (refused != Status::ok) {
    roll_back();
  } else {
    for (const Txn* p : parts_) {
      if (const Status s = p->file_.bad_pages(); s != Status::ok) refused = s;
    }
  }
  return refused;
}

Status Joint::commit_all() {
  changed_.clear();
  for (Txn* p : parts_) {
    if (p->engine_.watch() != nullptr) [[unlikely]] {
      TENUTO_TRY(p->ready());
      p->look_for_mistakes("commit of");
    }
    if (p->log_.size() != 0) changed_.push_back(p);
  }
  // Bytes that one pool overwrote may be counted by another: they take part, too. A part needs an
  // entry, and the old bytes may come back as well as any others.
  const std::size_t logged = changed_.size();
  for (Txn* p : parts_) {
    if (logged == 0 || p->log_.size() != 0 || p->added_.empty()) continue;
    if (TENUTO_PLANT("tx_overwritten_bytes_of_a_part_forgotten")) continue;
    const Range r = *RangeSet::Cursor(p->added_).get();
    TENUTO_TRY(p->log_old_bytes({r.begin, r.begin + 1}));
    changed_.push_back(p);
  }
  const bool one = changed_.size() < 2 || TENUTO_PLANT("tx_pools_committed_one_by_one");
  if (!one) TENUTO_TRY(commit_in_two_phases());
  for (Txn* p : parts_) {
    if (one || p->log_.size() == 0) p->commit_outermost();
  }
  return Status::ok;
}

Status Joint::commit_in_two_phases() {
  const auto by_id = [](const Txn* a, const Txn* b) {
    return a->file_.superblock().pool_id < b->file_.superblock().pool_id;
  };
  std::sort(changed_.begin(), changed_.end(), by_id);
  Txn& decider = *changed_.front();
  TENUTO_TRY(prepare(decider));
  return decide(decider);
}

// The entries of all pools become durable, and fields and allocation bits are stored.
void Joint::log_all() {
  bool pending = false;
  for (Txn* p : changed_) {
    p->heap_.fence_thread();  // Consistency::gc: what this transaction may rely on
    pending = pending || p->undo_pending_ || p->alloc_pending_;
  }
  if (pending) fence("entries of all pools", "in-place stores and allocation bits");
  for (Txn* p : changed_) {
    p->entries_durable();
    p->store_bits();
  }
}

// A commit may not throw: without memory there is no frame, either.
Status Joint::make_log_room(Txn& decider) {
  Status s = Status::ok;
  const bool had = pm::had_memory([&] {
    s = decider.decisions_.make_room(changed_.size() - 1);
    if (s == Status::full) {
      decider.engine_.reclaim(decider);
      s = decider.decisions_.make_room(changed_.size() - 1);
    }
    for (Txn* p : changed_) {
      if (p != &decider && s == Status::ok) s = p->make_log_room();
    }
  });
  return had ? s : Status::full;
}

void Joint::leave_in_doubt(Txn& part, const Txn& decider) {
  const bool told = pm::had_memory([&] {
    part.file_.poison(
        Status::in_doubt,
        {"the pool that decides a transaction over several pools failed; open both again",
         part.file_.path(),
         {},
         decider.file_.path()});
  });
  if (!told) part.file_.poison(Status::in_doubt, {});
}

// Afterwards every pool can go either way. Not ok: nothing is decided.
Status Joint::prepare(Txn& decider) {
  TENUTO_TRY(make_log_room(decider));
  log_all();
  for (Txn* p : changed_) {
    p->flush_modified(!TENUTO_PLANT("tx_new_blocks_of_a_part_not_flushed"));
    p->dirty_.flush();
    if (p != &decider) decider.decisions_.write(decider.name().sequence, p->name());
  }
  const bool frees_alone = !decider.log_.stays() && !TENUTO_PLANT("tx_decider_without_entries");
  if (decider.file_.journal() != nullptr || frees_alone) {
    fence("lines of the decider", "others name it");
    if (!TENUTO_PLANT("tx_decider_not_synced_first"))
      TENUTO_TRY(decider.file_.acknowledge(Durability::sync));
  }
  const TxnName who = decider.name();
  for (Txn* p : changed_) {
    if (p == &decider || TENUTO_PLANT("tx_part_not_prepared")) continue;
    p->log_.append(EntryHead::make(EntryKind::prepared, {0}, sizeof who), &who);
  }
  if (TENUTO_PLANT("tx_decided_before_prepared")) return Status::ok;
  fence("all prepared", "decision");
  for (Txn* p : changed_) {
    if (p == &decider || TENUTO_PLANT("tx_parts_not_synced")) continue;
    TENUTO_TRY(p->file_.acknowledge(Durability::sync));
  }
  for (const Txn* p : changed_) TENUTO_TRY(p->file_.bad_pages());
  for (const Txn* p : changed_) {
    if (p != &decider && p->file_.journal() != nullptr) decider.decisions_.told_before(p->engine_);
  }
  return Status::ok;
}

// The commit. ok also when a journal failed: then acknowledge() says so, and the pools that it left
// in doubt turn read-only as they are.
Status Joint::decide(Txn& decider) {
  decider.store_record();
  if (!TENUTO_PLANT("tx_parts_commit_before_decision"))
    fence("decision", "commit records of the parts");
  const bool lazy = TENUTO_PLANT("tx_decision_not_synced");
  const Status decided = lazy ? Status::ok : decider.file_.acknowledge(Durability::sync);
  for (Txn* p : changed_) {
    if (p == &decider) continue;
    if (decided == Status::ok) {
      p->store_record();
    } else {
      leave_in_doubt(*p, decider);
    }
  }
  fence("commit records of the parts", "freed bits");
  for (Txn* p : changed_) {
    if (decided == Status::ok || TENUTO_PLANT("tx_part_in_doubt_frees_blocks")) p->finish_commit();
  }
  // Under a journal the part's record is not durable yet.
  for (std::size_t i = 1; i < changed_.size(); ++i) {
    const bool durable =
        changed_[i]->file_.journal() == nullptr || TENUTO_PLANT("tx_decision_told_unsynced");
    if (decided == Status::ok && durable) decider.decisions_.told(i - 1);
  }
  decider.decisions_.forget();
  decider.stats_.decisions.store(decider.decisions_.waiting(), std::memory_order_relaxed);
  return Status::ok;
}

void Txn::forget_pool(std::uint64_t pool_id) {
  const pm::MetadataOpen rights;
  decisions_.forget_pool(pool_id);
  stats_.decisions.store(decisions_.waiting(), std::memory_order_relaxed);
}

// --- the end -------------------------------------------------------------------------------------

void Joint::roll_back() {
  for (Txn* p : parts_) {
    if (!p->aborted_) p->roll_back();
    p->aborted_ = true;
  }
}

// The callbacks of all parts, then the locks of all. No callback may begin a transaction on any of
// the pools. An exception passes through; the parts behind it end without callbacks.
void Joint::end(bool committed) {
  ending_ = true;
  if (!committed) leader_.forget_also();
  for (Txn* p : parts_) {
    pm::trace_tx(committed ? pm::TraceTx::committed : pm::TraceTx::aborted);
    p->depth_ = 0;
    p->in_callbacks_ = true;
  }
  struct Ends {
    const std::vector<Txn*>& parts;
    Txn& leader;
    bool committed;
    std::size_t next = 0;
    const int before = std::uncaught_exceptions();
    // A part may be null: a callback destroyed its pool.
    void end_next(bool call_back) {
      Txn* const p = parts[next++];
      if (p == nullptr) return;
      p->end_state(committed);
      if (!call_back) p->on_commit_.clear(), p->on_abort_.clear();
      if (!p->on_commit_.empty() || !p->on_abort_.empty()) p->call_back(committed);
      p->in_callbacks_ = true;
    }
    ~Ends() {
      if (std::uncaught_exceptions() != before) leader.forget_also();
      while (next < parts.size()) end_next(false);
      for (Txn* p : parts) {
        if (p == nullptr) continue;
        p->in_callbacks_ = false;
        p->joint_ = nullptr;
        p->end_locks();
      }
    }
  } ends{parts_, leader_, committed};
  while (ends.next < parts_.size()) ends.end_next(true);
}

}  // namespace TENUTO_NS::tx
