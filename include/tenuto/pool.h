// A pool: one file that holds objects, their allocator and their logs. What is reachable from the
// root survives any crash; what was allocated and not attached does not leak.
//
// Thread safety: all calls from any threads at once, but close. Several pools may be open at once.
//
// Fork: a pool belongs to the process that opened it. In a child every call does nothing and
// returns Status::forked (what returns no status returns nothing: 0, null, empty); close and
// destructors do nothing to the pool either, so a child may exec, _exit, exit or leave the scope.
// The parent goes on undisturbed; its lock ends with it, whatever children live on. A child may
// open the pool anew once the parent has closed it: a program that becomes a daemon opens its pools
// afterwards. Pages of the pool can be read in a child, through pointers it inherited, and not
// stored to (SIGSEGV; on medium journal a store goes nowhere). A bare clone(2), past the C library,
// is noticed too, but there descriptors stay open, and with them the lock, until the parent closes
// the pool or the child ends; and stores through pointers are not kept off.
//
// Exit: a pool in a static object is closed by its destructor, whenever that was made, and
// destructors of thread_locals may use pools. Threads must not use it meanwhile. What a thread
// leaves open when it ends (a transaction) is rolled back. A process that ends otherwise leaves the
// pool as a crash does; so may one that calls exit inside a call of the pool (in a codec, a clock,
// the body of a transaction), which does not hang.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tenuto/alloc_options.h"
#include "tenuto/persist.h"
#include "tenuto/pool_options.h"
#include "tenuto/ptr.h"
#include "tenuto/status.h"
#include "tenuto/tx.h"
#include "tenuto/units.h"
#include "tenuto/vptr.h"

namespace TENUTO_NS {

struct PoolStats {
  std::uint64_t file_bytes = 0;       // size of the file
  std::uint64_t disk_bytes = 0;       // of which the file system holds: less by the holes
  std::uint64_t used_bytes = 0;       // frames taken
  std::uint64_t allocated_bytes = 0;  // blocks and extents in use, with rounding
  std::uint64_t objects = 0;          // blocks allocated by malloc_to, publish, transactions
  std::uint64_t slabs = 0;
  std::uint64_t morphed_slabs = 0;  // with blocks of two sizes
  // Slabs by the tenths of their blocks that are not free (in use, in a thread's cache, or under a
  // block of an old size); last: 90 to 100 %.
  std::array<std::uint64_t, 10> slabs_by_tenth{};
  std::uint64_t extents = 0;
  std::uint64_t reclaimed_bytes = 0;    // free extents whose pages are still in the file
  std::uint64_t retained_bytes = 0;     // free extents whose pages were given back
  std::uint64_t book_bytes = 0;         // bookkeeping log
  std::uint64_t book_list_bytes = 0;    // of which in use
  std::uint64_t book_live_entries = 0;  // extents and huge objects that it says are in use
  std::uint64_t book_fast_gcs = 0;      // since open: pieces of it dropped as a whole
  std::uint64_t book_slow_gcs = 0;      // since open: times it was written anew
  std::uint64_t zones = 0;
  std::uint64_t lanes = 0;              // log areas there are
  std::uint64_t lines_flushed = 0;      // medium model only, this process
  std::uint64_t fences = 0;             // "
  std::uint64_t reflushes = 0;          // distance < 4
  std::uint64_t writes_sequential = 0;  // 256-byte device writes
  std::uint64_t writes_random = 0;
  // Medium journal only, since the open.
  std::uint64_t journal_bytes = 0;             // size of its ring
  std::uint64_t journal_used_bytes = 0;        // not yet in the pool file
  std::uint64_t journal_commits = 0;           // device writes that made something durable
  std::uint64_t journal_lines = 0;             // in them
  std::uint64_t journal_payload_bytes = 0;     // in them, compressed
  std::uint64_t journal_written_bytes = 0;     // with padding to whole pages
  std::uint64_t journal_device_flushes = 0;    // of journal and pool
  std::uint64_t journal_checkpoints = 0;       // how often the ring was emptied into the pool
  std::uint64_t journal_checkpoint_bytes = 0;  // written to the pool by them
  double journal_recovery_ms = 0;              // about what a replay would take if it crashed now
  std::uint64_t journal_replayed_bytes = 0;  // of the ring, by the open; 0: nothing was left in it
  std::uint64_t journal_replayed_lines = 0;
  double journal_replay_ms = 0;
};

struct PoolInfo {
  std::string path;
  std::string layout;  // of the root object; empty when there is none
  std::uint64_t pool_id = 0;
  std::uint32_t version = 0;
  // In use; of a pool that was opened to read, what an open for writing would take.
  Medium medium = Medium::cache;
  bool power_cut_safe = false;  // what the medium promises
  bool was_clean = true;        // the last close before this open
  bool read_only = false;
  bool has_store = false;
  double recovery_ms = 0;           // of this open
  std::uint64_t leaked_frames = 0;  // given back by recovery
  std::uint64_t rolled_back = 0;    // transactions undone by recovery
  // Of medium journal, whatever the medium in use. The file is looked at when this is asked for.
  std::uint64_t journal_id = 0;    // 0: the pool never had one
  std::string journal_path;        // where an open like this one looks for it
  std::string journal_last_place;  // where it was at the last open with it; empty: unknown
  JournalFound journal_found = JournalFound::none;
};

struct PoolImpl;  // store/pool/pool_impl.h
class Pool;

// All objects of a type (Pool::objects): an input range, to be gone through once.
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

// Memory taken from the pool that nobody can find yet: a crash frees it. Give it to publish() or
// cancel(). `bytes` is what may be used.
struct Reserved {
  PoolOffset offset;
  void* data = nullptr;
  std::uint64_t bytes = 0;
};

class Pool {
 public:
  // A new pool. exists | invalid_argument | permission | full | io.
  static Result<Pool> create(std::string_view path, const PoolOptions& options = {},
                             Report* report = nullptr);
  // not_found | busy | permission | not_a_pool | wrong_version | corrupt | io | read_only (unclean
  // pool opened read-only). Recovers from whatever crash came before.
  static Result<Pool> open(std::string_view path, const PoolOptions& options = {},
                           Report* report = nullptr);
  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;
  ~Pool();
  // REQUIRES: no other thread is in a call. ok | closed | busy (a transaction is open: nothing was
  // done) | io, or why the pool turned read-only: it is closed, and the next open recovers |
  // forked: the handle is empty, the pool untouched.
  Status close();

