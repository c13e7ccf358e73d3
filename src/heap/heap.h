// The heap: one interface for small blocks (below 16 KiB, from slabs), extents (up to 2 MiB, from
// chunks) and huge objects (runs of huge frames). The protocols are in heap/README.md.
//
// A block has a kind.
//   logged    allocated and freed durably one by one: malloc_to, free_from, transactions. Its
//             persistent bit, or its entry in the bookkeeping log, is authoritative.
//   derived   follows from a structure above: the store's leaves name all its records. Nothing is
//             flushed for it. A clean close writes the bits; after a crash the owner calls mark().
//   typed     a logged block with a type, a number by which it is found (typed.cc).
//   record    a derived block to which nothing is stored while anything durable names it. On medium
//             journal it is in shared pages, if the pool has zones for it (deferred.h). Elsewhere
//             it is a derived block.
//
// Thread safety: any thread may call everything except open, recovery and close.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "file/lane.h"
#include "file/pool_file.h"
#include "frame/frames.h"
#include "tenuto/alloc_options.h"
#include "tenuto/garbage.h"
#include "tenuto/pool_options.h"
#include "tenuto/status.h"
#include "tenuto/units.h"
#include "tenuto/words.h"

namespace TENUTO_NS::heap {

enum class Kind : std::uint8_t { logged = 0, derived = 1, typed = 2, record = 3 };
inline constexpr std::size_t kKinds = 4;
inline constexpr std::size_t kKindsOnMedia = 3;  // records are derived there; their zone tells
// Where a kind selects blocks, `logged` includes typed ones, and `derived` records.
inline constexpr bool is_logged(Kind k) { return k == Kind::logged || k == Kind::typed; }
inline constexpr bool is_derived(Kind k) { return !is_logged(k); }

inline constexpr std::uint64_t kAnyType = 0;  // of Heap::find_typed; no block has it

struct Block {
  PoolOffset offset;
  std::uint64_t bytes = 0;  // usable bytes
};

struct HeapStats {
  // See PoolStats.
  std::uint64_t allocated_bytes = 0;
  std::uint64_t cached_bytes = 0;
  std::uint64_t objects = 0;  // logged blocks in use
  std::uint64_t slabs = 0;
  std::uint64_t morphed_slabs = 0;                 // that still have blocks of an old part
  std::array<std::uint64_t, 10> slabs_by_tenth{};  // by the part of their blocks that is not free
  std::uint64_t extents = 0;
  std::uint64_t reclaimed_bytes = 0;  // free extents, with pages in the file
  std::uint64_t retained_bytes = 0;   // free extents, holes in the file
  std::uint64_t book_bytes = 0;       // segments of the bookkeeping log
  std::uint64_t book_list_bytes = 0;  // of these, in its list
  std::uint64_t book_live_entries = 0;
  std::uint64_t book_fast_gcs = 0;  // since open
  std::uint64_t book_slow_gcs = 0;
  std::uint64_t book_segments_given_back = 0;
  std::uint64_t wear_frames = 0;
  std::uint64_t wear_lines = 0;
  std::uint64_t wear_max = 0;
  std::uint64_t wear_bits_lines = 0;
  std::uint64_t wear_bits_max = 0;
  std::uint64_t wear_rested = 0;
  std::uint64_t wear_forced = 0;
  std::uint64_t wear_tables = 0;
};

// An occupancy: also full slabs, whatever that gives back.
inline constexpr double kEvacuateAll = 2;
enum class Evacuees : std::uint8_t { derived, typed };
struct Evacuation {
  std::uint64_t slabs = 0;
  bool all = true;  // false: blocks_max left out some that are worth it
};

// The usable bytes of the block that reserve or reserve_typed gives for these arguments. too_large
// | invalid_argument.
Result<std::uint64_t> block_bytes(std::uint64_t bytes, std::uint64_t align, bool typed = false);

class BlockMarks;
class Readings;
struct Place;

// The derived blocks of a layer above, in parts. `blocks` appends those of a part; any thread, and
// perhaps several times. corrupt: see its report. Throws bad_alloc. It outlives what it was made
// from, and names the blocks that were in use at the open, whatever was erased since.
class Marks {
 public:
  virtual ~Marks() = default;
  virtual std::size_t parts() const = 0;
  virtual Status blocks(std::size_t part, std::vector<PoolOffset>& out, Report* report) const = 0;

