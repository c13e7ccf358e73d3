// A pool: one file that holds objects, their allocator and their logs. Everything reachable from
// the root survives a crash. A block that was allocated but not attached does not leak.
//
// Thread safety: any threads may make all calls at once, except close. Several pools may be open.
//
// Fork: a pool belongs to the process that opened it. In a child every call does nothing and
// returns Status::forked (calls without a status: 0, null or empty). close and destructors do
// nothing to the pool either, so a child may exec, _exit, exit or leave the scope. The parent is
// not disturbed. Its lock ends with the parent, even if children live on (those it has just forked
// must run once before). A child may open the pool again once the parent has closed it; a daemon
// opens its pools after its fork. A child can read the pool's pages through inherited pointers. A
// store through them is a SIGSEGV; on medium journal it does not reach the pool. A bare clone(2),
// without the C library, is detected too. But there the descriptors, and so the lock, stay open
// until the parent closes the pool or the child ends, and stores are not prevented.
//
// Exit: the destructor of a pool in a static object closes it, whenever the object was made.
// Destructors of thread_locals may use pools. Threads may go on with collections (Store::close),
// but not with objects: that damages the pool. A transaction that a thread leaves open is rolled
// back. A process that ends in another way leaves the pool as a crash does. So may an exit inside a
// call (in a codec, the body of a transaction). No call is a cancellation point (pthreads).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tenuto/alloc_options.h"
#include "tenuto/compact.h"
#include "tenuto/garbage.h"
#include "tenuto/persist.h"
#include "tenuto/pool_options.h"
#include "tenuto/pool_stats.h"
#include "tenuto/ptr.h"
#include "tenuto/status.h"
#include "tenuto/tx.h"
#include "tenuto/units.h"
#include "tenuto/vptr.h"
#include "tenuto/words.h"

namespace TENUTO_NS {

// The root object that Pool::grow_root replaces. Valid during the hook.
struct OldRoot {
  std::string_view layout;
  const void* data = nullptr;
  std::uint64_t bytes = 0;  // as it was made
};
// Fills the new root. T: void* or a reference to its type.
template <class T>
using MigrateTo = std::function<Status(const OldRoot& old, T fresh, Transaction& tx)>;
using MigrateRoot = MigrateTo<void*>;

struct PoolImpl;  // store/pool/pool_impl.h
class Pool;

// All objects of a type (Pool::objects): an input range for one pass.
template <class T>
class Objects {
 public:
  class Iterator {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Iterator(const Pool& pool, std::uint64_t type);
    T& operator*() const { return *object_; }
    T* operator->() const { return object_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return object_ == nullptr; }

   private:
    const Pool* pool_ = nullptr;
    std::uint64_t type_ = 0;
    T* object_ = nullptr;
  };

  Objects(const Pool& pool, std::uint64_t type) : pool_(pool), type_(type) {}
  Iterator begin() const { return Iterator(pool_, type_); }
  static std::default_sentinel_t end() { return {}; }

 private:
  const Pool& pool_;
  std::uint64_t type_;
};

class TENUTO_API Pool {
 public:
  // Makes and opens a new pool. exists | not_found (no such folder) | busy (another process makes
  // it, or has opened it already) | invalid_argument | permission | full | io.
  static Result<Pool> create(std::string_view path, const PoolOptions& options = {},
                             Report* report = nullptr);
  // Opens a pool, and recovers it after a crash. not_found | busy | permission | not_a_pool |
  // wrong_version | corrupt | io | invalid_argument | full (too many pools, or no addresses for
  // tables) | read_only (an unclean pool, opened to read) | in_doubt (another pool decides how a
  // transaction ended, and must be open first). not_found also: the journal that the pool needs.
  static Result<Pool> open(std::string_view path, const PoolOptions& options = {},
                           Report* report = nullptr);
  // Opens several pools with the same options. A pool that waits for the decision of another one
  // (in_doubt, tenuto/tx.h) is opened after it. The result has the order of `paths`. Statuses of
  // open (in_doubt: a pool not among them decides); invalid_argument also: two paths to one file.
  static Result<std::vector<Pool>> open_all(const std::vector<std::string>& paths,
                                            const PoolOptions& options = {},
                                            Report* report = nullptr);
  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;
  ~Pool();
  // REQUIRES: no other thread is in a call. ok | closed | busy (a transaction is open, this is one
  // of its callbacks, or a call of the pool's store does not return; nothing was done) | io, or why
  // the pool turned read-only (it is closed, and the next open recovers; corrupt also: the heap's
  // memory was found overwritten, and restored) | forked (the handle is empty, the pool unchanged).
  Status close();

