// The bookkeeping log: which extents and huge objects are in use (NVAlloc's log-structured
// bookkeeping). Called by extent.cc, under its lock.
//
// Authoritative: the list that `alt` names. An extent is in use when its entry is there and no
// tombstone names that entry; order does not matter, a lost entry leaves a hole.
//   append        entry (one word) | whatever the caller's protocol says next
//   new chunk     zeroed chunk | link | entries: a chunk in the list has no stale entries
//   new segment   its header | link: a segment in the list has a sound header
//   compaction    new list | its head | alt | old chunks are reused: alt flips between two whole
//                 lists
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "heap/format.h"
#include "heap/frame_source.h"
#include "heap/heap.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::heap {

struct BookRecord {
  PoolOffset offset;
  std::uint64_t frames = 0;
  Kind kind = Kind::logged;
  BookPosition position;
};

class Book {
 public:
  Book(pm::PoolFile& file, FrameSource& frames) : file_(file), frames_(frames) {}

  // Reads the log. corrupt with the place of what cannot be.
  Status open(std::vector<BookRecord>& live, Report* report);

  // Makes sure that `entries` more can be appended, come what may: room for an extent's own entry
  // and its tombstone is taken before the extent is. full when the pool has no frame for it.
  Status ensure_room(std::uint64_t entries);
  std::uint64_t room() const;

  // Appends and flushes; durable after the caller's fence. REQUIRES: room.
  BookPosition append(BookEntry entry);

  // Whether most of the list is dead, and compaction would pay.
  bool wants_compaction(std::uint64_t live) const;
  // Writes a new list of the entries that `each` yields (it is called with a function to pass
  // them to, which returns their new positions) and flips to it. Skipped without room.
  using Sink = std::function<BookPosition(BookEntry)>;
  void compact(std::uint64_t live, const std::function<void(const Sink&)>& each);

  // Flushes the whole list.
  void flush_list() const {
    for (const PoolOffset o : list_) flush_bytes(chunk(o), kBookChunkBytes);
  }

  const std::vector<PoolOffset>& segments() const { return segments_; }

 private:
  BookHead& head() const { return *reinterpret_cast<BookHead*>(file_.head().heap); }
  BookChunk* chunk(PoolOffset o) const { return file_.at<BookChunk>(o); }
  Status open_segments(Report* report);
  Status open_list(std::vector<PoolOffset>& list, Report* report);
  Status new_segment();
  void prepare_chunk(PoolOffset o);
  void start_chunk();
  Status damaged(Report* report, PoolOffset o, std::string_view what) const;

  pm::PoolFile& file_;
  FrameSource& frames_;
  std::vector<PoolOffset> segments_;
  std::vector<PoolOffset> list_;  // chunks of the live list, in order
  std::vector<PoolOffset> free_chunks_;
  unsigned tail_used_ = kBookChunkEntries;  // entries of the last chunk
};

}  // namespace tenuto::inline TENUTO_ABI::heap