  // Allocates at least `bytes` and durably attaches the block at `dest`, a null pointer word
  // inside this pool, in one atomic step: after any crash dest is null and nothing is lost, or
  // it points to the block. The block's contents are undefined.
  // ok | full | too_large | invalid_argument (dest outside the pool or not null) | read_only.
  // Durable on return. Two fences. Until this thread's next fence or
  // locked instruction (releasing a mutex is one) no other thread may touch dest or the block.
  Status malloc_to(std::uint64_t bytes, PtrWord& dest);
  // The same, aligned or zero-filled.
  Status malloc_to(std::uint64_t bytes, PtrWord& dest, const AllocOptions& options);
  template <class T>
  Status malloc_to(Ptr<T>& dest, std::uint64_t bytes = sizeof(T)) {
    if constexpr (alignof(T) > 16) {
      return malloc_to(bytes, dest.word(), AllocOptions{.align = alignof(T)});
    }
    return malloc_to(bytes, dest.word());
  }
  Status malloc_to(Ptr<void>& dest, std::uint64_t bytes) { return malloc_to(bytes, dest.word()); }

  // Detaches and frees the block that dest points to, in one atomic step; dest becomes null.
  // ok | invalid_argument (null, foreign, interior pointer or a double free: nothing is done) |
  // read_only. One fence. Two threads must not free one block at once: one of them gets
  // invalid_argument, but a crash in that moment may cost whoever gets the block next.
  Status free_from(PtrWord& dest);
  template <class T>
  Status free_from(Ptr<T>& dest) {
    return free_from(dest.word());
  }

  // Makes the block that dest points to at least `bytes` large, in one atomic step: after any crash
  // dest points to the old block or to the new one, and nothing is lost. The contents are kept up
  // to the smaller size, its type unless options name another; with options.zero what the block
  // grew by is zero. A null dest is
  // malloc_to, no bytes is free_from. Where the old block has the size that `bytes` gets anyway,
  // nothing is done; else it moves: pointers to it other than dest lead nowhere afterwards.
  // ok | full | too_large | invalid_argument (as free_from, or dest lies in the block) | read_only.
  // Durable on return; inside a transaction it is a part of that. Three fences when it moves.
  Status realloc_to(std::uint64_t bytes, PtrWord& dest, const AllocOptions& options = {});

