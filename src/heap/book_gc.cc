// Garbage collection of the bookkeeping log.
//   fast GC    unlinks chunks in which no entry matters: one word and one fence a chunk, no reads
//   slow GC    writes the live entries to a new list when there are too many dead ones
//   segments   without chunks in use go back to the frame allocator
// All of it runs when an extent is asked for after a chunk was begun, and in trim. At these points
// the room promised to others is there, and no protocol is half-way.
#include <algorithm>

#include "heap/book.h"
#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {
constexpr std::uint64_t kSegmentEntries =
    (kBookSegmentBytes / kBookChunkBytes - 1) * kBookChunkEntries;
// Room that is kept when segments are given back: else the next extents would take one back at
// once.
constexpr std::uint64_t kRoomKept = kSegmentEntries / 2;
}  // namespace

void Book::tend(bool thoroughly) {
  const All all(*this);
  tend_locked(thoroughly);
}

void Book::tend_locked(bool thoroughly) {
  wants_tending_.store(false, std::memory_order_relaxed);
  take_credits();
  for (Tail& tail : tails_) {
    if (thoroughly && tail.chunk != last_) set_tail(tail, nullptr, 0);
  }
  const auto before = static_cast<std::int64_t>(room());
  collect_empty();
  spare_.fetch_add(static_cast<std::int64_t>(room()) - before, std::memory_order_relaxed);
  rewrite_if(thoroughly);
  give_back_segments(thoroughly);
}

// --- fast GC -------------------------------------------------------------------------------------

void Book::collect_empty() {
  while (BookShadow* const t = empty_.load(std::memory_order_acquire)) {
    empty_.store(t->next_empty, std::memory_order_relaxed);
    unlink(*t);
  }
}

// The tombstones that name entries of this chunk are dead only now: no crash can bring the chunk
// back. Their own chunks may thereby become empty.
void Book::unlink(BookShadow& t) {
  TENUTO_ASSERT((t.count == 0 || TENUTO_PLANT("heap_book_tail_leaves")) && &t != last_);
  std::uint64_t& link = t.prev == nullptr ? head().list[head().alt] : chunk(t.prev->at)->next;
  if (TENUTO_PLANT("heap_book_chunk_reused_while_linked")) prepare_chunk(t.at, t.id);
  publish(link, t.next->at.value);
  fence("chunk is unlinked", "its tombstones are dead and it is reused");
  (t.prev == nullptr ? first_ : t.prev->next) = t.next;
  t.next->prev = t.prev;
  for (unsigned i = 0; i < kBookChunkEntries; ++i) {
    const EntryRef killer = t.killer(i);
    if (killer && killer.shadow()->clear(killer.index())) may_leave(*killer.shadow());
  }
  fast_gcs_ += 1;
  free_chunk(t);
}

// --- slow GC -------------------------------------------------------------------------------------

// What cores append to counts for nothing: a rewrite would only make them begin chunks anew.
bool Book::wants_rewrite(bool thoroughly) const {
  std::uint64_t chunks = chunks_;
  for (const Tail& tail : tails_) {
    const bool counts = tail.chunk == nullptr || tail.chunk == last_;
    if (!counts && !TENUTO_PLANT("heap_book_tails_make_a_list_long")) chunks -= 1;
  }
  const std::uint64_t needed = live() / kBookChunkEntries + 1;
  if (thoroughly) return chunks > needed + 1;
  if (chunks <= options_.book_chunks_least) return false;
  if (chunks > options_.book_dead_factor * needed) return true;
  const std::uint64_t share = file_.bytes() / 1'000'000 * options_.book_heap_ppm;
  return chunks * kBookChunkBytes > share && chunks > 2 * needed;
}

bool Book::rewrite_if(bool thoroughly) {
  if (!wants_rewrite(thoroughly)) return false;
  const auto before = static_cast<std::int64_t>(room());
  rewrite();
  const std::int64_t more = static_cast<std::int64_t>(room()) - before;
  spare_.fetch_add(more, std::memory_order_relaxed);
  return more > 0;
}

void Book::rewrite() {
  const std::uint64_t all_live = live();
  const std::uint64_t chunks = all_live / kBookChunkEntries + 1;
  if (free_chunks_ < chunks || first_ == nullptr) return;
  BookShadow* const old = first_;
  first_ = last_ = nullptr;
  for (std::uint64_t c = 0; c < chunks; ++c) {
    BookPlace& place = place_for_chunk();
    const PoolOffset o = place.first_free();
    prepare_chunk(o, next_id_);
    if (last_ != nullptr) chunk(last_->at)->next = o.value;
    append_chunk(place, o, chunk(o)->id);
    next_id_ += 1;
  }
  std::uint64_t n = 0;
  BookShadow* to = first_;
  for (const BookShadow* t = old; t != nullptr; t = t->next) {
    for (unsigned i = 0; i < kBookChunkEntries; ++i) {
      const BookEntry e{chunk(t->at)->entry(i)};
      if (!t->matter(i) || e.type() == BookType::tombstone) continue;
      if (n != 0 && n % kBookChunkEntries == 0) to = to->next;
      const auto at = static_cast<unsigned>(n++ % kBookChunkEntries);
      chunk(to->at)->entry(at) = e.raw;
      to->set(at);
      slots_.at(e.offset()).set_entry(EntryRef::make(to, at));
    }
  }
  TENUTO_ASSERT(n == all_live);
  for (const BookShadow* t = first_; t != nullptr; t = t->next) {
    flush_bytes(chunk(t->at), kBookChunkBytes);
  }
  const std::uint64_t other = 1 - head().alt;
  if (TENUTO_PLANT("heap_compaction_flips_early")) publish(head().alt, other);
  publish(head().list[other], first_->at.value);
  fence("compacted list", "alt names it");
  publish(head().alt, other);
  fence("alt names it", "old chunks are reused");
  for (Tail& tail : tails_) set_tail(tail, nullptr, 0);
  empty_.store(nullptr, std::memory_order_relaxed);  // all of the old list
  for (BookShadow* t = old; t != nullptr;) {
    BookShadow* const next = t->next;
    free_chunk(*t);
    t = next;
  }
  set_tail(tails_[0], last_, static_cast<unsigned>(n - (chunks - 1) * kBookChunkEntries));
  slow_gcs_ += 1;
}

// --- segments ------------------------------------------------------------------------------------

void Book::give_back_segments(bool thoroughly) {
  const std::uint64_t kept = thoroughly ? 0 : kRoomKept;
  for (std::size_t i = segments_.size(); i-- > 0;) {
    const PoolOffset s = segments_[i].at();
    if (segments_[i].any_used()) continue;
    const auto least = static_cast<std::int64_t>(kSegmentEntries + kept);
    if (spare_.fetch_sub(static_cast<std::int64_t>(kSegmentEntries)) < least) {
      spare_.fetch_add(static_cast<std::int64_t>(kSegmentEntries));
      return;
    }
    const std::uint64_t after = segment(s).next;
    const bool early = TENUTO_PLANT("heap_book_segment_returned_while_linked");
    const auto put = [&] {
      if (file_.unprotect(s, kBookSegmentBytes)) frames_.put(s, frame::kOrderSlab, 0);
    };
    if (early) put();
    publish(i == 0 ? head().segment : segment(segments_[i - 1].at()).next, after);
    fence("segment is unlinked", "its frame is given back");
    segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(i));
    free_chunks_ -= BookPlace::kChunks;
    if (!early) put();
    given_back_ += 1;
  }
}

}  // namespace TENUTO_NS::heap
