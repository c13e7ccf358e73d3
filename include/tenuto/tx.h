// Transactions over objects in a pool: an undo log makes a group of in-place stores, allocations
// and frees atomic. Protocol U3 (tx/README.md): three fences when all ranges are added before the
// first store, none when nothing was added.
//
//   pool.run([&](Transaction& tx) {
//     TENUTO_TRY(tx.add(account.balance));
//     account.balance -= 10;
//     return Status::ok;
//   });
//
// The engine isolates nothing: hold your own locks until the transaction ends (tx.lock does).
// A Transaction belongs to the thread that began it. Nesting is flat: an inner transaction joins
// the outer, and an abort at any depth rolls everything back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include "tenuto/persist.h"
#include "tenuto/ptr.h"
#include "tenuto/status.h"

namespace tenuto::inline TENUTO_ABI {

class Pool;
namespace tx {
class Txn;  // tx/txn.h
}

class Transaction {
 public:
  explicit Transaction(Pool& pool);  // begins, or joins this thread's transaction on the pool
  ~Transaction();                    // rolls back what was neither committed nor aborted
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // ok, or why the transaction could not begin (read_only, closed), or aborted.
  Status status() const;

  // Saves the old bytes of [p, p + bytes), durably when this returns; store only afterwards.
  // Adding what was added before, or a part of an object made in this transaction, costs nothing.
  // ok | invalid_argument (outside the pool) | full (no room for the log) | aborted.
  Status add(const void* p, std::size_t bytes);
  template <class T>
    requires(!std::is_pointer_v<T>)
  Status add(const T& object) {
    return add(&object, sizeof object);
  }
  // Several ranges under one fence: add_later each, then one ready() before the first store.
  Status add_later(const void* p, std::size_t bytes);
  template <class T>
    requires(!std::is_pointer_v<T>)
  Status add_later(const T& object) {
    return add_later(&object, sizeof object);
  }
  Status ready();

  // A block that becomes allocated at commit and vanishes with an abort. Contents undefined;
  // flushed at commit as a whole. full | too_large | aborted.
  Result<void*> alloc(std::uint64_t bytes);
  // Constructs a T in a fresh block.
  template <class T, class... Args>
  Result<T*> make(Args&&... args) {
    Result<void*> block = alloc(sizeof(T));
    if (!block) return block.error();
    return new (*block) T(std::forward<Args>(args)...);
  }
  // Frees the block that starts at p when the transaction commits. invalid_argument for anything
  // that is not an allocated block's start, or is freed twice.
  Status free(const void* p);
  template <class T>
  Status destroy(T* object) {
    const Status s = free(object);
    if (s == Status::ok && object != nullptr) object->~T();
    return s;
  }

  // Holds the mutex until the outermost transaction ends.
  void lock(std::mutex& m);

  // Called after the outermost transaction ended that way; must not start transactions.
  void on_commit(std::function<void()> f);
  void on_abort(std::function<void()> f);

  // Commits (the outermost) or leaves (an inner one). aborted when an inner one was aborted.
  // Durable on return.
  Status commit();
  // Rolls everything back at once, whatever the depth; later calls return Status::aborted.
  void abort();

 private:
  tx::Txn* txn_ = nullptr;
  Status begin_status_ = Status::ok;
  bool ended_ = false;
};

}  // namespace tenuto::inline TENUTO_ABI
