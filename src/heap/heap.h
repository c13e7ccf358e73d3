// The heap: blocks below 16 KiB from slabs, extents up to 2 MiB from chunks, huge objects from runs
// of huge frames, one interface for all.
//
// A block has a kind. `logged` blocks are allocated and freed durably one by one (malloc_to,
// free_from, transactions): their persistent bit, or their entry in the bookkeeping log, is
// authoritative. `derived` blocks follow from a structure above (the store's leaves name all its
// records): nothing is flushed for them; a clean close writes their bits out, after a crash the
// owner names them again by mark(). See heap/README.md for the protocols.
//
// A `typed` block is a logged one that has a type, a number, by which it is found (typed.cc).
//
// Thread safety: everything but open, recovery and close from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "file/lane.h"
#include "file/pool_file.h"
#include "frame/frames.h"
#include "tenuto/alloc_options.h"
#include "tenuto/pool_options.h"
#include "tenuto/ptr.h"
#include "tenuto/status.h"
#include "tenuto/units.h"
#include "tenuto/vptr.h"

namespace TENUTO_NS::heap {

enum class Kind : std::uint8_t { logged = 0, derived = 1, typed = 2 };
inline constexpr std::size_t kKinds = 3;
// Where a kind is asked for, `logged` also means those with a type.
inline constexpr bool is_logged(Kind k) { return k != Kind::derived; }

struct Block {
  PoolOffset offset;
  std::uint64_t bytes = 0;  // usable
};

// Destinations of a batch: neighbours, or anywhere.
template <class Word>
struct Words {
  Words(std::span<Word> neighbours) : first(neighbours.data()), count(neighbours.size()) {}
  Words(std::span<Word* const> anywhere) : each(anywhere.data()), count(anywhere.size()) {}
  Word& operator[](std::size_t i) const { return each != nullptr ? *each[i] : first[i]; }
  bool scattered() const { return each != nullptr; }

  Word* first = nullptr;
  Word* const* each = nullptr;
  std::size_t count;
};

// Bytes of its blocks: the same for all, or each its own.
struct Sizes {
  Sizes(std::uint64_t all) : same(all) {}
  Sizes(std::span<const std::uint64_t> of_each) : each(of_each) {}
  std::uint64_t operator[](std::size_t i) const { return each.empty() ? same : each[i]; }
  bool fit(std::size_t count) const { return each.empty() || each.size() == count; }

  std::uint64_t same = 0;
  std::span<const std::uint64_t> each;
};

struct HeapStats {
  std::uint64_t allocated_bytes = 0;
  std::uint64_t objects = 0;  // logged blocks in use
  std::uint64_t slabs = 0;
  std::uint64_t morphed_slabs = 0;                 // that still have blocks of an old part
  std::array<std::uint64_t, 10> slabs_by_tenth{};  // of their blocks that are not free
  std::uint64_t extents = 0;
  std::uint64_t reclaimed_bytes = 0;  // free extents, with pages in the file
  std::uint64_t retained_bytes = 0;   // free extents, holes in the file
  std::uint64_t book_bytes = 0;       // segments of the bookkeeping log
  std::uint64_t book_list_bytes = 0;  // of which in its list
  std::uint64_t book_live_entries = 0;
  std::uint64_t book_fast_gcs = 0;  // since open
  std::uint64_t book_slow_gcs = 0;
  std::uint64_t book_segments_given_back = 0;
};

struct Evacuation {
  std::uint64_t slabs = 0;
  bool all = true;  // that are worth it
};

// The usable bytes of the block that reserve(bytes, kind, align) gives, or reserve_typed. too_large
// | invalid_argument.
Result<std::uint64_t> block_bytes(std::uint64_t bytes, std::uint64_t align, bool typed = false);

class Heap {
 public:
  // Attaches (an empty heap is all zeros in the head page): reads the bookkeeping log, finds the
  // slabs, builds their volatile shadows. After a crash follow: replay_intents, the recovery of tx,
  // mark() by the owners of derived blocks, finish_recovery. After a clean close only
  // finish_recovery.
  static Result<std::unique_ptr<Heap>> open(pm::PoolFile& file, frame::Frames& frames,
                                            pm::Lanes& lanes, bool clean,
                                            const HeapOptions& options, Report* report);
  ~Heap();

  // --- use ---------------------------------------------------------------------------------------
  // See Pool::malloc_to and free_from.
  Status malloc_to(std::uint64_t bytes, PtrWord& dest);
  Status malloc_to(std::uint64_t bytes, VPtrWord& dest);
  Status free_from(PtrWord& dest);
  Status free_from(VPtrWord& dest);
  Status swap(VPtrWord& a, VPtrWord& b);
  Status malloc_to(const Sizes& bytes, const Words<PtrWord>& dests,
                   const AllocOptions& options = {});
  Status malloc_to(const Sizes& bytes, const Words<VPtrWord>& dests,
                   const AllocOptions& options = {});
  Status free_from(const Words<PtrWord>& dests);
  Status free_from(const Words<VPtrWord>& dests);

