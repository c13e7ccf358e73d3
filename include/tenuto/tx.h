// Transactions over objects in a pool. An undo log makes a group of in-place stores, allocations
// and frees atomic. A transaction costs three fences when all ranges are added before the first
// store, one when a single free is all, and none when nothing was added, allocated or freed
// (tx/README.md has the protocol).
//
//   pool.run([&](Transaction& tx) {
//     TENUTO_TRY(tx.add(account.balance));
//     account.balance -= 10;
//     return Status::ok;
//   });
//
// There is no isolation: hold your own locks until the transaction ends (tx.lock does this).
//
// Nesting is flat. An inner transaction joins the outer one, and an abort at any depth rolls
// everything back.
//
// Several pools: a Transaction that is given another one is a part of it. Everything is atomic over
// all pools.
//
//   Transaction from(bank_a);
//   Transaction to(bank_b, from);
//   ... add and store in both ...
//   TENUTO_TRY(to.commit());      // this level only, as that of an inner transaction
//   return from.commit();         // both pools
//
// A part uses its own pool alone: its add, alloc, savepoints and callbacks. Only ready() of any of
// them, and a lock, is for all. An abort of any of them rolls all back, and so does a part whose
// level was not committed when the first one commits.
//
// If a commit changed at least two pools, the one with the smallest id decides for the others
// (tx/README.md). After a crash a part that was prepared asks it. So that pool must be open in the
// same process first. Else the open of the other returns in_doubt and ends nothing, and its report
// names the pool. Pool::open_all finds the order, and PoolOptions::in_doubt ends it without the
// other pool. A pool keeps what it decided until the others have ended it, or for good if such a
// pool is lost (PoolInfo::pools_waited_for, Pool::forget_pool).
//
// A commit may also return full or in_doubt (no room or memory to note the decision: everything is
// undone). If the journal of the pool that decides fails at the decision (io), the others turn
// read-only, and what writes to them returns in_doubt: close all, and open them again. A commit is
// durable as the strictest of the pools' options says, whichever of them changed: with one pool
// whose PoolOptions::durability is sync, all are. commit(durability) of the first one is for all.
// Pools that are in a transaction together belong together: an older copy of one of them alone is
// noticed only if it has to decide. Cost: one fence more than in one pool, for any number of pools;
// on medium journal three syncs. The first such transaction of a pool writes its superblock.
// Versions that know none refuse the pool from then on (wrong_version).
//
// Thread safety: a Transaction belongs to the thread that began it. When that thread ends, an open
// transaction is rolled back, and all later calls on it return Status::aborted.
//
// Fork: in a child a Transaction does nothing (Status::forked), except that the mutexes that it
// holds are free in the child. The parent's transaction goes on.
#pragma once

#include <pthread.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <type_traits>
#include <utility>

#include "tenuto/alloc_options.h"
#include "tenuto/persist.h"
#include "tenuto/pool_options.h"
#include "tenuto/ptr.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace TENUTO_NS {

class Actions;  // tenuto/actions.h
class Pool;
template <class T>
class p;  // tenuto/p.h
namespace tx {
class Txn;  // tx/txn.h
}

class TENUTO_API Transaction {
 public:
  // Begins, or joins this thread's transaction on the pool. file, line: for reports of mistakes.
  explicit Transaction(Pool& pool, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE());
  // Begins a part of `first`'s transaction in another pool, or joins it. See above. `first` is open
  // and of this thread. status() also: invalid_argument (this thread has a transaction of its own
  // open on the pool, or the pool is a copy of one that takes part) | that of `first`.
  Transaction(Pool& pool, Transaction& first, const char* file = __builtin_FILE(),
              int line = __builtin_LINE());
  // The same for layers that have no Pool.
  explicit Transaction(tx::Txn& txn, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE());
  ~Transaction();  // rolls back what was neither committed nor aborted
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // ok | why the transaction could not begin: closed, read_only, corrupt, io, full (2^48
  // transactions of one lane), invalid_argument (inside a callback), forked | aborted, after a
  // rollback at any depth | closed, after a commit, or the status of a commit that failed | full,
  // invalid_argument: a field (tenuto/p.h) could not be logged. When it is not ok, all other calls
  // return it.
  Status status() const;

