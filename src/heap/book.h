// The bookkeeping log: which extents and huge objects are in use (NVAlloc's log-structured
// bookkeeping). It has its own lock.
//
// Authoritative: the list that `alt` selects. An extent is in use when its entry is in the list and
// no tombstone names that entry. The order of entries does not matter. A lost entry leaves a hole.
//   append        entry (one word) | the next step of the caller's protocol
//   new chunk     zeroed chunk | link | entries: a chunk in the list has no stale entries
//   new segment   its header | link | its chunks: a segment in the list has a sound header
//   fast GC       unlinked chunk | tombstones that name its entries are dead, chunk is reused
//   slow GC       new list and its head | alt | old chunks are reused: alt selects a whole list
//   old segment   unlinked segment | its frame is given back
//   clean close   list, slabs, their seals, seal of the list | the superblock says clean and names
//                 itself in Superblock::closed (the fence is Frames::close's)
//   first use     the list's seal is broken | the heap changes
//
// The list's seal names the superblock of its close. It decides for the seals of the slabs, too:
//   it names Superblock::closed   nothing of the heap on media has changed since that close: the
//                                 seals are true. A clean open compares them all, a recovery those
//                                 of slabs with logged blocks
//   it is 0, or names another     the seals say nothing: the heap is in use, or a crash came before
//                                 the superblock of their close, or an earlier build closed later
// `closed` stays as it is until the next clean close. The superblock that says clean makes the
// seals true, all at once. The list's seal alone ends that. Its fence is for other threads: they
// wait for the first call (Heap::Access), and then make bits durable by fences of their own.
// Beside a seal that a crash brings back, these bits would be taken for damage, for good. A
// thread that finds the heap in use need not fence: the one that broke the seal has. Nor does it
// matter that recoveries break it: they do so before their first change, so the one after them
// compares nothing. An earlier build neither breaks it nor keeps `closed` up, so after its lives
// `closed` is 0, or the superblock of its own close (Superblock::closed_at).
//
// Every chunk has a shadow in DRAM (BookShadow), with a bit for each entry that matters:
//   an extent's entry        no tombstone has been appended for it
//   a tombstone              the entry it kills is in another chunk, and that chunk is in the list
// A chunk without such bits leaves the list without being read (fast GC). Its extents are all
// freed. The entries that its tombstones kill are in no list any more, or leave with it. An entry
// is never in a later chunk than its tombstone. So the oldest chunk can leave as soon as it has no
// live extents.
//
// A tombstone names a chunk by its id. Ids grow and are never used again. So a tombstone means
// nothing once that chunk has left, even if its place is used again. The last chunk of the list has
// the largest id and never leaves, so no crash can bring an old id back.
//
// Only the start of a segment allocates memory. Appending and collecting follow changes that are
// already durable, so they must not fail for lack of memory.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "heap/format.h"
#include "heap/frame_source.h"
#include "heap/heap.h"
#include "heap/slots.h"
#include "pm/short_lock.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

struct BookRecord {
  PoolOffset offset;
  std::uint64_t frames = 0;
  Kind kind = Kind::logged;
};

struct BookStats {
  std::uint64_t bytes = 0;         // of all segments
  std::uint64_t list_bytes = 0;    // of these, in the list
  std::uint64_t live_entries = 0;  // extents in use
  std::uint64_t fast_gcs = 0;      // chunks unlinked since open
  std::uint64_t slow_gcs = 0;      // lists rewritten since open
  std::uint64_t segments_given_back = 0;
};

// A chunk of the list. Aligned to 128, so that one word holds a shadow and an index.
struct alignas(128) BookShadow {
  explicit BookShadow(PoolOffset o) : at(o) {}

  const PoolOffset at;
  std::uint64_t id = 0;
  BookShadow* prev = nullptr;
  BookShadow* next = nullptr;
  BookShadow* next_empty = nullptr;                  // next chunk that may leave
  std::uint64_t matters[2] = {};                     // one bit an entry
  unsigned count = 0;                                // of bits set in matters
  std::array<EntryRef, kBookChunkEntries> killer{};  // by entry: the tombstone that names it

  bool matter(unsigned i) const { return (matters[i / 64] >> (i % 64) & 1) != 0; }
  void set(unsigned i) {
    matters[i / 64] |= std::uint64_t{1} << (i % 64);
    count += 1;
  }
  void clear(unsigned i) {
    matters[i / 64] &= ~(std::uint64_t{1} << (i % 64));
    count -= 1;
  }
};

static_assert(sizeof(BookShadow) == 1024);

// A segment, with the memory for the shadows of its chunks. So a new chunk allocates nothing, and a
// chunk that leaves frees nothing. A shadow is made with its chunk; before that its memory is
// untouched.
class BookPlace {
 public:
  static constexpr unsigned kChunks = kBookSegmentBytes / kBookChunkBytes - 1;

  explicit BookPlace(PoolOffset o) : at_(o), shadows_(new Room[kChunks]) {}

  void stand_at(PoolOffset o) { at_ = o; }
  PoolOffset at() const { return at_; }
  bool has(PoolOffset chunk) const {
    return chunk.value > at_.value && chunk.value < at_.value + kBookSegmentBytes &&
           chunk.value % kBookChunkBytes == 0;
  }
  bool any_used() const { return used_ != 0; }
  bool any_free() const { return used_ != kAll; }
  bool used(PoolOffset chunk) const { return (used_ >> index(chunk) & 1) != 0; }
  PoolOffset first_free() const {
    return at_ + kBookChunkBytes * (1 + static_cast<unsigned>(std::countr_one(used_)));
  }
  BookShadow& use(PoolOffset chunk) {
    used_ |= std::uint64_t{1} << index(chunk);
    return *new (&shadows_[index(chunk)]) BookShadow(chunk);
  }
  void put(const BookShadow& shadow) { used_ &= ~(std::uint64_t{1} << index(shadow.at)); }

