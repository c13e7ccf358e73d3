// Transactions over objects in a pool: an undo log makes a group of in-place stores, allocations
// and frees atomic. The undo protocol (tx/README.md) needs three fences when all ranges are added
// before the first store, none when nothing was added.
//
//   pool.run([&](Transaction& tx) {
//     TENUTO_TRY(tx.add(account.balance));
//     account.balance -= 10;
//     return Status::ok;
//   });
//
// The engine isolates nothing: hold your own locks until the transaction ends (tx.lock does).
// A Transaction belongs to the thread that began it: one that its thread's end finds open is rolled
// back then, and all calls on it return Status::aborted. In a child of a fork it does nothing
// (Status::forked), but for the mutexes that it holds, which are free in the child; the parent's
// goes on. Nesting is flat: an inner transaction joins
// the outer, and an abort at any depth rolls everything back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include "tenuto/alloc_options.h"
#include "tenuto/persist.h"
#include "tenuto/pool_options.h"
#include "tenuto/ptr.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace TENUTO_NS {

class Pool;
namespace tx {
class Txn;  // tx/txn.h
}

class Transaction {
 public:
  explicit Transaction(Pool& pool);    // begins, or joins this thread's transaction on the pool
  explicit Transaction(tx::Txn& txn);  // the same for layers that have no Pool
  ~Transaction();                      // rolls back what was neither committed nor aborted
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // ok, or why the transaction could not begin (read_only, corrupt, invalid_argument inside a
  // callback), aborted once it was rolled back at any depth, closed after commit(). All other
  // members return the same when it is not ok.
  Status status() const;

  // Saves the old bytes of [p, p + bytes), durably when this returns; store only afterwards.
  // Adding what was added before, or a part of an object made in this transaction, costs nothing.
  // ok | invalid_argument (outside the pool) | full (no room for the log) | aborted.
  Status add(const void* p, std::size_t bytes);
  template <class T>
  requires(!std::is_pointer_v<T>) Status add(const T& object) {
    return add(&object, sizeof object);
  }
  // Several ranges under one fence: add_later each, then one ready() before the first store.
  Status add_later(const void* p, std::size_t bytes);
  template <class T>
  requires(!std::is_pointer_v<T>) Status add_later(const T& object) {
    return add_later(&object, sizeof object);
  }
  Status ready();

  // A block that becomes allocated at commit and vanishes with an abort. Contents undefined;
  // flushed at commit as a whole. full | too_large | invalid_argument (alignment) | aborted.
  Result<void*> alloc(std::uint64_t bytes, const AllocOptions& options = {});
  // Constructs a T in a fresh block.
  template <class T, class... Args>
  Result<T*> make(Args&&... args) {
    Result<void*> block = alloc(sizeof(T), {.align = alignof(T)});
    if (!block) return block.error();
    return new (*block) T(std::forward<Args>(args)...);
  }
  // Frees the block that starts at p when the transaction commits. invalid_argument for anything
  // that is not an allocated block's start, or is freed twice. full | aborted.
  Status free(const void* p);
  // As free. No destructor runs: its stores would stand in a block that an abort brings back.
  template <class T>
  Status destroy(T* object) {
    static_assert(std::is_trivially_destructible_v<T>,
                  "release what the object owns by adding and storing, then free it");
    return free(object);
  }

  // Takes the mutex and holds it until the outermost transaction ends, also after an abort inside.
  // Taking one that this transaction holds does nothing. Not taken unless ok: the failed begin's
  // status otherwise.
  Status lock(std::mutex& m);

  // Called once the outermost transaction has ended that way, in the order given, before its locks
  // are released. Must not begin a transaction on this pool. What one throws passes through
  // commit() or abort(): those after it are not called, the locks are released, and what was
  // committed is committed (on medium journal not synced by this call). Out of a destructor it ends
  // the program.
  Status on_commit(std::function<void()> f);
  Status on_abort(std::function<void()> f);

  // Commits (the outermost) or leaves (an inner one). aborted when an inner one was aborted.
  // Durable on return. Two fences besides those of add and ready; none when nothing was added,
  // allocated or freed.
  // io on medium journal: committed, but not known to be durable.
  Status commit();
  // The same, synced or buffered as said here instead of by PoolOptions::durability.
  Status commit(Durability durability);
  // Rolls everything back at once, whatever the depth; later calls return Status::aborted. Two
  // fences when something was added, none otherwise.
  void abort();

 private:
  Durability durability_ = Durability::buffered;  // layers that have no Pool sync themselves
  void begin(tx::Txn& txn);
  tx::Txn* open() const;  // null, too, when the thread that began it has ended
  Status why_not() const;
  tx::Txn* txn_ = nullptr;            // null when it did not begin, or has ended
  Status begin_status_ = Status::ok;  // why txn_ is null
  std::uint64_t turn_ = 0;            // of txn_, when it began
};

}  // namespace TENUTO_NS
