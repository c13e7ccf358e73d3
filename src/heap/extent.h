// Extents and huge objects. Extents are 16 KiB .. 2 MiB, cut from 4-MiB chunks by best fit and
// coalesced when freed. Huge objects are runs of huge frames. DRAM keeps their states in slots
// (slots.h). The bookkeeping log on media is authoritative for what is in use.
//
//   reserved, live, claimed, killed   in use, or on the way in or out
//   reclaimed                         free, with pages in the file for all or some of its frames
//   retained                          free, without pages: a hole in the file
// Free extents decay from reclaimed to retained (decay.h), driven by the operations of users. A
// chunk that is wholly retained goes back to the frame allocator. Wholly free chunks with pages go
// back when frames run short, before the file grows.
//
// Durable order
//   - The frames of a chunk are fenced before any thread can cut an extent from it.
//   - The frames of a huge object are durable with the first fence of the protocol that records it:
//     their bits are flushed before its entry is.
//   - A chunk is owned by its extents: recovery gives back a chunk without live extents.
//   - An extent is free only when its tombstone is durable. Only then may it be reused, or a hole
//     be punched.
//
// Shards: each core has free extents of its own, those of the chunks that it took, under a lock of
// its own. So threads on different cores share neither lock nor lines. An extent is free in the
// shard that owns its 4-MiB region, whoever frees it. A shard without a fit borrows from one that
// has more than kLentFrom free, else it takes a new chunk; when there is none, it borrows from any.
// At open the first shard owns all regions.
//
// Locks, in this order: that of a shard (of all shards: by number), regions_mu_. Lookups and state
// changes of one extent take none. The log has its own lock and may ask for frames while it holds
// it, hence take those of shards. Never the other order. The log, too, has a chunk for each core.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "heap/book.h"
#include "heap/decay.h"
#include "heap/free_extents.h"
#include "heap/slots.h"
#include "heap/wear.h"
#include "pm/short_lock.h"
#include "pm/zero_pages.h"

namespace TENUTO_NS::heap {

inline constexpr unsigned kHugeFrames = kHugeBytes / kFrameBytes;
inline constexpr std::uint64_t kExtentBytesMax = kHugeBytes;

// What find() accepts.
enum class Wanted : std::uint8_t {
  allocated,  // live, and no thread is freeing it
  in_use,     // allocated or reserved
  not_free,   // in_use, or on the way to becoming free
};

struct ExtentStats {
  std::uint64_t count = 0;            // in use, reserved, or on the way to becoming free
  std::uint64_t allocated_bytes = 0;  // in use or reserved
  std::uint64_t leaving_bytes = 0;    // on the way to becoming free
  std::uint64_t live_logged = 0;
  std::uint64_t reclaimed_bytes = 0;
  std::uint64_t retained_bytes = 0;
  BookStats book;
};

class ReachedMarks;

struct ExtentAt {
  PoolOffset begin;
  ExtentWord word;
};

class Extents {
 public:
  Extents(pm::PoolFile& file, FrameSource& frames, const HeapOptions& options, unsigned shards);

  // Recovery, in this order. open reads the log. recover and mark correct it; both are thread-safe.
  // build makes chunks and free extents. With drop_unmarked it frees derived extents that were not
  // marked; durable with the fence that ends the frames' recovery.
  Status open(bool clean, Report* report);
  Status recover(const BookRecord& said, bool allocated, Report* report);
  Status mark(PoolOffset o, Report* report);
  Status build(bool drop_unmarked, Report* report);
  // Calls keep(first frame, frames) for everything that the extents and the log own.
  Status own_frames(const std::function<Status(PoolOffset, std::uint64_t)>& keep) const;
  // During recovery of a pool with Consistency::gc: all extents of the log, and which of the logged
  // ones are reached.
  void for_each_recovered(const std::function<void(const BookRecord&)>& f) const;
  void mark_reached(const ReachedMarks& marks);
  bool known(PoolOffset o);  // during recovery: the log has a live extent there
  // During recovery: the end of the last live extent that overlaps the 64 KiB at o; 0: none.
  std::uint64_t end_of_known(PoolOffset o);