  // A destination is a null pointer in this pool: a plain word (PtrWord, Ptr<T>), or a versioned
  // one (VPtrWord, VPtr<T>), which needs fewer fences (tenuto/vptr.h).
  //
  // Atomically allocates a block of at least `bytes` and attaches it: dest then points to it. After
  // a crash dest is null and nothing leaks, or dest points to the block. The block's contents are
  // undefined. For a Ptr<T> or VPtr<T> it is aligned for T.
  // ok | full | too_large | invalid_argument (dest is outside the pool or not null; versioned: also
  // the pool's size_max is above VPtrWord::kPoolBytesMax) | read_only, or why the pool turned so |
  // closed | forked. Durable on return (PoolOptions::durability).
  //   plain      two fences. REQUIRES: no other thread touches dest or the block before this
  //              thread's next fence or locked instruction (the release of a mutex is one).
  //   versioned  one fence; two for a block above 16 KiB. With options one fence more, except with
  //              a type and no zero-fill. Any thread may use dest and the block at once.
  template <Destination D>
  Status malloc_to(std::uint64_t bytes, D& dest, const AllocOptions& options = {}) {
    AllocOptions o = options;
    o.align = std::max(o.align, align_for<D>());
    const bool as_usual = o.align == AllocOptions{}.align && !o.zero && o.type == 0;
    return as_usual ? malloc_word(bytes, word_of(dest)) : malloc_word(bytes, word_of(dest), o);
  }
  // The same for one T.
  template <PersistentPointer P>
  Status malloc_to(P& dest) {
    return malloc_to(sizeof(*dest), dest);
  }

  // Atomically frees the block that dest points to and makes dest null. ok | invalid_argument (dest
  // is null, foreign or an interior pointer, or the block is free already; nothing is done) |
  // corrupt (PoolOptions::canaries: the block was overwritten behind its end; nothing is done) |
  // others as malloc_to. The report of invalid_argument says what is at the target. One fence.
  // REQUIRES: two threads do not free one block at once. One of them gets invalid_argument, but a
  // crash at that time may destroy data of the next owner.
  template <Destination D>
  Status free_from(D& dest, Report* report = nullptr) {
    return free_word(word_of(dest), report);
  }

  // Atomically makes the block that dest points to at least `bytes` large. After a crash dest
  // points to the old block or to the new one, and nothing leaks. The contents are kept up to the
  // smaller size, and the type unless options have one. With options.zero the added bytes are zero.
  // If the old block already has the size, alignment and type, nothing is done. Otherwise it moves,
  // and other pointers to it are invalid. dest null: as malloc_to. bytes 0: as free_from. Statuses
  // as malloc_to; invalid_argument also: as free_from, dest is inside the block, or the open
  // transaction allocated the block. Durable on return. Inside a transaction a move is part of it,
  // and rolls it back if it fails; malloc_to and free_from are not. Three fences when it moves.
  Status realloc_to(std::uint64_t bytes, PtrWord& dest, const AllocOptions& options = {});

  // Atomically exchanges the targets of two versioned words of this pool. With one null word it is
  // a move. REQUIRES: no block ends up attached to a word inside itself. ok | invalid_argument (the
  // same word twice, a word outside the pool, or a target that is no block) | others as malloc_to.
  // Durable on return. One fence.
  Status swap(VPtrWord& a, VPtrWord& b);
  template <class T>
  Status swap(VPtr<T>& a, VPtr<T>& b) {
    return swap(a.word(), b.word());
  }

