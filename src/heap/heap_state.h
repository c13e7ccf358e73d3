// The state of a Heap, shared by the files that implement it: heap.cc (blocks), malloc.cc
// and one.cc (malloc_to, free_from) on intent.cc, replay.cc, recover.cc (opening, closing,
// validation).
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "heap/arena.h"
#include "heap/extent.h"
#include "heap/frame_source.h"
#include "heap/guard.h"
#include "heap/heap.h"
#include "heap/lane_heap.h"
#include "heap/numa.h"
#include "heap/page_table.h"
#include "heap/place.h"
#include "heap/wear.h"

namespace TENUTO_NS::heap {

inline constexpr std::size_t kLanesMax = pm::kLaneSegmentsMax * pm::kLanesPerSegment;

struct Heap::State {
  State(pm::PoolFile& f, frame::Frames& fr, pm::Lanes& l, const HeapOptions& o);

  const HeapOptions options;
  const bool gc;                      // Consistency::gc (gc.cc)
  const bool internal;                // Consistency::internal (internal.cc)
  const std::uint64_t canary_bytes;   // at the end of each logged block; 0: none (guard.h)
  const std::uint64_t cached_end;     // requests below it may be served by take_cached
  const bool frees_with_intent_only;  // neither gc nor internal nor canaries
  // Medium cache: a crash keeps a prefix of each thread's stores, flushed or not (malloc.cc).
  const bool stores_persist;
  pm::PoolFile& file;
  pm::Lanes& lanes;
  Numa numa;
  PageTable pages;
  FrameSource frames;
  std::unique_ptr<Wear> wear;  // null without wear levelling (wear.h)
  std::unique_ptr<FreshFrames> fresh_frames;
  Extents extents;
  std::vector<std::unique_ptr<Arena>> arenas;
  DeferredFrees deferred;
  RemoteFrees remote;
  std::atomic<std::uint64_t> deferred_bytes = 0;         // of blocks, also in lanes' batches
  std::unique_ptr<std::atomic<LaneHeap*>[]> lane_heaps;  // by lane id
  std::atomic<std::size_t> lane_heaps_end = 0;           // no id >= this has one
  std::mutex lane_heaps_mu;
  std::vector<std::unique_ptr<LaneHeap>> lane_heaps_owned;
  bool clean = true;  // the pool was closed cleanly before this open
  // What an open left (Heap::Access). Its thread's alone until it says that the slabs are read.
  unsigned read_threads = 1;
  bool slabs_damaged = false;
  std::uint64_t leaked_frames = 0;
  std::mutex read_mu;
  // The rest is guarded by read_mu.
  std::vector<PoolOffset> released_unread;
  struct PartToMark {
    const Marks* marks;
    std::size_t part;
    bool done = false;
  };
  std::vector<std::unique_ptr<const Marks>> marks_later;
  std::vector<PartToMark> to_mark;   // of these
  Status marks_failed = Status::ok;  // what the first damaged part had, for good
  Report marks_report;
  bool extents_built = false;
  bool slabs_finished = false;
  std::vector<PoolOffset> no_slabs;  // taken frames where find_slabs found none
  std::mutex log_frames_mu;
  std::vector<PoolOffset> log_frames;           // from own_log_frame
  std::atomic<std::uint64_t> evacuations = 0;   // begun; a lane that saw fewer empties its caches
  std::atomic<std::uint64_t> slabs_stayed = 0;  // in the present evacuation
  // Of the slabs in turn: whose marks one thread stores at a time (Heap::mark).
  static constexpr std::size_t kMarkParts = 64;
  std::array<std::mutex, kMarkParts> mark_mu;