  // A block at a multiple of `align`, a power of two from kFrameBytes to kHugeBytes. A derived
  // extent gets its entry at once (flushed, not fenced). For typed ones `bytes` includes the type.
  Result<Block> reserve(std::uint64_t bytes, Kind kind, unsigned core,
                        std::uint64_t align = kFrameBytes);
  // Makes the extent free. For a derived one it writes and fences the tombstone. A logged one
  // REQUIRES state killed, with a durable tombstone unless it was only reserved (cancel).
  void release(PoolOffset o, unsigned core);
  // The first half of release: no crash finds the extent any more. A logged one is killed already.
  void kill_derived(PoolOffset o, unsigned core);
  // Wear levelling: counts what is handed out, and chooses places by it. Set once, before use.
  void set_wear(Wear* wear) { wear_ = wear; }
  bool any_typed() const { return typed_.load(std::memory_order_relaxed) != 0; }
  // Append an entry or a tombstone and return its word. The caller flushes the word.
  [[nodiscard]] const std::uint64_t& mark_allocated(PoolOffset o, unsigned core);
  [[nodiscard]] const std::uint64_t& mark_free(PoolOffset o, unsigned core);
  // The two halves of mark_allocated: append the entry; from then on find() finds the extent.
  [[nodiscard]] const std::uint64_t& record(PoolOffset o, unsigned core);
  void set_live(PoolOffset o);
  bool claim(PoolOffset o);
  void unclaim(PoolOffset o);
  // Before the release of a logged extent: after it no thread finds the extent. True when the
  // extent was reserved, or was killed before.
  bool cancel(PoolOffset o);
  bool cancel_reserved(PoolOffset o);  // only then
  Result<Block> find(PoolOffset o, Kind kind, Wanted wanted) const;
  // Whether an extent with a type is in use there.
  bool is_typed(PoolOffset o) const {
    const ExtentWord w = slots_.find(o);
    return w.used() && w.kind() == Kind::typed;
  }
  // What contains o: an extent or huge object in use, or a free extent. not_found: none. The answer
  // may be out of date. Cost: a step for each frame before o.
  Result<ExtentAt> containing(PoolOffset o) const;
  bool shows_typed(PoolOffset o) const;          // is_typed, and allocated
  std::uint64_t& type_word(PoolOffset o) const;  // REQUIRES: is_typed
  // The first allocated extent or huge object of the type that starts in [from, end); null when
  // there is none. It may be one that a thread is freeing. REQUIRES: the range is in one huge
  // frame.
  PoolOffset find_typed(PoolOffset from, PoolOffset end, std::uint64_t type) const;
  // Calls f without locks. Quiescent.
  void for_each(Kind kind, const std::function<void(PoolOffset, std::uint64_t)>& f) const;
  ExtentStats stats() const;
  Status validate(Report* report) const;

  // NUMA: shard n is of node n % nodes. After an open the first one of each node owns the regions
  // there. Before open.
  void set_nodes(unsigned nodes) { nodes_ = nodes; }
  // Called by operations now and then. Reads the clock, rarely.
  void tick(unsigned core);
  // Gives wholly free huge frames back to the frame allocator. Returns whether there were any.
  bool give_back_free();
  // False: the system refused memory for the tables.
  bool tables_are_there() const { return slots_.there() && region_pages_; }
  // Gives back everything that can be given back: the log's garbage and all pages of free extents.
  void trim();
  // Flushes the bookkeeping log for other threads, which may have flushed without a fence.
  void flush_log() const { book_.flush_list(); }
  void seal() { book_.seal(); }  // Book::seal
  bool untouched() const { return book_.untouched(); }
  void break_seal() { book_.break_seal(); }
  bool guard_log();  // Book::guard
  // For a clean close; nothing may be called afterwards. Gives back the frames that the next open
  // would not find, since open builds chunks from live extents only.
  void close(unsigned core);