  // Batches: one block for each destination (Words), of one size or each of its own (Sizes). Cost:
  // the fences of one malloc_to for each group of 16 to 128 destinations (neighbours make the
  // largest groups), and one flush of each line that blocks share. A type or zero-fill costs
  // versioned words one fence more for the batch. Each block is attached in its own atomic step.
  // full, too_large or invalid_argument (also: a destination occurs twice, or the numbers of sizes
  // and destinations differ): none is attached. A crash during the call may leave any of them
  // attached. All are durable on return. For plain words the rule of malloc_to on other threads
  // holds for the whole batch.
  template <Destinations D>
  Status malloc_to(const Sizes& bytes, const D& dests, const AllocOptions& options = {}) {
    AllocOptions o = options;
    o.align = std::max(o.align, align_for<typename D::value_type>());
    return malloc_words(bytes, Words(dests), o);
  }
  // Frees the blocks that the words point to, each in its own atomic step. One fence for each
  // group. invalid_argument (as free_from, or a word or block occurs twice): nothing is done.
  // The report is of the first word that is refused.
  template <Destinations D>
  Status free_from(const D& dests, Report* report = nullptr) {
    return free_words(Words(dests), report);
  }

  // Allocation in two steps: reserve the block, fill and flush it, then publish or cancel. publish
  // stores its address in dest as malloc_to does, with two fences; the first one also covers what
  // was flushed before. With options.zero its usable bytes are zero and flushed. Statuses as
  // malloc_to; invalid_argument of publish also: the block is not reserved, or the open transaction
  // of this thread allocated it. The report says what is there instead.
  Result<Reserved> reserve(std::uint64_t bytes, const AllocOptions& options = {});
  template <Destination D>
  Status publish(const Reserved& block, D& dest, Report* report = nullptr) {
    return publish_word(block, word_of(dest), report);
  }
  // ok | invalid_argument (as of publish) | corrupt (as of free_from).
  Status cancel(const Reserved& block, Report* report = nullptr);

  // What is at an address, in words for people: "block of 128 bytes at offset 65792, allocated". A
  // report of this pool with an offset says more with at(offset). Empty: p is not in the pool. The
  // words may be out of date when other threads allocate or free. Takes locks for microseconds.
  std::string describe(const void* p) const;

  // Bytes usable in the allocated block that starts at p; 0 when there is none.
  std::uint64_t usable_size(const void* p) const;

  // The type of the block that starts at p; 0: it has none, or a walk would not show it.
  std::uint64_t type_of(const void* p) const;

  // A walk over all blocks with a type, in the order of addresses. first returns the first one, and
  // next the first one behind `p`. p may be anywhere in the pool, so the block there may be free
  // already. Null at the end. invalid_argument: type 0, or p outside the pool. No fence.
  // Other threads may allocate and free meanwhile. A block that is allocated during the whole walk
  // is shown once. One that is allocated during a part of it may be shown, and twice if it moved.
  // Never shown: blocks that are only reserved, freed, or of a transaction whose commit is not
  // durable; but after a crash with Consistency::gc such a block is kept, and shown, if a number in
  // an object seems to lead there, so give it filters (tenuto/references.h), which are exact. A
  // block that a transaction frees is shown until the commit. A block of malloc_to or
  // publish may be shown shortly before the call returns. The caller must keep a shown block
  // allocated, and must know when it may be read: allocate in transactions or publish filled
  // blocks.
  Result<void*> first(std::uint64_t type, Report* report = nullptr) const;
  Result<void*> next(const void* p, std::uint64_t type, Report* report = nullptr) const;
  // The same walk: for (Account& a : pool.objects<Account>(kAccount)). Type 0: nothing. Passed
  // objects may be freed. The pool must not be moved or closed meanwhile.
  template <class T>
  Objects<T> objects(std::uint64_t type) const {
    return Objects<T>(*this, type);
  }