  // --- heap.cc
  LaneHeap& mine() { return lane_heap(lanes.mine()); }
  LaneHeap& lane_heap(pm::Lane& lane) {
    if (LaneHeap* h = lane_heaps[lane.id.value].load(std::memory_order_acquire)) [[likely]]
      return *h;
    return make_lane_heap(lane);
  }
  LaneHeap& make_lane_heap(pm::Lane& lane);
  // `near`: the bit of the block should share a line with the bit of the last one.
  Result<Block> reserve(LaneHeap& h, std::uint64_t bytes, Kind kind, std::uint64_t align = 16,
                        bool near = false);
  // A logged block from the lane's cache, without alignment. A null offset: reserve() finds one.
  Block take_cached(LaneHeap& h, std::uint64_t bytes, bool near) const;
  Result<PoolOffset> refill(LaneHeap& h, ClassCache& cache, ClassId class_id, Kind kind);
  Result<PoolOffset> take_elsewhere(const LaneHeap& h, ClassId class_id, Kind kind);
  Result<Block> reserve_in(LaneHeap& h, std::uint64_t bytes, Kind kind, std::uint64_t align,
                           bool near);
  Result<Block> reserve_extent(LaneHeap& h, std::uint64_t bytes, Kind kind, std::uint64_t align);
  // --- heap_wear.cc
  void begin_wear(frame::Frames& of);  // once, before use
  // REQUIRES for these: there is wear levelling.
  // Instead of the lane's cache, and of the free extents. False: it is free at once.
  bool rest(unsigned core, PoolOffset block, const SlabBlock& b);
  // NUMA: false also for a block that is recorded for its node. It rests there.
  bool give_to_rest(LaneHeap& h, PoolOffset block, const SlabBlock& b);
  // Ends the rest of what rested long enough, of the lane's core and of another one of its node.
  void end_rests(LaneHeap& h);
  void end_due_rests(LaneHeap& h, unsigned core);
  void end_all_due_rests(LaneHeap& h);
  // For a full pool: ends that of what rests longest, on all cores. False: nothing rests.
  bool force_rests(LaneHeap& h);
  void end_all_rests();  // for a close
  void end_rest(const Resting* r, std::size_t n, LaneHeap& h);
  void give_unused(std::span<PoolOffset> blocks, LaneHeap& h);  // also without
  // wear_table.cc
  void write_wear_table(unsigned core);
  void read_wear_tables();
  PoolOffset next_wear_table(PoolOffset from) const;
  bool is_wear_table(PoolOffset o, std::uint64_t bytes) const;
  std::optional<WearCounts> wear_table_at(PoolOffset o) const;  // REQUIRES: is_wear_table
  void put_wear_table(unsigned core);
  void drop_wear_table(unsigned core, PoolOffset o, bool rests);
  void add_wear(HeapStats& s, PoolOffset table) const;

  // --- deferred frees of records (deferred.h)
  void defer(LaneHeap& h, const SlabBlock& b, PoolOffset block);
  void hand_over(LaneHeap& h);
  void give_deferred(DeferredBatch& batch, LaneHeap& by);
  // Frees what is durable: up to `batches`.
  void free_durable(LaneHeap& h, unsigned batches);
  // Syncs, and frees all but the batches of lanes that other threads use.
  void free_deferred(LaneHeap& h);
  // The same, and of all lanes. REQUIRES: quiescent.
  Status free_all_deferred();
  // To the lane's cache, or to the slab when the cache is full. Extents become free extents.
  void give_back(LaneHeap& h, PoolOffset block);
  void give_back(LaneHeap& h, PoolOffset block, const SlabBlock& b);
  bool give_to_cache(LaneHeap& h, PoolOffset block, const SlabBlock& b) const;
  void give_back_slowly(LaneHeap& h, PoolOffset block, const SlabBlock& b);
  // Of a block whose free nothing waits for (medium cache).
  void give_back_at_once(LaneHeap& h, PoolOffset block, const SlabBlock& b);
  // The same for a logged block that was reserved and never published.
  void put_back(LaneHeap& h, PoolOffset block);
  void give_to_slabs(std::span<PoolOffset> blocks, LaneHeap& h);
  // Lists of a lane's cache. To go round the stripes serves bits that each call flushes.
  unsigned cache_stripes(Kind kind, unsigned stripes) const {
    const bool flushed = is_logged(kind) && !gc && !stores_persist;
    return flushed ? stripes : 1;
  }
  void spill(LaneHeap& h, ClassCache& cache, bool all);
  void empty_caches(LaneHeap& h);
  std::uint64_t cached_bytes(Kind kind) const;
  // Empties the lane's caches of blocks that move, if an evacuation has begun since the last call.
  void make_way(LaneHeap& h) {
    if (h.evacuations != evacuations.load(std::memory_order_acquire)) [[unlikely]]
      empty_moving_caches(h);
  }
  void empty_moving_caches(LaneHeap& h);
  bool abandon_evacuation();
  // Gives everything that idle lanes and this lane do not need back to slabs and frames.
  void scavenge(LaneHeap& h);
  // Of a morphed slab: the old part if a held block of it starts there, else the new part.
  template <class F>
  SlabBlock find_slab_block(PoolOffset o, const F& index_in) const;
  SlabBlock slab_block(PoolOffset o) const;
  // The same for a block that the heap handed out, or holds.
  SlabBlock slab_block_of(PoolOffset block) const;
  static SlabBlock old_block(Slab& slab, const OldPart& old, PoolOffset o);
  Result<Block> find_allocated(PoolOffset block, const SlabBlock& b) const;
  bool claim(PoolOffset block, const SlabBlock& b) {
    if (!b) [[unlikely]]
      return extents.claim(block);
    return is_logged(b.slab->kind) && b.index != kNoBlock && b.slab->clear_live(b.index);
  }
  void unclaim(PoolOffset block);

