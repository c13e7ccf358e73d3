// Extents (16 KiB .. 2 MiB, cut from 4-MiB chunks by best fit, coalesced when freed) and huge
// objects (runs of huge frames). Virtual headers in DRAM; the bookkeeping log says what is in use.
// Called by heap.cc. One lock.
//
// (Decay from reclaimed to retained to holes in the file will move free extents here.)
//
// Durable order: a chunk's frames are fenced before any thread can cut an extent from it; a huge
// object's by the first fence of whatever protocol records it (their bits are flushed before its
// entry is). A chunk is owned by the extents in it: one without live extents after a crash is
// given back. A freed extent is reused only when its
// tombstone is durable.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "heap/book.h"
#include "heap/page_table.h"

namespace tenuto::inline TENUTO_ABI::heap {

inline constexpr std::uint64_t kChunkBytes = 4u << 20;
inline constexpr unsigned kChunkFrames = kChunkBytes / kFrameBytes;
inline constexpr unsigned kHugeFrames = kHugeBytes / kFrameBytes;
inline constexpr std::uint64_t kExtentBytesMax = kHugeBytes;

enum class ExtentState : std::uint8_t {
  free,
  reserved,  // taken, no entry yet
  live,      // entry appended
  claimed,   // live, and somebody is freeing it
  killed,    // tombstone appended, not yet reusable
};

// What find() may find.
enum class Wanted : std::uint8_t {
  allocated,  // live, and nobody is freeing it
  in_use,     // that, or reserved
  not_free,   // also what is on its way to becoming free
};

struct Extent {
  PoolOffset offset;
  std::uint64_t frames = 0;
  ExtentState state = ExtentState::free;
  Kind kind = Kind::logged;
  BookPosition entry;
};

// The part of a 4-MiB region that belongs to extents: all of it, or one 2-MiB half.
struct Chunk {
  PoolOffset region;
  unsigned first = 0;  // frame within the region
  unsigned end = 0;
  std::array<Extent*, kChunkFrames> at{};  // by first and by last frame
};

class Extents {
 public:
  Extents(pm::PoolFile& file, FrameSource& frames, PageTable& pages)
      : file_(file), frames_(frames), pages_(pages), book_(file, frames) {}
  ~Extents();

  // Recovery, in this order. open reads the log; recover_* and mark correct it (thread-safe);
  // build makes chunks and free extents and drops derived extents that were not marked
  // (drop_unmarked; durable with the fence that ends the frames' recovery).
  Status open(Report* report);
  Status recover(PoolOffset o, std::uint64_t frames, bool allocated, Report* report);
  Status mark(PoolOffset o, Report* report);
  Status build(bool drop_unmarked, Report* report);
  // Calls keep(first frame, frames) for everything that extents and log own.
  Status own_frames(const std::function<Status(PoolOffset, std::uint64_t)>& keep) const;
  bool known(PoolOffset o) const;  // during recovery: the log has a live extent there
  // During recovery: the end of a live extent that covers some of the 64 KiB at o; 0: none.
  std::uint64_t end_of_known(PoolOffset o) const;

  // derived extents get their entry at once (flushed, not fenced).
  Result<Block> reserve(std::uint64_t bytes, Kind kind, unsigned core);
  // Makes it free. A derived extent's tombstone is written and fenced here; a logged one must be
  // reserved, or killed and fenced.
  void release(PoolOffset o, unsigned core);
  void mark_allocated(PoolOffset o);  // entry; flushed
  void mark_free(PoolOffset o);       // tombstone; flushed
  bool claim(PoolOffset o);
  void unclaim(PoolOffset o);
  // Before the release of a logged one, so that nobody finds it any more: true when it was
  // reserved, or was killed before.
  bool cancel(PoolOffset o);
  Result<Block> find(PoolOffset o, Kind kind, Wanted wanted) const;
  void for_each(Kind kind, const std::function<void(PoolOffset, std::uint64_t)>& f) const;
  std::uint64_t allocated_bytes() const;
  std::uint64_t count() const;
  std::uint64_t live_logged() const;
  std::uint64_t book_bytes() const;
  Status validate(Report* report) const;
  // Gives back the chunk kept in reserve.
  void trim(unsigned core);
  // Flushes the bookkeeping log for threads that flushed and may not have fenced.
  void flush_log() const;
  // For a clean close, after which nothing else may be called: gives back the frames that open
  // would not find, which builds chunks from live extents.
  void close(unsigned core);

 private:
  struct Recovered {
    std::uint64_t frames = 0;
    Kind kind = Kind::logged;
    BookPosition position;
    bool marked = false;
  };
  using FreeKey = std::pair<std::uint64_t, std::uint64_t>;  // frames, offset: best fit first

  Extent* lookup(PoolOffset o) const;
  void for_each_taken(const std::function<void(Extent&)>& f) const;
  Extent* take_small(std::uint64_t frames, unsigned core, Status* why);
  Extent* take_huge(std::uint64_t huge_frames, unsigned core, Status* why);
  Status ensure_book();
  Chunk* new_chunk(unsigned core, Status* why);
  Chunk& add_chunk(PoolOffset region, unsigned first, unsigned end);
  void drop_chunk(Chunk& chunk, unsigned core);
  void place(Chunk& chunk, Extent* e);
  void unplace(Chunk& chunk, Extent* e);
  void free_extent(Chunk& chunk, Extent* e, unsigned core);
  Chunk& chunk_of(PoolOffset o) const;
  // Whether an extent of so many frames can stand there.
  bool well_placed(PoolOffset o, std::uint64_t frames) const;
  bool whole_huge_frames(PoolOffset o, std::uint64_t frames) const;
  Status build_chunks(Report* report);
  void fill_gaps(Chunk& chunk);
  void append_entry(Extent& e);
  void append_tombstone(Extent& e);
  Status damaged(Report* report, PoolOffset o, std::string_view what) const;

  pm::PoolFile& file_;
  FrameSource& frames_;
  PageTable& pages_;
  mutable std::mutex mu_;
  // Guarded by mu_.
  Book book_;
  std::map<std::uint64_t, Recovered> recovered_;            // by offset; empty after build
  std::map<std::uint64_t, std::unique_ptr<Chunk>> chunks_;  // by region
  std::map<std::uint64_t, Extent*> huge_;
  std::set<FreeKey> free_;
  std::uint64_t live_ = 0;      // extents with an entry
  std::uint64_t reserved_ = 0;  // without
  std::uint64_t allocated_frames_ = 0;
  Chunk* spare_ = nullptr;  // one wholly free chunk is kept
};

}  // namespace tenuto::inline TENUTO_ABI::heap