  // The root object. The first call allocates it, zero-filled, under the name `layout` (1..55
  // bytes, no zero byte). Later calls must use the same layout and size, else invalid_argument. ok
  // | full | too_large | corrupt (the root word leads to no object) | read_only | closed | forked.
  Result<void*> root(std::string_view layout, std::uint64_t bytes, Report* report = nullptr);
  template <class T>
  Result<T*> root(std::string_view layout, Report* report = nullptr) {
    return as_root<T>(root(layout, sizeof(T), report));
  }

  // As root(). But a stored root that is smaller, or has another layout, is replaced by a new one
  // in one object transaction. After a crash the root is the old one or the new one, and nothing
  // leaks. The hook fills the new root, which is zero-filled. It may look at old.layout, and make,
  // change and free other objects in the transaction. If it returns another status than ok, or
  // throws, nothing is changed, and that is passed on. Its commit ends its own level alone. Without
  // a hook the old bytes are copied, the rest is zero, and another layout is invalid_argument.
  //   - Pointers: a Ptr stores a distance, so assign each one (fresh.list = old->list). A copy of
  //     its bytes would point elsewhere. So a root with a Ptr needs a hook. A VPtr cannot move: a
  //     root that contains one cannot grow. Keep them in a block that the root points to.
  //   - The old root is freed: pointers to it are invalid, also those in other objects.
  // Statuses as root. invalid_argument also: the stored root is larger (a root does not shrink), an
  // object transaction of this thread is open on the pool, or the hook calls root or grow_root.
  // REQUIRES: no other thread uses the root. Durable on return. Cost: a transaction that adds 72
  // bytes, makes the new root and frees the old one; nothing if the root is as wanted.
  Result<void*> grow_root(std::string_view layout, std::uint64_t bytes,
                          const MigrateRoot& migrate = {}, Report* report = nullptr);
  template <class T>
  Result<T*> grow_root(std::string_view layout, Report* report = nullptr) {
    static_assert(std::is_trivially_copyable_v<T>, "pointers need a hook that assigns them");
    return as_root<T>(grow_root(layout, sizeof(T), MigrateRoot(), report));
  }
  template <class T>
  Result<T*> grow_root(std::string_view layout, const MigrateTo<T&>& migrate,
                       Report* report = nullptr) {
    const auto fill = [&migrate](const OldRoot& old, void* fresh, Transaction& tx) {
      return migrate(old, *static_cast<T*>(fresh), tx);
    };
    return as_root<T>(grow_root(layout, sizeof(T), fill, report));
  }

  // Runs body(Transaction&) -> Status in a transaction (tenuto/tx.h). If body returns ok, it
  // commits. Any other status, or an exception, rolls back and is passed on. Inside another
  // transaction of this thread on this pool it joins that one.
  template <class Body>
  Status run(Body&& body, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    Transaction tx(*this, file, line);
    TENUTO_TRY(tx.begin_status_);
    const Status s = body(tx);
    if (s != Status::ok) {
      tx.abort();
      return s;
    }
    return tx.commit();
  }

  // Everything that was acknowledged before, by any thread, is durable when this returns. (Only
  // medium journal needs it, and Consistency::gc, where it covers the calling thread.) ok | io, or
  // why the pool turned read-only | closed | forked.
  Status sync();

  bool contains(const void* p) const;         // p is in this pool's mapping
  PoolOffset offset_of(const void* p) const;  // REQUIRES: contains(p)
  void* at(PoolOffset offset) const;          // null: offset 0 or beyond the end

  // ok, or why the pool turned read-only while it was open: corrupt (damage was found), io (the
  // journal failed, or a page could not be read or written) or in_doubt (tenuto/tx.h). Bytes that
  // were read in place (from objects, views, iterators) are right if this is not io afterwards.
  Status health(Report* report = nullptr) const;

  // Gives back all free memory: the caches of this thread and of ended threads, empty slabs, free
  // extents, garbage of the bookkeeping log. Free pages, in pieces of 4 KiB (extents) or 64 KiB
  // (all else), go to the file system as holes in the file, if it has holes. A later allocation
  // asks for the space again first, so a full disk is Status::full, not a crash. Takes milliseconds
  // or more; on medium journal it makes commits and checkpoints. Other threads may work meanwhile.
  // An allocation of theirs may find the pool full, or make it grow, because of 2 MiB that this
  // call holds (256 MiB on medium journal). ok | read_only | corrupt | io | closed.
  Status trim();