 private:
  struct alignas(BookShadow) Room {
    std::byte byte[sizeof(BookShadow)];
  };
  static_assert(std::is_trivially_destructible_v<BookShadow>);
  static constexpr std::uint64_t kAll = (std::uint64_t{1} << kChunks) - 1;
  unsigned index(PoolOffset chunk) const {
    return static_cast<unsigned>((chunk.value - at_.value) / kBookChunkBytes) - 1;
  }

  PoolOffset at_;
  std::uint64_t used_ = 0;  // chunks in the list, or in a list that is being written
  std::unique_ptr<Room[]> shadows_;
};

class Book {
 public:
  Book(pm::PoolFile& file, FrameSource& frames, Slots& slots, const HeapOptions& options)
      : file_(file), frames_(frames), slots_(slots), options_(options) {}

  // Reads the log. `live` is sorted by offset. corrupt, with the place of what is damaged.
  Status open(std::vector<BookRecord>& live, Report* report);

  // Reserves room for an extent's entry and its tombstone, before the extent is taken. full when
  // the pool has no frame for the room. Cost: one atomic subtraction; now and then the log is
  // tended.
  Status promise();
  void unpromise() { spare_.fetch_add(2, std::memory_order_relaxed); }

  // Append, and return the word that the caller flushes; durable after the caller's fence. The
  // flush is not made under the lock, since the unlock would wait for it. REQUIRES for record:
  // promise() was called for it; for erase: the extent was recorded.
  [[nodiscard]] const std::uint64_t& record(PoolOffset o, std::uint64_t frames, Kind kind);
  [[nodiscard]] const std::uint64_t& erase(PoolOffset o);
  // The same for recovery, with the flush and without promise(). full when there is no room.
  Status recover_record(const BookRecord& record);
  Status recover_erase(PoolOffset o);

  // Collects the garbage that can be collected now. `thoroughly`: even when it hardly pays.
  void tend(bool thoroughly);

  // Flushes the whole list.
  void flush_list() const;
  // An entry has no room for a checksum, and one that lost a bit may free an extent that is in use,
  // or bring one back. So a clean close seals the list, and the next open compares it. REQUIRES:
  // the next superblock says that the pool is clean.
  void seal();
  Status check_seal(Report* report) const;
  // What the heap has on media is as the last clean close left it. After a crash: the lives since
  // then have changed nothing. break_seal comes before the first change, and fences.
  bool untouched() const;
  void break_seal();

  std::vector<PoolOffset> segments() const;
  BookStats stats() const;
  Status validate(Report* report) const;
  // Restores headers of segments and chunks that were overwritten, turns the pool read-only then,
  // and returns false (guard.h).
  bool guard();

 private:
  BookHead& head() const { return *reinterpret_cast<BookHead*>(file_.head().heap); }
  BookChunk* chunk(PoolOffset o) const { return file_.at<BookChunk>(o); }
  BookSegment& segment(PoolOffset o) const { return *file_.at<BookSegment>(o); }
  Status damaged(Report* report, PoolOffset o, std::string_view what) const;

  using ShadowsById = std::unordered_map<std::uint64_t, BookShadow*>;

  // REQUIRES for all below: mu_ is held, or the pool is being opened.
  Status open_segments(Report* report);
  Status open_list(ShadowsById& shadows, Report* report);
  void open_tombstone(const ShadowsById& shadows, BookShadow& shadow, unsigned i);
  std::uint64_t room() const;
  BookSeal seal_of_list(std::uint64_t sequence) const;
  BookPlace* place_of(PoolOffset chunk);
  BookShadow& append_chunk(BookPlace& place, PoolOffset at, std::uint64_t id);
  void free_chunk(BookShadow& shadow);
  BookPlace& place_for_chunk();
  Status new_segment();
  void prepare_chunk(PoolOffset o, std::uint64_t id);
  void start_chunk();
  EntryRef append(std::uint64_t raw);
  EntryRef append_tombstone(EntryRef killed);
  const std::uint64_t& word(EntryRef e) const { return chunk(e.shadow()->at)->entry(e.index()); }
  void clear_bit(BookShadow& shadow, unsigned i);
  void may_leave(BookShadow& shadow);

  // --- book_gc.cc
  void tend_locked(bool thoroughly);
  void collect_empty();
  void unlink(BookShadow& shadow);
  bool wants_rewrite(bool thoroughly) const;
  void rewrite();
  void give_back_segments(bool thoroughly);

  pm::PoolFile& file_;
  FrameSource& frames_;
  Slots& slots_;
  const HeapOptions& options_;

  // spare == room() - live - 2 * promised - kRedoneEntries
  std::atomic<std::int64_t> spare_ = 0;
  std::atomic<bool> wants_tending_ = false;  // a chunk was begun

  mutable pm::ShortLock mu_;
  // Guarded by mu_.
  std::vector<BookPlace> segments_;  // in the order of their list
  std::uint64_t chunks_ = 0;         // in the list
  std::uint64_t free_chunks_ = 0;    // the one with the lowest offset is taken first
  BookShadow* first_ = nullptr;      // of the list
  BookShadow* last_ = nullptr;
  BookShadow* empty_ = nullptr;             // chunks without bits, except the last
  unsigned tail_used_ = kBookChunkEntries;  // entries used in the last chunk
  std::uint64_t next_id_ = 1;
  std::uint64_t live_ = 0;
  std::uint64_t fast_gcs_ = 0, slow_gcs_ = 0, given_back_ = 0;
};

}  // namespace TENUTO_NS::heap