 private:
  struct Recovered {
    BookRecord record;
    bool marked = false;
    bool dropped = false;
  };
  struct Fit {  // of a request, in frames
    std::uint64_t frames = 0;
    std::uint64_t align = 1;
  };
  struct Taken {  // what is not free
    std::uint64_t extents = 0;
    std::uint64_t frames = 0;

    void add(std::uint64_t n) {
      extents += 1;
      frames += n;
    }
    void remove(std::uint64_t n) {
      extents -= 1;
      frames -= n;
    }
  };
  // In lines of its own.
  struct alignas(2 * kLineBytes) Shard {
    Shard(Slots& slots, const HeapOptions& o, std::int64_t now) : free(slots), decay(o, now) {}

    mutable pm::ShortLock mu;
    // Guarded by mu.
    FreeExtents free;
    Decay decay;
    Taken taken;
    // Of logged extents, and of derived ones that are killed, by the owner of their region. A
    // region may change hands meanwhile, so only the sums over all shards mean something.
    std::atomic<std::uint64_t> live = 0;
    std::atomic<std::uint64_t> leaving_frames = 0;  // claimed or killed
    std::atomic<unsigned> looks = 0;  // operations since open, to read the clock seldom
  };
  using Lock = std::unique_lock<pm::ShortLock>;
  static constexpr std::uint64_t kLentFrom = 4 * kChunkFrames;

  // --- extent.cc
  Result<std::uint64_t> take_small(const Fit& fit, Kind kind, unsigned core);
  Result<std::uint64_t> take_huge(std::uint64_t huge_frames, Kind kind, unsigned core);
  // at 0: the first place that fits.
  std::uint64_t carve(Shard& shard, std::uint64_t from, const Fit& fit, Kind kind,
                      std::uint64_t at = 0);
  // A free extent for the request in any other shard, and that shard, locked; 0: none. With
  // from_frames above 1 only in shards of the node.
  std::uint64_t borrow(const Fit& fit, std::uint64_t from_frames, unsigned node, Shard*& shard,
                       Lock& lock);
  bool move_state(PoolOffset o, ExtentState from, ExtentState to);
  void change_state(PoolOffset o, ExtentState to);
  // Locks the shard that owns the new chunk. worn_max: only in frames with at most so many lines
  // for each 64 KiB, and without growth.
  Result<std::uint64_t> new_chunk(unsigned core, Shard*& shard, Lock& lock,
                                  const std::uint64_t* worn_max = nullptr);
  // --- extent_wear.cc
  struct Place {
    std::uint64_t from = 0;  // the free extent; 0: none
    std::uint64_t at = 0;    // the request's first frame in it
    std::uint64_t worn = 0;  // lines of 64 KiB, by the mean of its frames
  };
  Place fresh_place(std::uint64_t from, const Fit& fit) const;
  Place fresh_fit(const Shard& shard, const Fit& fit) const;
  std::uint64_t best_or_fresh(Shard*& shard, Lock& lock, const Fit& fit, unsigned core);
  // REQUIRES for these: the lock of the shard is held, and it owns the region.
  enum class Age : std::uint8_t { young, old };
  std::uint64_t put_free(Shard& shard, std::uint64_t frame, std::uint64_t frames,
                         Age age = Age::young);
  void add_free(Shard& shard, std::uint64_t frame, std::uint64_t frames, AgeOrder age = {});
  std::uint64_t count_resident(std::uint64_t frame, std::uint64_t frames) const;
  std::uint8_t halves_of(std::uint64_t frame) const {
    return halves_[frame / kChunkFrames].load(std::memory_order_acquire);
  }
  // The owner does not change while an extent of the region is in use, or while it is locked.
  Shard& owner_of(std::uint64_t frame) const {
    return *shards_[owner_[frame / kChunkFrames].load(std::memory_order_acquire)];
  }
  std::vector<Lock> lock_all() const;
  void count_live(PoolOffset o, int change) const {
    owner_of(frame_of_offset(o).value)
        .live.fetch_add(static_cast<std::uint64_t>(change), std::memory_order_relaxed);
  }
  void count_leaving(PoolOffset o, std::int64_t frames) const {
    owner_of(frame_of_offset(o).value)
        .leaving_frames.fetch_add(static_cast<std::uint64_t>(frames), std::memory_order_relaxed);
  }
  std::uint64_t live_logged() const;
  std::uint64_t leaving_frames() const;