 protected:
  Marks() = default;
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;
};

class Heap {
 public:
  // Attaches: reads the bookkeeping log, finds the slabs and builds their shadows. An empty heap is
  // all zeros in the head page. After a crash the caller calls replay_intents, then the recovery of
  // tx, then mark() or mark_later() for all derived blocks, then finish_recovery. After a clean
  // close it calls only finish_recovery, and the slabs are read by the first call that needs them
  // (Access). `threads` (0: one a core) read the headers of slabs and mark, if these are many.
  static Result<std::unique_ptr<Heap>> open(pm::PoolFile& file, frame::Frames& frames,
                                            pm::Lanes& lanes, bool clean, unsigned threads,
                                            const HeapOptions& options, Report* report);
  ~Heap();

  // --- use ---------------------------------------------------------------------------------------
  // See Pool::malloc_to and free_from.
  template <PointerWord W>
  Status malloc_to(std::uint64_t bytes, W& dest);
  template <PointerWord W>
  Status free_from(W& dest);
  Status swap(VPtrWord& a, VPtrWord& b);
  template <Destinations D>
  Status malloc_to(const Sizes& bytes, const D& dests, const AllocOptions& options = {}) {
    return malloc_many(bytes, Words(dests), options);
  }
  template <Destinations D>
  Status free_from(const D& dests) {
    return free_many(Words(dests));
  }

  // Takes a block that only this process knows; a crash frees it. It is aligned to `align`, a power
  // of two up to kHugeBytes. It is also 64-byte aligned when bytes is a multiple of 64. full |
  // too_large | invalid_argument. No flush, no fence and no lock when the thread's cache has a
  // block.
  Result<Block> reserve(std::uint64_t bytes, Kind kind, std::uint64_t align = 16);
  // The same for a logged block with a type. REQUIRES: type != 0.
  Result<Block> reserve_typed(std::uint64_t bytes, std::uint64_t type, std::uint64_t align = 16);
  // Allocates what the calling thread needs for reserve and release. May throw. After it the
  // thread's calls of release do not throw.
  void prepare_thread();
  // A close comes: from now on the pool grows once more at most, by a 32nd, for a block; else full.
  void grow_little();
  // The inverse of reserve, and the last step of every free: the block may be handed out again at
  // once. REQUIRES: the block was reserved; or it is derived and nothing durable names it any more;
  // or it is logged, mark_free was called and a fence followed.
  void release(PoolOffset block);
  // The same for derived blocks that an open frees, once the slabs are read. `unname` makes that
  // nothing durable names them. Throws bad_alloc before it calls that.
  void release_when_read(std::span<const PoolOffset> blocks, const std::function<void()>& unname);
  // Gives a reserved block back. invalid_argument: it is not reserved. corrupt: see check_canary.
  Status cancel(PoolOffset block);
  // Makes dest point to a reserved logged block: the second half of malloc_to.
  template <PointerWord W>
  Status publish(const Block& block, W& dest);
  // The same for a typed block whose contents are still undefined: one fence, as malloc_to.
  Status publish_typed(const Block& block, VPtrWord& dest);

  // --- by type (typed.cc) ------------------------------------------------------------------------
  // The type of the block that starts there, if find_typed would show the block; else 0.
  std::uint64_t type_of(PoolOffset block) const;
  // The same for a block that may be reserved, or of an open transaction.
  std::uint64_t type_of_taken(PoolOffset block) const;
  // The first block of the type that starts at or behind `from`; null when there is none. See
  // Pool::first. kAnyType: the first one that has a type.
  PoolOffset find_typed(PoolOffset from, std::uint64_t type) const;

  // --- by pointers (reach.cc) --------------------------------------------------------------------
  struct Reached {
    std::uint64_t blocks = 0;
    std::uint64_t bytes = 0;
  };
  // What leads to the blocks of some slabs, for who moves blocks.
  struct Links {
    const BlockMarks& sparse;  // of find_sparse: the others are not asked for
    BlockMarks& fixed;         // gets the blocks that something leads to that nobody can change
    bool all_fixed = false;
    struct Link {
      PoolOffset word;  // a PtrWord
      PoolOffset block;
    };
    std::vector<Link> words = {};  // all others that lead to blocks, in no order; some twice
  };
  // Marks the allocated and reserved logged blocks that contain `from`, and all that their pointers
  // lead to (tenuto/garbage.h). What was read already is not read again. `reached` counts those
  // that got a mark. Quiescent. Throws bad_alloc.
  void reach(std::span<const PoolOffset> from, const GarbageOptions& options, Readings& readings,
             Reached& reached, Links* links = nullptr);

