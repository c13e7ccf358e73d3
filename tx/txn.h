// One lane's transaction: what it logs, allocates, frees and locks between begin and the outermost
// end.
//
// A call gets all its memory before it does anything. So a call that throws std::bad_alloc has no
// effect. commit, abort and drain need no memory.
//
// The lane's transaction line (tx/format.h) is always authoritative. The head of txn.cc explains
// each fence of a commit and of an abort.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "file/lane.h"
#include "file/pool_file.h"
#include "heap/heap.h"
#include "pm/dirty_lines.h"
#include "pm/metadata_key.h"
#include "tenuto/alloc_options.h"
#include "tenuto/status.h"
#include "tx/decisions.h"
#include "tx/fields.h"
#include "tx/joint.h"
#include "tx/new_blocks.h"
#include "tx/ranges.h"
#include "tx/savepoints.h"
#include "tx/undo.h"

namespace TENUTO_NS::tx {

class Engine;

// Counts of a lane since the pool was opened.
struct TxnStats {
  std::atomic<std::uint64_t> committed = 0;  // outermost transactions, empty ones included
  std::atomic<std::uint64_t> aborted = 0;
  std::atomic<std::uint64_t> entries = 0;    // log lines written by ended transactions
  std::atomic<std::uint64_t> frames = 0;     // log frames linked now
  std::atomic<std::uint64_t> decisions = 0;  // that wait for their parts
};

class Txn {
 public:
  Txn(Engine& engine, pm::PoolFile& file, heap::Heap& heap, const pm::Lane& lane);
  ~Txn();
  Txn(const Txn&) = delete;
  Txn& operator=(const Txn&) = delete;

  // --- the owner thread --------------------------------------------------------------------------
  // Begins a transaction, or joins the open one. ok | read_only, or what poisoned the pool | full
  // (2^48 transactions of the lane) | aborted (the open one was rolled back) | invalid_argument
  // (inside a callback) | corrupt (the transaction line is damaged) | forked.
  Status begin();
  // Begins a transaction that ends together with `first`, in another pool (joint.h). Statuses as
  // begin; also invalid_argument: the pool has a transaction of its own open, or is a copy of one
  // that takes part; and those of first.status(). `wanted`: the durability of the pool.
  Status begin_with(Txn& first, Durability wanted = Durability::buffered);
  // ok while it may be used, else closed, forked or aborted.
  Status status() const {
    if (depth_ == 0) return Status::closed;
    if (file_.forked()) [[unlikely]]
      return Status::forked;
    return aborted_ ? Status::aborted : field_error_;
  }
  // A field is assigned by it.
  bool takes_fields() const { return depth_ > 0; }
  // Also between its end and that of the last pool of a transaction over several.
  bool active() const { return depth_ > 0 || joint_ != nullptr; }
  // Also while its callbacks run: the pool must stay.
  bool needs_pool() const { return active() || in_callbacks_; }
  // Counts the outermost transactions of the lane. A handle with an older number is no longer
  // valid. Any thread may call it.
  std::uint64_t turn() const { return turn_.load(std::memory_order_relaxed); }
  // The last step of a commit, for all pools that took part.
  Status acknowledge(Durability d);
  // `own`, or sync if a pool that has a part in the transaction wants that.
  Durability strictest(Durability own) const { return also_sync_ ? Durability::sync : own; }

  // As the calls of Transaction (tenuto/tx.h).
  Status add_later(const void* p, std::size_t bytes);
  Status overwrite(const void* p, std::size_t bytes);
  // As add_later for a caller that logs each byte once and keeps no ranges here: it flushes what it
  // stores there, and nothing makes it abort after its first store. REQUIRES: the bytes are in no
  // block that this transaction allocated, and were not added.
  Status log_later(const void* p, std::size_t bytes);
  Status ready();
  // An abort leaves these bytes of the pool as they are then, also where they were added: for the
  // state of a lock that the caller holds, which lives in an object. A crash restores them.
  void keep_on_abort(const void* p, std::size_t bytes);
  Status add(const void* p, std::size_t bytes) {
    TENUTO_TRY(add_later(p, bytes));
    return in_new_block(p, bytes) ? Status::ok : ready();
  }
  Result<void*> alloc(std::uint64_t bytes, const AllocOptions& options = {});
  // Makes a block that Heap::reserve gave one of the transaction, as alloc does. REQUIRES: it is
  // reserved, and nobody else has it. Not ok: it is still the caller's.
  Status adopt(PoolOffset block, std::uint64_t bytes);
  Status free(const void* p);
  // Fields (tenuto/p.h). An assignment that fails is kept as the status of the transaction.
  bool holds(const void* p) const { return file_.contains(p); }
  // target: what a field that is a pointer gets. It may not be outside the pool.
  void store_field(void* at, const void* value, std::size_t bytes, const void* target);
  bool load_field(const void* at, void* value, std::size_t bytes) const;
  // The same for a part of an object, which may share bytes with others that wait. An assignment
  // that fails changes nothing, and is no status of the transaction.
  Status set(void* at, const void* value, std::size_t bytes);
  void get(const void* at, void* value, std::size_t bytes) const;
  // Where the transaction began, for reports: a line of the program, or (line 0) the call that did
  // it. `file` lives as long as the program.
  void began_at(const char* file, int line) {
    if (depth_ == (joint_ == nullptr ? 1u : 2u)) file_name_ = file, line_ = line;
  }
  std::string place() const;
  // Whether the open transaction allocated the block.
  bool allocated(PoolOffset block) { return depth_ > 0 && new_blocks_.find(block) != nullptr; }
  Status lock(std::mutex& m);
  Status lock(std::shared_mutex& m);
  Status lock(pthread_mutex_t& m);
  Status on_commit(std::function<void()> f);
  Status on_abort(std::function<void()> f);
  Status on_end(std::function<void(bool)> f);
  // Savepoints, by their numbers.
  Result<std::uint64_t> savepoint();
  Status rollback_to(std::uint64_t savepoint);
  void release_savepoint(std::uint64_t savepoint);