  // --- extent_decay.cc
  void decay(unsigned core);
  // Patient: also while pages are being joined (Holes::punch). A call of a user is not, unless
  // decay_ms is 0.
  enum class Patient : bool { no, yes };
  void purge(Shard& shard, Lock& lock, std::uint64_t want, Patient patient);
  // A free extent that is held while its frames from `from` on, of which so many have pages, lose
  // them.
  struct Leaving {
    std::uint64_t frame, frames, from, pages;
  };
  static constexpr std::size_t kHeldMax = 512;
  Leaving hold_oldest(Shard& shard, std::uint64_t want);
  void give_back(Shard& shard, std::uint64_t frame);
  void give_back_whole(Shard& shard, std::uint64_t frame);
  std::int64_t now_ms() const;

  // --- extent_recover.cc
  // Calls f(frame, word) for each extent in all chunks.
  template <class F>
  void for_each_extent(const F& f) const {
    for (std::uint64_t region = 0; region < regions(); ++region) {
      const std::uint8_t halves = halves_of(region * kChunkFrames);
      for (std::uint64_t i = halves == 2 ? kHugeFrames : 0; i < frames_of_halves(halves);) {
        const ExtentWord w = slots_[region * kChunkFrames + i].get();
        f(region * kChunkFrames + i, w);
        i += std::max<std::uint64_t>(w.frames(), 1);
      }
    }
  }
  std::uint64_t regions() const { return file_.bytes() / kChunkBytes + 1; }
  static std::uint64_t frames_of_halves(std::uint8_t halves) {
    return halves == 0 ? 0 : halves == 1 ? kHugeFrames : kChunkFrames;
  }
  std::vector<Recovered>::iterator recovered(PoolOffset o);
  bool well_placed(PoolOffset o, std::uint64_t frames) const;
  bool whole_huge_frames(PoolOffset o, std::uint64_t frames) const;
  Status build_chunks(Report* report);
  void fill_gaps();
  Status validate_chunks(std::uint64_t entries, Report* report) const;
  Status damaged(Report* report, PoolOffset o, std::string_view what) const;

  pm::PoolFile& file_;
  FrameSource& frames_;
  const HeapOptions& options_;
  Wear* wear_ = nullptr;
  Slots slots_;
  Book book_;
  std::atomic<std::uint64_t> typed_ = 0;  // in use or reserved
  mutable std::mutex recover_mu_;
  // Guarded by recover_mu_.
  std::vector<Recovered> recovered_;  // by offset; empty after build
  std::vector<std::unique_ptr<Shard>> shards_;
  std::atomic<unsigned> decayed_ = 0;  // the shard that decays next, besides one's own
  // Of each 4-MiB region: bits of the halves in chunks, and who owns it if it has any. Changed
  // under regions_mu_.
  pm::ShortLock regions_mu_;
  const pm::ZeroPages region_pages_;
  std::atomic<std::uint8_t>* const halves_;
  std::atomic<std::uint8_t>* const owner_;
  unsigned nodes_ = 1;
  mutable std::mutex huge_mu_;
  // Guarded by huge_mu_.
  std::map<std::uint64_t, std::uint64_t> huge_;  // first frame -> frames
  Taken huge_taken_;
};

}  // namespace TENUTO_NS::heap
