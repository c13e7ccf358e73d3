// The bookkeeping log: which extents and huge objects are in use (NVAlloc's log-structured
// bookkeeping). Each core appends to a chunk of its own.
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
// freed. The entries that its tombstones kill are in no list any more, or leave with it. The list
// is in the order of ids. **An entry is never in a later chunk than its tombstone**: a core whose
// chunk is older than the entry's appends the tombstone to a later one. So no two chunks wait for
// each other, and the oldest one can leave as soon as it has no live extents.
//
// A tombstone names a chunk by its id. Ids grow and are never used again. So a tombstone means
// nothing once that chunk has left, even if its place is used again. The last chunk of the list has
// the largest id and never leaves, so no crash can bring an old id back.
//
// **Tails.** A core appends to its tail under the tail's lock alone. A new chunk, garbage
// collection and all that looks at the whole list hold mu_ and the locks of all tails. A chunk that
// is a tail is open: it does not leave the list. The last chunk is one.
//
// **Room.** Each extent in use needs room for a tombstone, each promised one for an entry and a
// tombstone. Only the last chunk can take any of them. So what is left in other tails does not
// count as room, and what is appended there gives its room back. A core begins a chunk only if the
// room that is left in the last one, which then counts no more, can be spared; else it appends to
// that.
//
//   spare + all credits == room() - live - 2 * promised - kRedoneEntries
//   room() == kBookChunkEntries * free chunks + what is left in the last chunk
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

// Recovery may find holes where entries were lost, and has to append these again. It has no frames
// for them, so room is kept: at most one entry a lane.
inline constexpr std::uint64_t kRedoneEntries = pm::kLaneSegmentsMax * pm::kLanesPerSegment;

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
  BookShadow* next_empty = nullptr;  // next chunk that may leave
  // How many entries matter, and kOpen while the chunk is a tail. Other cores kill its entries.
  std::atomic<unsigned> count = 0;
  // By entry: that it matters; or, of an extent's, the tombstone in another chunk that names it.
  // Whoever appends the entry, or has claimed its extent, stores it.
  std::array<EntryRef, kBookChunkEntries> state{};

  static constexpr unsigned kOpen = 1u << 16;
  static constexpr EntryRef kMatters{1};  // no reference: the shadow would be null

  bool matter(unsigned i) const { return state[i].raw == kMatters.raw; }
  void set(unsigned i) {
    state[i] = kMatters;
    count.fetch_add(1, std::memory_order_relaxed);
  }
  // Null: the tombstone is in this chunk, or there is none. Returns whether the chunk may leave.
  bool clear(unsigned i, EntryRef killer = {}) {
    state[i] = killer;
    return count.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  EntryRef killer(unsigned i) const { return matter(i) ? EntryRef{} : state[i]; }
  void open() { count.fetch_add(kOpen, std::memory_order_relaxed); }
  // Returns whether it may leave.
  bool close() { return count.fetch_sub(kOpen, std::memory_order_acq_rel) == kOpen; }
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
  Book(pm::PoolFile& file, FrameSource& frames, Slots& slots, const HeapOptions& options,
       unsigned tails)
      : file_(file), frames_(frames), slots_(slots), options_(options), tails_(tails) {}

  // Reads the log. `live` is sorted by offset. corrupt, with the place of what is damaged.
  Status open(std::vector<BookRecord>& live, Report* report);

  // Reserves room for an extent's entry and its tombstone, before the extent is taken. full when
  // the pool has no frame for the room. Cost: one atomic subtraction in a line of the core's; now
  // and then the log is tended.
  Status promise(unsigned core);
  void unpromise() { spare_.fetch_add(2, std::memory_order_relaxed); }

  // Append, and return the word that the caller flushes; durable after the caller's fence. The
  // flush is not made under the lock, since the unlock would wait for it. REQUIRES for record:
  // promise() was called for it; for erase: the extent was recorded.
  [[nodiscard]] const std::uint64_t& record(PoolOffset o, std::uint64_t frames, Kind kind,
                                            unsigned core);
  [[nodiscard]] const std::uint64_t& erase(PoolOffset o, unsigned core);
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

  // In lines of its own.
  struct alignas(2 * kLineBytes) Tail {
    mutable pm::ShortLock mu;
    // Guarded by mu.
    BookShadow* chunk = nullptr;
    unsigned used = 0;      // of its entries
    std::int64_t live = 0;  // recorded here, less erased here
    // Room that was taken from spare_ for promises to come.
    std::atomic<std::int64_t> credit = 0;

    bool has_room(std::uint64_t least) const {
      return chunk != nullptr && used < kBookChunkEntries && chunk->id >= least;
    }
  };
  // Holds mu_ and the locks of all tails.
  class All {
   public:
    explicit All(const Book& book);
    ~All();
    All(const All&) = delete;
    All& operator=(const All&) = delete;

   private:
    const Book& book_;
  };
  Tail& tail_of(unsigned core) { return tails_[core % tails_.size()]; }

  // REQUIRES for these: the tail's lock is held, and it has room.
  EntryRef append(Tail& tail, std::uint64_t raw);
  const std::uint64_t& append_extent(Tail& tail, PoolOffset o, std::uint64_t raw);
  const std::uint64_t& append_tombstone(Tail& tail, EntryRef killed);

  // REQUIRES for all below: All is held, or the pool is being opened.
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
  void start_chunk(Tail& tail);
  // A tail with room in a chunk whose id is at least `least`. REQUIRES: there is room().
  Tail& tail_with_room(unsigned core, std::uint64_t least);
  void set_tail(Tail& tail, BookShadow* chunk, unsigned used);
  void take_credits();
  unsigned left_in_last() const;
  std::uint64_t live() const;
  const std::uint64_t& word(EntryRef e) const { return chunk(e.shadow()->at)->entry(e.index()); }
  void may_leave(BookShadow& shadow);  // also while only a tail's lock is held

  // --- book_gc.cc
  void tend_locked(bool thoroughly);
  void collect_empty();
  void unlink(BookShadow& shadow);
  bool wants_rewrite(bool thoroughly) const;
  bool rewrite_if(bool thoroughly);  // if it wants_rewrite; returns whether there is more room now
  void rewrite();
  void give_back_segments(bool thoroughly);

  pm::PoolFile& file_;
  FrameSource& frames_;
  Slots& slots_;
  const HeapOptions& options_;

  std::atomic<std::int64_t> spare_ = 0;
  std::atomic<bool> wants_tending_ = false;   // a chunk was begun
  std::atomic<BookShadow*> empty_ = nullptr;  // chunks without bits; taken off under All

  mutable pm::ShortLock mu_;
  std::vector<Tail> tails_;  // one for each core
  // Changed under All; read under a tail's lock.
  std::vector<BookPlace> segments_;  // in the order of their list
  std::uint64_t chunks_ = 0;         // in the list
  std::uint64_t free_chunks_ = 0;    // the one with the lowest offset is taken first
  BookShadow* first_ = nullptr;      // of the list
  BookShadow* last_ = nullptr;
  std::uint64_t next_id_ = 1;
  std::uint64_t fast_gcs_ = 0, slow_gcs_ = 0, given_back_ = 0;
};

}  // namespace TENUTO_NS::heap