  // --- numa.cc
  void use_nodes();
  void join_node(LaneHeap& h, unsigned node);
  void look_where(LaneHeap& h);
  // REQUIRES: h.numa.
  void look_where_now_and_then(LaneHeap& h) {
    constexpr unsigned kLooksBetween = 64;  // times that a thread needed blocks, or freed far ones
    LaneNuma& n = *h.numa;
    if (n.holders != h.lane->holders || ++n.looks % kLooksBetween == 0) look_where(h);
  }

  // --- remote.cc, remote_free.cc
  // Lines of an arena that a give of one block touches: its lock, the slab's counters, a word of
  // free bits. More blocks of the slab touch more words.
  static constexpr unsigned kLinesOfGive = 3;
  struct Direct;
  void give_remote(LaneHeap& h, PoolOffset block, const SlabBlock& b);
  void hand_over(LaneHeap& h, RemoteBatch* batch);
  void take_batch(LaneHeap& h, RemoteBatch& batch);
  void take_inbox(LaneHeap& h);
  void take_inboxes(LaneHeap& by);
  void flush_recorded(LaneHeap& of, LaneHeap& by);
  void flush_plain(LaneHeap& h);
  void collect_recorded(LaneHeap& h);
  void collect_all_recorded();
  void end_recording();
  RemoteBatch* make_logged_batch(LaneHeap& h);
  RemoteBatch* logged_batch(LaneHeap& h, unsigned node, RemoteBatch*& full);
  std::optional<Status> free_remote(PtrWord& dest);
  void clear_recorded(LaneHeap& h, RemoteBatch& batch);
  struct Waiting {
    std::uint64_t held_bytes = 0;
    std::uint64_t held_blocks = 0;
    std::uint64_t derived_bytes = 0;
  };
  Waiting recorded_waiting() const;
  template <class F>
  void for_each_lane_numa(const F& f) const {
    const std::size_t end = lane_heaps_end.load(std::memory_order_acquire);
    for (std::size_t id = 0; numa.on() && id < end; ++id) {
      const LaneHeap* h = lane_heaps[id].load(std::memory_order_acquire);
      if (h != nullptr) f(*h->numa);
    }
  }

  // --- intent.cc
  // The lane's fence. It flushes the lane's dirty lines first.
  void fence_lane(LaneHeap& h, const char* first, const char* then);
  void end_retired(LaneHeap& h);
  // Writes intents for as many elements as fit in a group of lines, at least one. Returns how many.
  std::size_t write_intents(LaneHeap& h, IntentOp op, const IntentElement* e, std::size_t n);
  void begin_intents(LaneHeap& h);
  // All that the lane's intents are about is stored.
  void end_intents(LaneHeap& h);
  void drain_limbo(LaneHeap& h);
  void flush_effects(const LaneHeap& h, std::uint64_t upto);
  void retire_intents_naming(LaneHeap& h, PoolOffset dest);
  // Takes a logged block whose free is durable and retired. The block is reused when no lane can
  // still write into it.
  void retire(LaneHeap& h, PoolOffset block);
  bool any_pending_near(const std::vector<PoolOffset>& blocks) const;
  void empty_quarantine(LaneHeap& h);
  std::uint64_t block_bytes(PoolOffset block) const;

  // --- malloc.cc, one.cc, word_kind.h; Word is PtrWord or VPtrWord
  template <class Word>
  bool is_word(const Word& dest) const;
  template <class Word>
  const std::uint64_t& store_word(const IntentElement& e, bool attach) const;
  template <class Word>
  void store_words(LaneHeap& h, const IntentElement* e, std::size_t n, bool attach);
  template <bool kOn>
  const std::uint64_t& store_bit(const LaneHeap& h, const IntentElement& e, bool reserved = false);
  void store_bits(LaneHeap& h, const IntentElement* e, std::size_t n, bool on);
  template <class Word>
  void guard_versions(LaneHeap& h, const IntentElement* e, std::size_t n);
  template <IntentOp kOp>
  void write_intent(LaneHeap& h, const IntentElement& e, std::uint64_t type);
  void count_one(LaneHeap& h, const IntentElement& e);
  template <class Word>
  void attach_one(LaneHeap& h, const IntentElement& e, bool reserved, std::uint64_t type);
  template <class Word>
  void attach_at_once(LaneHeap& h, const IntentElement& e, bool reserved, std::uint64_t type);
  template <class Word>
  void attach(LaneHeap& h, const IntentElement* e, std::size_t n);
  bool holds(const IntentElement& e) const;
  template <class Word>
  Status detach_one(LaneHeap& h, const IntentElement& e);
  template <class Word>
  Status detach_at_once(LaneHeap& h, const IntentElement& e);
  template <class Word>
  void detach(LaneHeap& h, const IntentElement* e, std::size_t n);
  Status forget_intent(LaneHeap& h);
  template <class Word>
  Status malloc_one(std::uint64_t bytes, Word& dest);
  template <class Word>
  IntentElement find_from(const Word& dest) const;
  template <class Word>
  Status free_one(Word& dest);
  // `unfilled`: a typed block whose contents are undefined still.
  template <class Word>
  Status publish_one(const Heap& heap, const Block& block, Word& dest, bool unfilled);
  template <class Word>
  Status malloc_many(const Sizes& bytes, const Words<Word>& dests, const AllocOptions& wanted);
  template <class Word>
  Status free_many(const Words<Word>& dests);
  struct TakenBatch;
  bool repeats(LaneHeap& h) const;
  IntentElement element(const void* dest, const Block& block, std::uint32_t version) const;