  // --- Consistency::gc (gc.cc)
  // What the calling thread allocated and freed is durable on return. Other variants: nothing.
  void fence_thread();
  // After a crash: the logged blocks that `root` leads to are allocated, and no others; call it
  // between mark() and finish_recovery. root 0: there is no root object. corrupt: no block is
  // there.
  Status collect(PoolOffset root, const GarbageOptions& options, Reached& reached, Report* report);

  // From now on a thread asks for large pages, until close or the destructor (large_pages.h). Any
  // thread, once; throws nothing.
  void start_large_pages();

  // See Pool::trim.
  void trim();
  // Gives the free blocks of the calling thread's cache to all threads. No flush, no fence.
  void empty_cache();
  // The same for the caches of all threads. Quiescent.
  void empty_all_caches();

  // --- evacuation (evacuate.cc) ------------------------------------------------------------------
  // Chooses sparse slabs of the blocks that `who` tells: less than `occupancy` of each is in use.
  // It takes the emptiest first, as long as their blocks will need fewer slabs, and about
  // `blocks_max` blocks in all (0: any number). It skips slabs with a block of `fixed`, which the
  // owner cannot move. Nothing is handed out from the chosen slabs. Each loses its frame when its
  // last block is released. One evacuation at a time.
  Evacuation begin_evacuation(double occupancy, std::uint64_t blocks_max,
                              std::span<const PoolOffset> fixed, Evacuees who = Evacuees::derived);
  // Marks the slabs of typed blocks that the same occupancy would choose from.
  void find_sparse(double occupancy, BlockMarks& slabs);
  static PoolOffset slab_at(PoolOffset block);  // where it begins. REQUIRES: it is in one
  // Whether the block is in a chosen slab. REQUIRES: the caller holds the block. Cost: two loads.
  bool leaving(PoolOffset block) const;
  std::uint64_t slabs_leaving() const;
  // Slabs that are not empty stay; returns how many. A thread that finds the pool full ends it,
  // too.
  std::uint64_t end_evacuation();

  // --- for transactions --------------------------------------------------------------------------
  // The allocated logged block that starts here; nothing else (interior, free, derived) is found.
  Result<Block> find_allocated(PoolOffset block) const;
  // Claims an allocated logged block for a free. True once, until unclaim or release.
  bool claim_free(PoolOffset block);
  void unclaim_free(PoolOffset block);
  // Set or clear the block's persistent bit, or append to the bookkeeping log. Return the word,
  // which the caller flushes. mark_allocated REQUIRES: reserved. mark_free REQUIRES: claimed; the
  // block stays out of use until release().
  [[nodiscard]] const std::uint64_t& mark_allocated(PoolOffset block);
  [[nodiscard]] const std::uint64_t& mark_free(PoolOffset block);
  // Once the transaction is durable: a typed block is found from now on. No effect on others.
  void confirm_allocated(PoolOffset block);

  // 64-KiB frames for the logs of layers above. In every recovery these layers name their frames
  // again by own_log_frame, between open and finish_recovery. Contents are undefined. Not fenced.
  Result<PoolOffset> take_log_frame();
  void put_log_frame(PoolOffset frame);
  Status own_log_frame(PoolOffset frame, Report* report);

  // --- recovery ----------------------------------------------------------------------------------
  // Finishes or undoes the mallocs and frees that the crash interrupted. Idempotent.
  Status replay_intents(Report* report);
  // Frees the logged block that a log names. Idempotent. corrupt when no block can start there.
  Status recover_free(PoolOffset block, Report* report);
  // The derived blocks that start there are reachable. Thread-safe, and cheap for many blocks at a
  // time. corrupt when no derived block starts there, or when it was marked before (reachable
  // twice); then some of the others may be unmarked. Throws bad_alloc.
  Status mark(std::span<const PoolOffset> blocks, Report* report);
  Status mark(PoolOffset block, Report* report) { return mark({&block, 1}, report); }
  // The same, once a call needs the heap. That call finds what is corrupt.
  void mark_later(std::unique_ptr<const Marks> marks);
  // Frees what has no owner, gives frames back and fills the free lists. After mark_later, the
  // first call that needs the heap does. What it writes is durable when that call goes on.
  Status finish_recovery(Report* report);
  // The frames that recovery gave back: they had no owner. After a crash it needs the heap.
  std::uint64_t leaked_frames() const;