  // The same for versioned words (tenuto/vptr.h): one fence each (two for objects above 16 KiB),
  // and no seal: any thread may use dest and the block at once. invalid_argument also in a pool
  // that may grow beyond what a versioned word can span.
  Status malloc_to(std::uint64_t bytes, VPtrWord& dest);
  // Aligned, zero-filled or with a type. With a type that is all: as above, else one fence more.
  Status malloc_to(std::uint64_t bytes, VPtrWord& dest, const AllocOptions& options);
  template <class T>
  Status malloc_to(VPtr<T>& dest, std::uint64_t bytes = sizeof(T)) {
    static_assert(alignof(T) <= 16, "reserve it with its alignment, then publish it");
    return malloc_to(bytes, dest.word());
  }
  Status free_from(VPtrWord& dest);
  template <class T>
  Status free_from(VPtr<T>& dest) {
    return free_from(dest.word());
  }
  // Exchanges what two versioned words of this pool point to, either of which may be null, in one
  // atomic step: with a null one it is a move. A block must not come to hang on a word inside
  // itself. ok | invalid_argument (the same word twice, a word outside the pool, or one that points
  // to no block) | read_only. Durable on return. One fence.
  Status swap(VPtrWord& a, VPtrWord& b);
  template <class T>
  Status swap(VPtr<T>& a, VPtr<T>& b) {
    return swap(a.word(), b.word());
  }

  // Batches: one block of at least `bytes` for each of the destinations, which are neighbours in an
  // array or stand anywhere, with the fences of a single malloc_to for up to 16 to 128 of them (a
  // group: it is longest for neighbours), and every line that they share flushed once. Each block
  // is attached in an atomic step of its own: on full, too_large or invalid_argument (also for a
  // destination that stands twice) none is; after a crash during the call any of them may be. On
  // return all are durable; for plain words what malloc_to asks holds for the whole batch.
  // Options cost versioned words one fence a batch.
  Status malloc_to(std::uint64_t bytes, std::span<PtrWord> dests, const AllocOptions& options = {});
  Status malloc_to(std::uint64_t bytes, std::span<PtrWord* const> dests,
                   const AllocOptions& options = {});
  Status malloc_to(std::uint64_t bytes, std::span<VPtrWord> dests,
                   const AllocOptions& options = {});
  Status malloc_to(std::uint64_t bytes, std::span<VPtrWord* const> dests,
                   const AllocOptions& options = {});
  // The same with a size for each; invalid_argument also when there are not as many sizes.
  Status malloc_to(std::span<const std::uint64_t> bytes, std::span<PtrWord* const> dests,
                   const AllocOptions& options = {});
  Status malloc_to(std::span<const std::uint64_t> bytes, std::span<VPtrWord* const> dests,
                   const AllocOptions& options = {});
  template <class T>
  Status malloc_to(std::span<Ptr<T>> dests, std::uint64_t bytes = sizeof(T)) {
    return malloc_to(bytes, words_of<PtrWord>(dests), AllocOptions{.align = aligned_for<T>()});
  }
  template <class T>
  Status malloc_to(std::span<VPtr<T>> dests, std::uint64_t bytes = sizeof(T)) {
    return malloc_to(bytes, words_of<VPtrWord>(dests), AllocOptions{.align = aligned_for<T>()});
  }
  // Detaches and frees the blocks that the words point to, with one fence a group. Each in an
  // atomic step of its own; on invalid_argument (a null word, a block or word that stands twice, or
  // what free_from refuses) nothing is done.
  Status free_from(std::span<PtrWord> dests);
  Status free_from(std::span<PtrWord* const> dests);
  Status free_from(std::span<VPtrWord> dests);
  Status free_from(std::span<VPtrWord* const> dests);
  template <class T>
  Status free_from(std::span<Ptr<T>> dests) {
    return free_from(words_of<PtrWord>(dests));
  }
  template <class T>
  Status free_from(std::span<VPtr<T>> dests) {
    return free_from(words_of<VPtrWord>(dests));
  }

  // Two-step allocation: reserve, fill and flush, then publish (makes dest point to it: two fences,
  // the first of which covers what was flushed before) or cancel. With options.zero the bytes asked
  // for are zero and flushed (durable with publish).
  Result<Reserved> reserve(std::uint64_t bytes, const AllocOptions& options = {});
  Status publish(const Reserved& block, PtrWord& dest);
  Status publish(const Reserved& block, VPtrWord& dest);
  Status cancel(const Reserved& block);  // ok | invalid_argument (not reserved, or published)

  // Bytes usable in the allocated block that starts at p; 0 when there is none.
  std::uint64_t usable_size(const void* p) const;