  // Saves the old bytes of [p, p + bytes). They are durable when this returns; store only after it.
  // A range that was added before, or is in a block that this transaction allocated, costs nothing.
  // ok | invalid_argument (outside the pool) | full (no room for the log) | aborted. Cost: one line
  // for each 48 bytes, and one fence.
  Status add(const void* p, std::size_t bytes);
  template <class T>
  requires(!std::is_pointer_v<T>) Status add(const T& object) {
    return add(&object, sizeof object);
  }
  // Several ranges under one fence: add_later for each, then one ready() before the first store.
  // The old bytes are durable when ready() returns. Statuses as add. The values of fields that wait
  // (tenuto/p.h) are stored then.
  Status add_later(const void* p, std::size_t bytes);
  template <class T>
  requires(!std::is_pointer_v<T>) Status add_later(const T& object) {
    return add_later(&object, sizeof object);
  }
  Status ready();
  // Assigns to an object in the pool, or to a part of one, as p<T> does (tenuto/p.h): the old bytes
  // are logged, and the new value waits until the commit, add or ready. So one fence is enough for
  // any number of assignments. Fields and parts of them see each other's values. get() reads what
  // waits, the object itself what is stored. A part of something that waits, or that was added
  // without ready(), costs one fence more. Not ok: nothing was changed. Statuses as add. T:
  // trivially copyable; not Ptr, whose word depends on its place.
  template <class T>
  Status set(T& object, const std::type_identity_t<T>& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return set(&object, &value, sizeof object);
  }
  Status set(void* at, const void* value, std::size_t bytes);
  template <class T>
  T get(const T& object) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::array<std::byte, sizeof(T)> bytes;
    get(&object, bytes.data(), bytes.size());
    return std::bit_cast<T>(bytes);
  }
  void get(const void* at, void* value, std::size_t bytes) const;
  // The bytes have no value yet, or no more (an unused slot): the commit flushes them, and nothing
  // saves what was there. Store at once. After an abort or a crash they are undefined, unless they
  // were added before. So what is removed and may be overwritten in the same transaction has to be
  // added when it is removed. Statuses as add. Cost: no line; a fence if part of it was added since
  // the last fence.
  Status overwrite(const void* p, std::size_t bytes);

  // Takes a block that is allocated with the commit; an abort frees it. Its contents are undefined
  // (zero with options.zero). Commit flushes the whole block, so it need not be added. full |
  // too_large | invalid_argument (alignment) | aborted. Cost: one line. An allocation after the
  // last add or ready costs one more fence at commit, so allocate first.
  Result<void*> alloc(std::uint64_t bytes, const AllocOptions& options = {});
  // Constructs a T in a new block. Statuses as alloc.
  template <class T, class... Args>
  Result<T*> make(Args&&... args) {
    Result<void*> block = alloc(sizeof(T), {.align = alignof(T)});
    if (!block) return block.error();
    if constexpr (std::is_constructible_v<T, Args...>) {
      return new (*block) T(std::forward<Args>(args)...);
    } else {  // an aggregate, where the compiler takes no parentheses for it
      return new (*block) T{std::forward<Args>(args)...};
    }
  }
  // Frees the block that starts at p when the transaction commits. ok | invalid_argument (no
  // allocated block starts at p, or it is freed already) | full (no room for the log) | aborted.
  Status free(const void* p);
  // As free. No destructor runs: its stores would remain in the block after an abort.
  template <class T>
  Status destroy(T* object) {
    static_assert(std::is_trivially_destructible_v<T>,
                  "release what the object owns by adding and storing, then free it");
    return free(object);
  }

  // Locks the mutex and holds it until the outermost transaction ends, also after an inner abort.
  // Does nothing if this transaction holds it already. The mutex is locked only if this returns ok;
  // else status().
  Status lock(std::mutex& m);
  Status lock(std::shared_mutex& m);  // for itself alone
  Status lock(pthread_mutex_t& m);    // also invalid_argument: pthread_mutex_lock failed

  // A point that the transaction can go back to. rollback_to undoes what was done since, at any
  // depth of nesting: it stores old bytes back, gives back blocks that were allocated, keeps those
  // that were freed, and forgets callbacks (those of on_abort and on_end run first). Locks stay.
  // The point stays, too; younger ones are gone. A field that could not be logged since is as if it
  // had not been assigned, so a transaction that met a full log can go on. Bytes that were added
  // before the point, or are in a block that this transaction allocated before it, come back only
  // if they are added again after it (no line, no fence), or are fields. Statuses as add;
  // rollback_to also invalid_argument (another transaction's point, or one that is gone). Cost: no
  // fence (one for a savepoint when more than 256 fields wait), and no line but one for each free
  // that is undone. While there is a savepoint, what is added is copied to DRAM, too; the log does
  // not shrink.
  struct Savepoint {
    std::uint64_t number = 0;
  };
  Result<Savepoint> savepoint();
  Status rollback_to(Savepoint point);
  // Runs body() -> Status. Any other status than ok, or an exception, undoes what it did, and is
  // passed on; the transaction goes on, unless body aborted it, or the way back had no memory. An
  // exception of a callback on the way back ends the program.
  template <class Body>
  Status attempt(Body&& body) {
    const Result<Savepoint> before = savepoint();
    if (!before) return before.error();
    struct Undo {
      Transaction& tx;
      Savepoint before;
      bool done = false;
      ~Undo() { done ? tx.forget(before) : tx.undo(before); }
    } undo{*this, *before};
    Status s = body();
    if (s == Status::ok) s = status();
    undo.done = s == Status::ok;
    return s;
  }

  // Registers a callback for the end of the outermost transaction (on_commit, on_abort, or on_end
  // for both; its argument tells which). They run in the order of registration, before the locks
  // are released: of several pools those of each pool in turn, and then all locks. They must not
  // begin a transaction on this pool (invalid_argument). An exception passes through
  // commit() or abort(). Then later callbacks do not run, the locks are released, and a commit
  // stays committed (on medium journal this call does not sync it). An exception that leaves
  // ~Transaction ends the program.
  Status on_commit(std::function<void()> f);
  Status on_abort(std::function<void()> f);
  Status on_end(std::function<void(bool committed)> f);

  // Commits the outermost transaction, or leaves an inner one: while another guard of this thread
  // is open on the pool, whichever began first, nothing is durable yet. Durable on return, as
  // PoolOptions::durability says (of several pools the strictest). ok | aborted (an inner one was
  // aborted) | corrupt, io, read_only (the pool turned read-only before, and everything is rolled
  // back) | io (a page or the journal failed during the commit: committed, but not known to be
  // durable; see Pool::health) | forked. Cost: two fences besides those of add and ready, one more
  // if something was logged after the last of these; one when a single free is all, and none when
  // nothing was added, allocated or freed.
  Status commit();
  // The same, with this durability instead of PoolOptions::durability.
  Status commit(Durability durability);
  // Rolls everything back at once, at any depth. Later calls return Status::aborted. Cost: two
  // fences, and none when nothing was added, allocated or freed.
  void abort();

 private:
  template <class T>
  friend class p;
  friend class Actions;
  friend class tx::Txn;
  friend class Pool;
  Status commit_open(Durability durability);  // REQUIRES: it is open
  // Makes a reserved block that the caller owns one of this transaction, as alloc does.
  Status adopt(PoolOffset block, std::uint64_t bytes);
  // rollback_to, or without memory for it abort.
  void undo(Savepoint point) noexcept;
  void forget(Savepoint point) noexcept;

  // For p<T>. `at` is the field, and `target` what it points to, if it is a pointer. store_field
  // stores at once where no transaction of this thread is on the field's pool. load_field: false
  // when no value waits.
  static void store_field(void* at, const void* value, std::size_t bytes, const void* target) {
    if (innermost_ == nullptr || !innermost_->take_field(at, value, bytes, target))
      __builtin_memcpy(at, value, bytes);
  }
  static bool any_open() { return innermost_ != nullptr; }  // of this thread
  static bool load_field(const void* at, void* value, std::size_t bytes) {
    return innermost_ != nullptr && innermost_->find_field(at, value, bytes);
  }
  bool take_field(void* at, const void* value, std::size_t bytes, const void* target);
  bool find_field(const void* at, void* value, std::size_t bytes) const;
  void leave();
  // The pool goes away. The guards of this thread are closed.
  static void lose(const tx::Txn& txn) noexcept;

  Durability durability_ = Durability::buffered;  // layers without a Pool sync themselves
  void begin(tx::Txn& txn, tx::Txn* first, const char* file, int line);
  tx::Txn* open() const;  // null also when the thread that began it has ended
  Status why_not() const;
  tx::Txn* txn_ = nullptr;            // null: it did not begin, or has ended
  Status begin_status_ = Status::ok;  // why txn_ is null
  std::uint64_t turn_ = 0;            // txn_'s turn when it began
  // The transactions of this thread that may be open, the youngest first.
  static constinit thread_local Transaction* innermost_;
  Transaction* outer_ = nullptr;
};

}  // namespace TENUTO_NS