  // A block that only this process knows of; a crash frees it. Aligned to `align`, a power of two
  // up to kHugeBytes; besides, 64-byte aligned when bytes is a multiple of 64. full | too_large |
  // invalid_argument. No flush, no fence, no lock when the thread's cache has one.
  Result<Block> reserve(std::uint64_t bytes, Kind kind, std::uint64_t align = 16);
  // The same for a logged block with a type, which is not 0.
  Result<Block> reserve_typed(std::uint64_t bytes, std::uint64_t type, std::uint64_t align = 16);
  // Makes what the calling thread needs to reserve and release; the only one of its calls to
  // release that may throw.
  void prepare_thread();
  // Reserve's inverse, and the last step of every free: the block may be handed out again at
  // once. REQUIRES: reserved by reserve(), or a derived block that nothing durable names any
  // more, or a logged one after mark_free and a fence.
  void release(PoolOffset block);
  // Makes dest point to a reserved logged block: the second half of malloc_to.
  Status publish(const Block& block, PtrWord& dest);
  Status publish(const Block& block, VPtrWord& dest);
  // The same for a block with a type whose contents are nobody's yet: one fence, as malloc_to.
  Status publish_typed(const Block& block, VPtrWord& dest);

  // --- by type (typed.cc) ------------------------------------------------------------------------
  // Of the block that starts there, if find_typed would show it; else 0.
  std::uint64_t type_of(PoolOffset block) const;
  // The first block of the type that starts at `from` or behind it; null when there is none. See
  // Pool::first.
  PoolOffset find_typed(PoolOffset from, std::uint64_t type) const;

  // See Pool::trim.
  void trim();
  // The free blocks in the calling thread's cache become everybody's. No flush, no fence.
  void empty_cache();

  // --- evacuation (evacuate.cc) ------------------------------------------------------------------
  // Chooses slabs of derived blocks of which less than `occupancy` is in use and which together
  // become fewer, emptiest first, with about `blocks_max` blocks (0: any number): nothing is handed
  // out from them, and each goes when its last block is released. Not those
  // with a block of `fixed`, which the owner cannot move. One evacuation at a time.
  Evacuation begin_evacuation(double occupancy, std::uint64_t blocks_max,
                              std::span<const PoolOffset> fixed);
  // The block, which the caller holds, stands in one of them. Cost: two loads.
  bool leaving(PoolOffset block) const;
  std::uint64_t slabs_leaving() const;
  // Those that are not empty stay; returns how many. Somebody who finds the pool full ends it, too.
  std::uint64_t end_evacuation();

  // --- for transactions --------------------------------------------------------------------------
  // The allocated logged block that starts here; nothing else (interior, free, derived) is found.
  Result<Block> find_allocated(PoolOffset block) const;
  // Claims an allocated logged block for being freed: true once, until unclaim or release.
  bool claim_free(PoolOffset block);
  void unclaim_free(PoolOffset block);
  // Sets / clears the block's persistent bit or appends to the bookkeeping log, and returns the
  // word, which the caller flushes. mark_allocated: REQUIRES reserved. mark_free: REQUIRES claimed;
  // the block stays out of use until release().
  [[nodiscard]] const std::uint64_t& mark_allocated(PoolOffset block);
  [[nodiscard]] const std::uint64_t& mark_free(PoolOffset block);
  // Once the transaction is durable: others find the block if it has a type. Else nothing.
  void confirm_allocated(PoolOffset block);

  // 64-KiB frames for logs of the layers above, which must name them again by own_frames in every
  // recovery (between open and finish_recovery). Contents undefined. Not fenced.
  Result<PoolOffset> take_log_frame();
  void put_log_frame(PoolOffset frame);
  Status own_log_frame(PoolOffset frame, Report* report);

  // --- recovery ----------------------------------------------------------------------------------
  // Finishes or undoes the mallocs and frees that were under way. Idempotent.
  Status replay_intents(Report* report);
  // The logged block that a log names is free. Idempotent. corrupt when no block can start there.
  Status recover_free(PoolOffset block, Report* report);
  // The block (start offset) of kind derived is reachable. Thread-safe. corrupt when no derived
  // block starts there, or it was marked before (reachable twice).
  Status mark(PoolOffset block, Report* report);
  // Frees what nothing owns, gives frames back, fills the free lists. *leaked_frames: frames. After
  // a crash all that recovery wrote is durable when it returns.
  Status finish_recovery(std::uint64_t* leaked_frames, Report* report);

  // Empties caches and limbo and writes the bits of derived slabs, so that the pool may be marked
  // clean; durable with the fence of Frames::close, which follows. Reserved logged blocks are
  // freed. Quiescent: what threads that live on did happened before. Nothing but the destructor may
  // be called afterwards.
  Status close();

  // --- introspection -----------------------------------------------------------------------------
  std::uint64_t usable_size(PoolOffset block) const;  // 0: no allocated block starts there
  // The derived or logged block that starts there, allocated or reserved, and not being freed. A
  // derived one may also lie in a cache: call for_each before, which empties them.
  Result<Block> find_taken(PoolOffset block, Kind kind) const;
  // Calls f(offset, bytes) for every block of a kind that is allocated or reserved, after emptying
  // the caches. Quiescent.
  void for_each(Kind kind, const std::function<void(PoolOffset, std::uint64_t)>& f);
  HeapStats stats() const;
  Status validate(Report* report);

 private:
  Heap();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace TENUTO_NS::heap
