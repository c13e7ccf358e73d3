// What tells whether the bookkeeping log is sound: the seal of a clean close, figures, validation.
#include <algorithm>

#include "heap/book.h"
#include "pm/crc32c.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

void Book::flush_list() const {
  const All all(*this);
  for (const BookShadow* t = first_; t != nullptr; t = t->next) {
    flush_bytes(chunk(t->at), kBookChunkBytes);
  }
}

BookSeal Book::seal_of_list(std::uint64_t sequence) const {
  std::uint32_t crc = ~0u;
  for (const BookShadow* t = first_; t != nullptr; t = t->next) {
    crc = pm::crc32c(chunk(t->at), kBookChunkBytes, crc);
  }
  return BookSeal::make(sequence, crc);
}

void Book::seal() {
  const All all(*this);
  store_ordered(head().seal, seal_of_list(file_.superblock().sequence + 1));
  flush(head().seal);
}

Status Book::check_seal(Report* report) const {
  const All all(*this);
  const std::uint64_t closed = file_.superblock().closed;
  if (!untouched() || head().seal.raw == seal_of_list(closed).raw) return Status::ok;
  return damaged(report, {pm::kHeadPageOffset + offsetof(pm::HeadPage, heap)},
                 "the list is not that of the last close");
}

bool Book::untouched() const {
  const std::uint64_t closed = file_.superblock().closed;
  return closed != 0 && head().seal.is_of(closed);
}

// Also one that is broken already: a process that was killed may not have flushed it. And in a pool
// that turned read-only meanwhile: a call that is under way may still change a slab.
void Book::break_seal() {
  if (file_.opened_to_read()) return;
  if (!TENUTO_PLANT("heap_seal_not_broken_by_use")) publish(head().seal, BookSeal{});
  fence("seal of the list is broken", "the heap changes");
}

std::vector<PoolOffset> Book::segments() const {
  const All all(*this);
  std::vector<PoolOffset> found;
  for (const BookPlace& place : segments_) found.push_back(place.at());
  return found;
}

BookStats Book::stats() const {
  const All all(*this);
  return {segments_.size() * kBookSegmentBytes,
          chunks_ * kBookChunkBytes,
          live(),
          fast_gcs_,
          slow_gcs_,
          given_back_};
}

// Quiescent.
Status Book::validate(Report* report) const {
  const All all(*this);
  for (const BookPlace& place : segments_) {
    const BookSegment& s = segment(place.at());
    if (s.magic != kBookSegmentMagic || s.self != place.at().value)
      return damaged(report, place.at(), "segment header changed");
  }
  std::uint64_t extents = 0;
  for (const BookShadow* t = first_; t != nullptr; t = t->next) {
    const BookChunk& c = *chunk(t->at);
    const std::uint64_t next = t->next == nullptr ? 0 : t->next->at.value;
    if (c.magic != kBookChunkMagic || c.self != t->at.value || c.id != t->id || c.next != next)
      return damaged(report, t->at, "chunk header changed");
    unsigned bits = 0;
    for (unsigned i = 0; i < kBookChunkEntries; ++i) {
      if (!t->matter(i)) continue;
      bits += 1;
      const BookEntry e{c.entry(i)};
      if (e.type() == BookType::empty) return damaged(report, t->at, "entry lost");
      if (e.type() == BookType::tombstone) continue;
      extents += 1;
      const EntryRef entry = slots_.at(e.offset()).entry();
      if (entry.raw != EntryRef::make(const_cast<BookShadow*>(t), i).raw) {
        return damaged(report, t->at, "entry " + std::to_string(i) + " is not its extent's");
      }
    }
    const bool open = std::any_of(tails_.begin(), tails_.end(),
                                  [t](const Tail& tail) { return tail.chunk == t; });
    if (bits + (open ? BookShadow::kOpen : 0) != t->count)
      return damaged(report, t->at, "entries are miscounted");
    if (t == last_ && !open) return damaged(report, t->at, "the last chunk is no tail");
  }
  if (extents != live()) return damaged(report, {}, "live entries are miscounted");
  std::int64_t promised = static_cast<std::int64_t>(room()) - spare_.load();
  for (const Tail& tail : tails_) promised -= tail.credit.load();
  promised -= static_cast<std::int64_t>(live() + kRedoneEntries);
  // Two for each reserved extent.
  if (promised < 0 || promised % 2 != 0) return damaged(report, {}, "its room is miscounted");
  return Status::ok;
}

}  // namespace TENUTO_NS::heap
