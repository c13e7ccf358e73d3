// Extents (16 KiB .. 2 MiB, cut from 4-MiB chunks by best fit, coalesced when freed) and huge
// objects (runs of huge frames). What is known of them stands in slots (slots.h); the bookkeeping
// log says what is in use.
//
//   reserved, live, claimed, killed   in use, or on the way
//   reclaimed                         free, with pages in the file (or with some)
//   retained                          free, its pages given back: holes in the file
// Free extents decay from reclaimed to retained (decay.h), driven by the operations that come
// along. A chunk that is wholly retained goes back to the frame allocator; wholly free ones with
// pages do when frames run short, before the file grows.
//
// Durable order: a chunk's frames are fenced before any thread can cut an extent from it; a huge
// object's by the first fence of whatever protocol records it (their bits are flushed before its
// entry is). A chunk is owned by the extents in it: one without live extents after a crash is
// given back. An extent is free only when its tombstone is durable: then it may be reused, and a
// hole may be punched.
//
// Locks: mu_ for what is free; lookups and changes of state of one extent take none. The log has
// its own, and may ask for frames while it holds it, hence for ours: never the other way round.
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

namespace TENUTO_NS::heap {

inline constexpr unsigned kHugeFrames = kHugeBytes / kFrameBytes;
inline constexpr std::uint64_t kExtentBytesMax = kHugeBytes;

// What find() may find.
enum class Wanted : std::uint8_t {
  allocated,  // live, and nobody is freeing it
  in_use,     // that, or reserved
  not_free,   // also what is on its way to becoming free
};

struct ExtentStats {
  std::uint64_t count = 0;  // in use or reserved
  std::uint64_t allocated_bytes = 0;
  std::uint64_t live_logged = 0;
  std::uint64_t reclaimed_bytes = 0;
  std::uint64_t retained_bytes = 0;
  BookStats book;
};

class Extents {
 public:
  Extents(pm::PoolFile& file, FrameSource& frames, const HeapOptions& options);

  // Recovery, in this order. open reads the log; recover_* and mark correct it (thread-safe);
  // build makes chunks and free extents and drops derived extents that were not marked
  // (drop_unmarked; durable with the fence that ends the frames' recovery).
  Status open(Report* report);
  Status recover(const BookRecord& said, bool allocated, Report* report);
  Status mark(PoolOffset o, Report* report);
  Status build(bool drop_unmarked, Report* report);
  // Calls keep(first frame, frames) for everything that extents and log own.
  Status own_frames(const std::function<Status(PoolOffset, std::uint64_t)>& keep) const;
  bool known(PoolOffset o);  // during recovery: the log has a live extent there
  // During recovery: the end of a live extent that covers some of the 64 KiB at o; 0: none.
  std::uint64_t end_of_known(PoolOffset o);

  // At a multiple of `align`, a power of two from a frame to a huge frame. derived extents get
  // their entry at once (flushed, not fenced). typed: `bytes` includes the type's.
  Result<Block> reserve(std::uint64_t bytes, Kind kind, unsigned core,
                        std::uint64_t align = kFrameBytes);
  // Makes it free. A derived extent's tombstone is written and fenced here; a logged one must be
  // reserved, or killed and fenced.
  void release(PoolOffset o, unsigned core);
  // Append an entry or a tombstone and return its word, which the caller flushes.
  [[nodiscard]] const std::uint64_t& mark_allocated(PoolOffset o);
  [[nodiscard]] const std::uint64_t& mark_free(PoolOffset o);
  // The two halves of mark_allocated: the entry; from then on it is found.
  [[nodiscard]] const std::uint64_t& record(PoolOffset o);
  void set_live(PoolOffset o);
  bool claim(PoolOffset o);
  void unclaim(PoolOffset o);
  // Before the release of a logged one, so that nobody finds it any more: true when it was
  // reserved, or was killed before.
  bool cancel(PoolOffset o);
  Result<Block> find(PoolOffset o, Kind kind, Wanted wanted) const;
  // Something with a type is in use there.
  bool is_typed(PoolOffset o) const {
    const ExtentWord w = slots_.find(o);
    return w.used() && w.kind() == Kind::typed;
  }
  bool shows_typed(PoolOffset o) const;          // and is allocated
  std::uint64_t& type_word(PoolOffset o) const;  // REQUIRES: is_typed
  // The first extent or huge object of the type that starts in [from, end), which lie in one huge
  // frame, and is allocated, also if somebody frees it just now; null when there is none.
  PoolOffset find_typed(PoolOffset from, PoolOffset end, std::uint64_t type) const;
  // f is called without locks. Quiescent.
  void for_each(Kind kind, const std::function<void(PoolOffset, std::uint64_t)>& f) const;
  ExtentStats stats() const;
  Status validate(Report* report) const;

  // Called now and then by operations that come along: looks at the clock, rarely.
  void tick();
  // Wholly free huge frames go back to the frame allocator. Whether there were any.
  bool give_back_free();
  // False: the system refused their table.
  bool slots_are_there() const { return slots_.there(); }
  // Everything that can be given back: the log's garbage, and all pages of free extents.
  void trim();
  // Flushes the bookkeeping log for threads that flushed and may not have fenced.
  void flush_log() const { book_.flush_list(); }
  // For a clean close, after which nothing else may be called: gives back the frames that open
  // would not find, which builds chunks from live extents.
  void close(unsigned core);

 private:
  struct Recovered {
    BookRecord record;
    bool marked = false;
  };
  struct Fit {  // of a request
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
  Result<std::uint64_t> new_chunk(unsigned core, std::unique_lock<std::mutex>& lock);
  enum class Age : std::uint8_t { young, old };
  std::uint64_t put_free(std::uint64_t frame, std::uint64_t frames, Age age = Age::young);
  void add_free(std::uint64_t frame, std::uint64_t frames, AgeOrder age = {});
  std::uint8_t& halves_of(std::uint64_t frame) { return halves_[frame / kChunkFrames]; }

  // --- extent_decay.cc
  void decay();
  void purge(std::unique_lock<std::mutex>& lock, std::uint64_t want);
  bool purge_oldest(std::unique_lock<std::mutex>& lock, std::uint64_t& want);
  void give_back(std::uint64_t frame);
  void give_back_whole(std::uint64_t frame);
  std::int64_t now_ms() const;

  // --- extent_recover.cc
  // Calls f(frame, word) for each extent of all chunks.
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
  std::atomic<std::uint64_t> typed_ = 0;  // in use or reserved
  std::atomic<unsigned> looks_ = 0;       // operations, in order to read the clock seldom
  std::mutex recover_mu_;
  // Guarded by recover_mu_.
  std::vector<Recovered> recovered_;  // by offset; empty after build
  mutable std::mutex mu_;
  // Guarded by mu_.
  std::vector<std::uint8_t> halves_;  // of each 4-MiB region: which belong to extents, as bits
  std::map<std::uint64_t, std::uint64_t> huge_;  // first frame, frames
  FreeExtents free_;
  Decay decay_;
  std::uint64_t taken_ = 0;  // extents in use or reserved
  std::uint64_t taken_frames_ = 0;
};

}  // namespace TENUTO_NS::heap