  // --- typed.cc
  std::uint64_t* type_word(PoolOffset block) const;
  void flush_type(PoolOffset block) const;
  void forget_type(PoolOffset block) const;
  void prepare_batch(LaneHeap& h, std::uint64_t type, bool versioned);
  const std::uint64_t& mark_typed(const LaneHeap& h, PoolOffset block);
  PoolOffset find_in_slab(PoolOffset from, std::uint64_t type) const;

  // --- gc.cc
  template <class Word>
  void attach_gc(LaneHeap& h, const IntentElement& e);
  template <class Word>
  void detach_gc(LaneHeap& h, const IntentElement& e);
  void note_unfenced(LaneHeap& h, const std::uint64_t& word, PoolOffset freed, const SlabBlock& at);
  void fence_words(LaneHeap& h);

  // --- internal.cc
  template <class Word>
  void attach_internal(LaneHeap& h, const IntentElement* e, std::size_t n);
  template <class Word>
  void detach_internal(LaneHeap& h, const IntentElement* e, std::size_t n);

  // --- guard.cc, place.cc
  Status check_canary(PoolOffset block, std::uint64_t bytes);
  void write_canary_of_extent(const Block& block) const;
  Overflow overflow_at(PoolOffset block, std::uint64_t bytes) const;
  Status validate_canaries(const Slab& slab, Report* report) const;
  Status validate_canaries(Report* report) const;
  bool guard_slab(const Slab& slab);
  bool behind_objects(const Slab& slab) const;
  Place look_at_frames(PoolOffset o);

  // --- reach.cc
  struct Tracer;
  struct BlockLookup;

  // --- replay.cc
  struct Replay;
  Status read_lane(const pm::Lane& lane, std::vector<pm::LogLine*>& sealed,
                   std::vector<Replay>& live, Report* report);
  Status replay_words(const Replay& r, Report* report) const;
  Status replay_bits(const Replay& r, Report* report);

  // --- recover.cc
  Status mark(PoolOffset block, Report* report);
  bool close_slab(Slab& slab);
  // For recovery, while no block is held yet: the block in the part whose block size is `bytes`,
  // and the block in each part.
  SlabBlock slab_block(PoolOffset o, std::uint64_t bytes) const;
  std::array<SlabBlock, 2> parts_at(PoolOffset o) const;
  Status validate_slab(const Slab& slab, Report* report);
  Status mark_now(std::span<const PoolOffset> blocks, Report* report);
  Status mark_parts(unsigned threads, Report* report);  // REQUIRES: read_mu, or one thread
  Status end_recovery(Report* report);                  // the same
  Status own_frames(Report* report);
  Status name_frames(const std::function<Status(PoolOffset, std::uint64_t)>& name);

  // --- slab_table.cc
  void write_slab_table();
  void keep_slab_table();
  void adopt_slab_table();

  // --- read_slabs.cc
  Status find_slabs(unsigned threads, Report* report);
  Status expect_owners(Report* report);  // REQUIRES: as end_recovery
  Status begin_use(Report* report);
  Status finish_slabs(Report* report);
  void free_released();  // REQUIRES: read_mu
  bool in_large_pages(std::span<const PoolOffset> slabs);
  Arena& arena_for(PoolOffset slab, std::size_t turn);
  // False: there is none. `turn`: the arena that gets it, or the next one where nobody is.
  bool adopt_slab(PoolOffset o, bool mapped, std::size_t& turn);
  Status finish_slab(Slab& slab, Report* report) const;
  void finish_part(Slab& slab) const;
  template <class F>
  void for_each_slab(const F& f) {
    for (const auto& arena : arenas) arena->for_each_slab(f);
  }
};

}  // namespace TENUTO_NS::heap