  // Each ends one begin(). abort rolls back at once, and outer levels then get Status::aborted.
  Status commit();
  void abort();
  // Aborts at any depth, as an abort of the outermost level does. For a thread that ends with an
  // open transaction.
  void abandon();

  // Makes the blocks in limbo durably free and gives them to the heap. They are those that the
  // last two transactions freed. Allowed inside a transaction. Cost: two fences if there are any.
  void drain();
  // Gives back the log frames behind the first `keep` of each area. REQUIRES: no transaction is
  // open, and limbo is empty.
  void trim(std::size_t keep);

  // --- recovery, before the first begin ----------------------------------------------------------
  void adopt_frames(std::size_t area, FrameChain chain);
  void adopt_decisions(PoolOffset frame);

  const TxnStats& stats() const { return stats_; }

  // --- for a quiescent pool ----------------------------------------------------------------------
  const Decisions& decisions() const { return decisions_; }
  void forget_pool(std::uint64_t pool_id);

 private:
  friend class Joint;
  TxnName name() const { return {file_.superblock().pool_id, lane_.id.value, log_.sequence()}; }
  Result<heap::Block> reserve(std::uint64_t bytes, const AllocOptions& options);
  bool in_new_block(const void* p, std::size_t bytes) const {
    const std::uint64_t begin = file_.offset_of(p).value;
    const RangeSet::Answer fresh = new_blocks_.at(begin);
    return fresh.inside && begin + bytes <= fresh.until;
  }
  Status add_bytes(const void* p, std::size_t bytes);
  Status make_log_room() { return log_.has_room() ? Status::ok : make_log_room_slowly(); }
  Status make_log_room_slowly();
  Status log_old_bytes(Range r);
  template <class F>
  Status for_each_gap(Range r, F&& f);
  void flush_modified(bool new_blocks);
  void store_one(void* at, const void* value, std::size_t bytes);
  void write_header(std::uint64_t frees_done, std::uint64_t committed);
  void release_limbo();
  bool in_limbo() const { return !limbo_.empty() || !older_limbo_.empty(); }
  bool is_one_free() const;
  void commit_one_free();
  void commit_outermost();
  void store_bits();
  void clear_bits();
  void store_record();
  void finish_commit();
  void keep_in_limbo();
  void store_waiting();
  void entries_durable();
  void take_over(PoolOffset block, std::uint64_t bytes, bool typed);
  void look_for_mistakes(const char* when);
  Status refuse_foreign(const void* p);  // invalid_argument
  void roll_back();
  void end_state(bool committed) noexcept;
  void end(bool committed);
  void call_back(bool committed);
  using LockMutex = bool (*)(void* mutex);
  using UnlockMutex = void (*)(void* mutex, bool forked);
  Status hold(void* mutex, LockMutex take, UnlockMutex unlock);
  bool holds_lock(const void* mutex) const;
  void end_locks();
  void let_go();

  // Constant after open.
  Engine& engine_;
  pm::PoolFile& file_;
  heap::Heap& heap_;
  const pm::Lane& lane_;
  Status broken_ = Status::ok;  // the lane's transaction line is damaged

  // Owner thread only.
  unsigned depth_ = 0;
  const char* file_name_ = nullptr;
  int line_ = 0;
  std::atomic<std::uint64_t> turn_ = 1;
  bool heap_ready_ = false;  // what the heap has for the lane is there: no free needs memory
  bool aborted_ = false;
  bool in_callbacks_ = false;
  bool undo_pending_ = false;    // undo entries are flushed and not fenced
  bool alloc_pending_ = false;   // alloc entries are flushed and not fenced
  bool any_typed_ = false;       // a new block has a type
  bool bits_stored_ = false;     // by a commit that is under way
  std::uint64_t committed_ = 0;  // as in the transaction line
  UndoLog log_;
  WaitingFields fields_;  // not empty only while undo_pending_
  Status field_error_ = Status::ok;
  std::vector<Range> kept_;  // of keep_on_abort
  RangeSet added_;           // ranges outside new blocks: logged ones, and those of overwrite
  NewBlocks new_blocks_;     // their ranges are never merged with added_
  std::vector<heap::Block> freed_;
  Savepoints savepoints_;
  std::shared_ptr<Joint> joint_;     // null: it is in this pool alone
  std::vector<pm::PoolFile*> also_;  // the other pools of what it led last, to acknowledge
  bool also_sync_ = false;           // one of them has Durability::sync
  void forget_also() {
    also_.clear();
    also_sync_ = false;
  }
  Decisions decisions_;
  std::vector<heap::Block> limbo_;        // freed by transaction committed_; their bits are stored
  std::vector<heap::Block> older_limbo_;  // freed by the one before; their bits are durable
  pm::DirtyLines dirty_;                  // the lines of bits that may not be durable
  std::uint64_t limbo_bytes_ = 0;
  struct HeldLock {
    void* mutex;
    UnlockMutex unlock;
  };
  std::vector<HeldLock> locks_;
  std::vector<std::function<void()>> on_commit_, on_abort_;
  TxnStats stats_;
};

// Guards a transaction that has begun and has not stored in place yet. Its destructor aborts unless
// done() was called, also when an allocation fails.
class Saving {
 public:
  explicit Saving(Txn& txn) : txn_(&txn) {}
  ~Saving() {
    if (txn_ != nullptr) txn_->abort();
  }
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;
  void done() { txn_ = nullptr; }

 private:
  Txn* txn_;
};

}  // namespace TENUTO_NS::tx