  // That pool is lost: erases what it may still ask (PoolInfo::pools_waited_for). Coming back in
  // doubt, it would undo what this pool committed. REQUIRES: no other thread is in a call. ok |
  // busy (an object transaction is open) | invalid_argument (that pool is open) | read_only | io.
  Status forget_pool(std::uint64_t pool_id);

  // What the program allocated and lost: objects that neither the root object nor a walk by type
  // leads to (tenuto/garbage.h). REQUIRES: no other thread is in a call of the pool, and no thread
  // keeps an object alive by a pointer in DRAM alone. ok | busy (an object transaction is open) |
  // corrupt (the heap, or the root word) | full | io (also: no thread to give) | with free:
  // read_only, or why the pool turned so | closed | forked.
  Result<Garbage> find_garbage(const GarbageOptions& options = {}, Report* report = nullptr);

  // Moves objects with types out of sparse slabs, and trims (tenuto/compact.h). REQUIRES: no other
  // thread is in a call of the pool or uses its objects. ok (a full pool: less than wanted) |
  // invalid_argument (the options, or a Movable::move that loses a pointer) | others as
  // find_garbage with free. Durable on return (PoolOptions::durability). Throws what `moved`
  // throws.
  Result<CompactObjectsStats> compact(const CompactObjectsOptions& options,
                                      Report* report = nullptr);

  PoolInfo info() const;
  PoolStats stats() const;
  // PoolStats::used_bytes alone, for who asks often: stats has the kernel pass over page tables.
  // 0 of a pool that is closed. Cost: a pass over the counters of the huge frames.
  std::uint64_t used_bytes() const;
  // Checks frames, slabs, extents, logs and lanes against each other. The store's own thread waits
  // meanwhile. REQUIRES: no other thread is in a call. ok | corrupt | io | closed | forked.
  Status validate(Report* report = nullptr) const;

 private:
  friend class Store;
  friend class Transaction;
  friend struct StoreImpl;
  explicit Pool(std::unique_ptr<PoolImpl>);
  // What the T of a pointer needs above the usual; else 0.
  template <class D>
  static constexpr std::uint64_t align_for() {
    if constexpr (requires(D & d) { alignof(std::remove_reference_t<decltype(*d)>); }) {
      constexpr std::uint64_t kAlign =
          alignof(std::remove_reference_t<decltype(*std::declval<D&>())>);
      return kAlign > AllocOptions{}.align ? kAlign : 0;
    }
    return 0;
  }
  template <class T>
  static Result<T*> as_root(const Result<void*>& root) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kLineBytes);
    if (!root) return root.error();
    return static_cast<T*>(*root);
  }
  template <PointerWord W>
  Status malloc_word(std::uint64_t bytes, W& dest);
  template <PointerWord W>
  Status malloc_word(std::uint64_t bytes, W& dest, const AllocOptions& options);
  template <PointerWord W>
  Status malloc_words(const Sizes& bytes, const Words<W>& dests, const AllocOptions& options);
  template <PointerWord W>
  Status free_word(W& dest, Report* report);
  template <PointerWord W>
  Status free_words(const Words<W>& dests, Report* report);
  template <PointerWord W>
  Status publish_word(const Reserved& block, W& dest, Report* report);
  void end() noexcept;

  std::unique_ptr<PoolImpl> impl_;
};

template <class T>
Objects<T>::Iterator::Iterator(const Pool& pool, std::uint64_t type)
    : pool_(&pool), type_(type), object_(static_cast<T*>(pool.first(type).value_or(nullptr))) {}

template <class T>
typename Objects<T>::Iterator& Objects<T>::Iterator::operator++() {
  object_ = static_cast<T*>(pool_->next(object_, type_).value_or(nullptr));
  return *this;
}

}  // namespace TENUTO_NS
