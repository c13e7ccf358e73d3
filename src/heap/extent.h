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
// Locks: mu_ guards the free extents. Lookups and state changes of one extent take no lock. The log
// has its own lock and may ask for frames while it holds it, hence take mu_. Never the other order.
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
#include "pm/short_lock.h"

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

class Extents {
 public:
  Extents(pm::PoolFile& file, FrameSource& frames, const HeapOptions& options);

  // Recovery, in this order. open reads the log. recover and mark correct it; both are thread-safe.
  // build makes chunks and free extents. With drop_unmarked it frees derived extents that were not
  // marked; durable with the fence that ends the frames' recovery.
  Status open(Report* report);
  Status recover(const BookRecord& said, bool allocated, Report* report);
  Status mark(PoolOffset o, Report* report);
  Status build(bool drop_unmarked, Report* report);
  // Calls keep(first frame, frames) for everything that the extents and the log own.
  Status own_frames(const std::function<Status(PoolOffset, std::uint64_t)>& keep) const;
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
  // Append an entry or a tombstone and return its word. The caller flushes the word.
  [[nodiscard]] const std::uint64_t& mark_allocated(PoolOffset o);
  [[nodiscard]] const std::uint64_t& mark_free(PoolOffset o);
  // The two halves of mark_allocated: append the entry; from then on find() finds the extent.
  [[nodiscard]] const std::uint64_t& record(PoolOffset o);
  void set_live(PoolOffset o);
  bool claim(PoolOffset o);
  void unclaim(PoolOffset o);
  // Before the release of a logged extent: after it no thread finds the extent. True when the
  // extent was reserved, or was killed before.
  bool cancel(PoolOffset o);
  Result<Block> find(PoolOffset o, Kind kind, Wanted wanted) const;
  // Whether an extent with a type is in use there.
  bool is_typed(PoolOffset o) const {
    const ExtentWord w = slots_.find(o);
    return w.used() && w.kind() == Kind::typed;
  }
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

  // Called by operations now and then. Reads the clock, rarely.
  void tick();
  // Gives wholly free huge frames back to the frame allocator. Returns whether there were any.
  bool give_back_free();
  // False: the system refused memory for the table of slots.
  bool slots_are_there() const { return slots_.there(); }
  // Gives back everything that can be given back: the log's garbage and all pages of free extents.
  void trim();
  // Flushes the bookkeeping log for other threads, which may have flushed without a fence.
  void flush_log() const { book_.flush_list(); }
  // For a clean close; nothing may be called afterwards. Gives back the frames that the next open
  // would not find, since open builds chunks from live extents only.
  void close(unsigned core);

 private:
  struct Recovered {
    BookRecord record;
    bool marked = false;
  };
  struct Fit {  // of a request, in frames
    std::uint64_t frames = 0;
    std::uint64_t align = 1;
  };

  // --- extent.cc
  Result<std::uint64_t> take_small(const Fit& fit, Kind kind, unsigned core);
  Result<std::uint64_t> take_huge(std::uint64_t huge_frames, Kind kind, unsigned core);
  std::uint64_t carve(std::uint64_t from, const Fit& fit, Kind kind);
  bool move_state(PoolOffset o, ExtentState from, ExtentState to);
  void change_state(PoolOffset o, ExtentState to);
  // REQUIRES: mu_ is held.
  Result<std::uint64_t> new_chunk(unsigned core, std::unique_lock<pm::ShortLock>& lock);
  enum class Age : std::uint8_t { young, old };
  std::uint64_t put_free(std::uint64_t frame, std::uint64_t frames, Age age = Age::young);
  void add_free(std::uint64_t frame, std::uint64_t frames, AgeOrder age = {});
  std::uint8_t& halves_of(std::uint64_t frame) { return halves_[frame / kChunkFrames]; }

  // --- extent_decay.cc
  void decay();
  // Patient: also while pages are being joined (Holes::punch). A call of a user is not, unless
  // decay_ms is 0.
  enum class Patient : bool { no, yes };
  void purge(std::unique_lock<pm::ShortLock>& lock, std::uint64_t want, Patient patient);
  bool purge_oldest(std::unique_lock<pm::ShortLock>& lock, std::uint64_t& want, Patient patient);
  void give_back(std::uint64_t frame);
  void give_back_whole(std::uint64_t frame);
  std::int64_t now_ms() const;

  // --- extent_recover.cc
  // Calls f(frame, word) for each extent in all chunks.
  template <class F>
  void for_each_extent(const F& f) const {
    for (std::uint64_t region = 0; region < halves_.size(); ++region) {
      for (std::uint64_t i = halves_[region] == 2 ? kHugeFrames : 0;
           i < frames_of_halves(halves_[region]);) {
        const ExtentWord w = slots_[region * kChunkFrames + i].get();
        f(region * kChunkFrames + i, w);
        i += std::max<std::uint64_t>(w.frames(), 1);
      }
    }
  }
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
  Slots slots_;
  Book book_;
  std::atomic<std::uint64_t> live_logged_ = 0;
  std::atomic<std::uint64_t> typed_ = 0;           // in use or reserved
  std::atomic<std::uint64_t> leaving_frames_ = 0;  // of logged extents: claimed or killed
  std::atomic<unsigned> looks_ = 0;  // operations since open, to read the clock seldom
  std::mutex recover_mu_;
  // Guarded by recover_mu_.
  std::vector<Recovered> recovered_;  // by offset; empty after build
  mutable pm::ShortLock mu_;
  // Guarded by mu_.
  std::vector<std::uint8_t> halves_;  // of each 4-MiB region: bits of the halves in chunks
  std::map<std::uint64_t, std::uint64_t> huge_;  // first frame -> frames
  FreeExtents free_;
  Decay decay_;
  std::uint64_t taken_ = 0;  // extents that are not free
  std::uint64_t taken_frames_ = 0;
};

}  // namespace TENUTO_NS::heap