  // The type that the block that starts at p was given; 0 when it has none, or a walk would not
  // show it.
  std::uint64_t type_of(const void* p) const;

  // A walk through all blocks that were allocated with a type, in the order of addresses, however
  // and by whom: the first one, and the first one behind `p`, which may lie anywhere in the pool,
  // so that the block before may have been freed meanwhile. Null at the end. invalid_argument: type
  // 0, or p outside the pool.
  // Other threads may allocate and free. What is allocated during the whole walk is shown once,
  // what only a part of it perhaps, or twice if it moved; nothing that is only reserved, in a
  // transaction that has not committed (durably), or freed. What a transaction frees is shown until
  // it commits, what malloc_to or publish attaches may be from shortly before they return. That a
  // block stays allocated, and when its contents may be read, is the caller's business: allocate by
  // transactions, or publish what was filled, where others walk. No fence.
  Result<void*> first(std::uint64_t type, Report* report = nullptr) const;
  Result<void*> next(const void* p, std::uint64_t type, Report* report = nullptr) const;
  // The same walk: for (Account& a : pool.objects<Account>(kAccount)). Nothing for type 0. The
  // objects gone by may be freed. The pool must neither move nor be closed meanwhile.
  template <class T>
  Objects<T> objects(std::uint64_t type) const {
    return Objects<T>(*this, type);
  }

  // The root object: allocated zero-filled on first use under the name `layout` (at most 55
  // bytes); later calls must use the same layout and size, else invalid_argument.
  Result<void*> root(std::string_view layout, std::uint64_t bytes, Report* report = nullptr);
  template <class T>
  Result<T*> root(std::string_view layout, Report* report = nullptr) {
    static_assert(std::is_trivially_destructible_v<T>);
    Result<void*> r = root(layout, sizeof(T), report);
    if (!r) return r.error();
    return static_cast<T*>(*r);
  }

  // Runs body(Transaction&) -> Status in a transaction: ok commits, anything else (or an
  // exception passing through) rolls back and is handed on. Inside another transaction of this
  // thread on this pool it joins that one. See tenuto/tx.h.
  template <class Body>
  Status run(Body&& body) {
    Transaction tx(*this);
    TENUTO_TRY(tx.status());
    const Status s = body(tx);
    if (s != Status::ok) {
      tx.abort();
      return s;
    }
    return tx.commit();
  }

  // Everything that was acknowledged before, by any thread, is durable when this returns (medium
  // journal; on the others it was). ok | io, or why the pool turned read-only | closed.
  Status sync();

  bool contains(const void* p) const;         // p lies in this pool's mapping
  PoolOffset offset_of(const void* p) const;  // REQUIRES: contains(p)
  void* at(PoolOffset offset) const;          // null for offset 0 or beyond the end

  // ok, or why the pool turned read-only while it was open: corrupt (damage was found) or io, with
  // the place in the report when a page could not be read or written. What was read in place (from
  // objects, views, iterators) is to be believed if this is not io afterwards.
  Status health(Report* report = nullptr) const;

  // Gives everything back that can be given back now: thread caches (of ended threads and of this
  // one), empty slabs, free extents, the bookkeeping log's garbage; and the pages of all that is
  // free in pieces of 4 KiB (extents) and 64 KiB (anything else) to the file system, as holes in
  // the file, where it can have such. Whoever needs that space again asks the file system for it
  // first, so a full disk means Status::full, not a crash. Takes milliseconds and more. Other
  // threads may go on; one that allocates meanwhile may find a pool full, or make it grow, because
  // of 2 MiB that are just being looked after. ok | closed | read_only | io.
  Status trim();

  PoolInfo info() const;
  PoolStats stats() const;
  // Checks frames, slabs, extents, log and lanes against each other. What a store in it does by
  // itself waits meanwhile; that nobody else is in a call is up to the caller.
  Status validate(Report* report = nullptr) const;

 private:
  friend class Store;
  friend class Transaction;
  friend struct StoreImpl;
  explicit Pool(std::unique_ptr<PoolImpl>);
  template <class T>
  static constexpr std::uint64_t aligned_for() {
    return alignof(T) > AllocOptions{}.align ? alignof(T) : AllocOptions{}.align;
  }
  // The words of an array of pointers, which have no other members.
  template <class Word, class Pointer>
  static std::span<Word> words_of(std::span<Pointer> pointers) {
    static_assert(sizeof(Pointer) == sizeof(Word));
    return {pointers.empty() ? nullptr : &pointers.front().word(), pointers.size()};
  }
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