  // Whether no call has needed the slabs since a clean open.
  bool unread() const;
  // Needs the heap. corrupt, io: what the open left could not be done, so nobody knows which blocks
  // are in use; the report says why.
  Status was_read(Report* report) const;
  // The blocks of release_when_read are named again, all of them: they stay. False: they are not so
  // many, or some call has needed the slabs, and nothing has changed. Quiescent.
  bool keep_released(std::size_t blocks);
  // Empties caches and limbo and writes the bits of derived slabs, so that the pool may be marked
  // clean. Durable with the fence of Frames::close, which follows. Frees logged blocks that are
  // only reserved. Quiescent: all earlier calls of threads that still run happened before.
  // Afterwards only the destructor may be called. unread(), with no block to release: there is
  // nothing to write.
  Status close();

  // --- overwritten memory (guard.h) --------------------------------------------------------------
  // Compares the headers, and in a quiescent pool without open transactions the bits, with DRAM.
  // False: something was overwritten; it was restored and flushed, and the pool is read-only.
  bool guard(bool quiescent);
  // ok, or corrupt: the block was overwritten behind its end, and the pool is read-only now. Cost
  // without canaries: one load. REQUIRES: `block` is from find_allocated or find_taken.
  Status check_canary(const Block& block);
  // What the user may use of a logged block, whose `bytes` include the canary.
  std::uint64_t usable(const Block& block) const;
  // As block_bytes above, for this pool: without the canary.
  Result<std::uint64_t> usable_bytes(std::uint64_t bytes, std::uint64_t align, bool typed) const;

  // --- introspection -----------------------------------------------------------------------------
  std::uint64_t usable_size(PoolOffset block) const;  // 0: no allocated block starts there
  Place look(PoolOffset o) const;                     // what is there (place.h). Any thread
  // The block of the kind that starts there and is allocated or reserved, but not being freed. A
  // derived one may also be in a cache: call for_each first, which empties the caches.
  Result<Block> find_taken(PoolOffset block, Kind kind) const;
  // Empties the caches, then calls f(offset, bytes) for every allocated or reserved block of the
  // kind. Quiescent.
  void for_each(Kind kind, const std::function<void(PoolOffset, std::uint64_t)>& f);
  HeapStats stats() const;
  NumaStats numa_stats() const;
  // The object with the counts of wear levelling, which is the heap's own; null: there is none.
  PoolOffset wear_table() const;
  Status validate(Report* report);

 private:
  Heap();
  template <PointerWord W>
  Status malloc_many(const Sizes& bytes, const Words<W>& dests, const AllocOptions& options);
  template <PointerWord W>
  Status free_many(const Words<W>& dests);
  void reach_after_crash(std::span<const PoolOffset> from, const GarbageOptions& options,
                         Readings& readings, Reached& reached);
  void trace(std::span<const PoolOffset> from, const GarbageOptions& options, bool after_crash,
             Readings& readings, Reached& reached, Links* links);
  struct State;
  // **A clean open leaves the slabs unread, and one after a crash the derived blocks unmarked.**
  // Every way to the state but as_opened() makes good for it first, so no call can meet a heap
  // without slabs. Any number of threads may come at once: one works, the others wait. Damage turns
  // the pool read-only. A failed allocation throws bad_alloc, and the next call goes on. Cost
  // later: one load.
  class Access {
   public:
    State* operator->() const { return &**this; }
    State& operator*() const {
      if (!read_.load(std::memory_order_acquire)) [[unlikely]]
        read();
      return *state_;
    }
    // For what needs no slab.
    State& as_opened() const { return *state_; }
    bool has_read() const { return read_.load(std::memory_order_acquire); }

   private:
    friend class Heap;
    void read() const;
    std::unique_ptr<State> state_;
    mutable std::atomic<bool> read_{true};
  };
  Access state_;
};

}  // namespace TENUTO_NS::heap
