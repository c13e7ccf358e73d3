// Reads the bookkeeping log and appends to it. book_gc.cc keeps it short.
#include "heap/book.h"

#include <algorithm>
#include <utility>

#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {
// Recovery may find holes where entries were lost, and has to append these again. It has no frames
// for them, so room is kept: at most one entry a lane.
constexpr std::uint64_t kRedoneEntries = pm::kLaneSegmentsMax * pm::kLanesPerSegment;

Kind kind_of(const BookEntry& e) {
  if (e.type() == BookType::derived) return Kind::derived;
  return e.typed() ? Kind::typed : Kind::logged;
}
}  // namespace

Status Book::damaged(Report* report, PoolOffset o, std::string_view what) const {
  return fail(Status::corrupt, report, "the bookkeeping log is damaged", file_.where(o, what));
}

// --- open ----------------------------------------------------------------------------------------

Status Book::open(std::vector<BookRecord>& live, Report* report) {
  ShadowsById shadows;
  TENUTO_TRY(open_segments(report));
  TENUTO_TRY(open_list(shadows, report));
  // Entries first: a tombstone may be read before the entry that it kills.
  for (BookShadow* t = first_; t != nullptr; t = t->next) {
    for (unsigned i = 0; i < kBookChunkEntries; ++i) {
      const BookEntry e{chunk(t->at)->entry(i)};
      if (e.raw == 0) continue;
      const unsigned end = TENUTO_PLANT("heap_book_holes_not_counted") ? tail_used_ + 1 : i + 1;
      if (t == last_) tail_used_ = end;
      if (e.type() == BookType::tombstone) continue;
      const bool sound = e.type() != BookType::empty && e.frames() != 0 &&
                         (!e.typed() || e.type() == BookType::logged) &&
                         file_.in_range(e.offset(), e.frames() * kFrameBytes);
      if (!sound) return damaged(report, t->at, "entry " + std::to_string(i));
      t->set(i);
    }
  }
  for (BookShadow* t = first_; t != nullptr; t = t->next) {
    for (unsigned i = 0; i < kBookChunkEntries; ++i) open_tombstone(shadows, *t, i);
  }
  for (BookShadow* t = first_; t != nullptr; t = t->next) {
    for (unsigned i = 0; i < kBookChunkEntries; ++i) {
      const BookEntry e{chunk(t->at)->entry(i)};
      if (!t->matter(i) || e.type() == BookType::tombstone) continue;
      live.push_back({e.offset(), e.frames(), kind_of(e)});
      slots_.at(e.offset()).set_entry(EntryRef::make(t, i));
    }
    if (t->count == 0 && t != last_) may_leave(*t);
  }
  live_ = live.size();
  spare_.store(static_cast<std::int64_t>(room()) - static_cast<std::int64_t>(live_) -
               static_cast<std::int64_t>(kRedoneEntries));
  wants_tending_.store(true, std::memory_order_relaxed);
  std::sort(live.begin(), live.end(), [](const BookRecord& a, const BookRecord& b) {
    return a.offset.value < b.offset.value;
  });
  return Status::ok;
}

void Book::open_tombstone(const ShadowsById& shadows, BookShadow& shadow, unsigned i) {
  const BookEntry e{chunk(shadow.at)->entry(i)};
  if (e.raw == 0 || e.type() != BookType::tombstone) return;
  const auto it = shadows.find(e.killed().chunk_id());
  const unsigned at = e.killed().index();
  if (it == shadows.end() || at >= kBookChunkEntries) return;  // that chunk has left the list
  BookShadow& target = *it->second;
  const BookEntry killed{chunk(target.at)->entry(at)};
  if (target.matter(at) && killed.type() != BookType::tombstone) target.clear(at);
  if (&target == &shadow || target.killer[at]) return;
  if (TENUTO_PLANT("heap_book_tombstone_dropped_early")) return;
  target.killer[at] = EntryRef::make(&shadow, i);
  shadow.set(i);
}

Status Book::open_segments(Report* report) {
  const std::uint64_t segments_max = file_.bytes() / kBookSegmentBytes;
  for (PoolOffset o{head().segment}; o;) {
    if (!file_.in_range(o, kBookSegmentBytes) || o.value % kBookSegmentBytes != 0) {
      return damaged(report, o, "segment outside the pool");
    }
    const BookSegment& s = segment(o);
    if (s.magic != kBookSegmentMagic || s.self != o.value) {
      return damaged(report, o, "segment header");
    }
    TENUTO_TRY(file_.protect(o, kBookSegmentBytes, report));
    segments_.emplace_back(o);
    free_chunks_ += BookPlace::kChunks;
    if (segments_.size() > segments_max) return damaged(report, o, "segments form a loop");
    o = {s.next};
  }
  return Status::ok;
}

Status Book::open_list(ShadowsById& shadows, Report* report) {
  if (head().alt > 1) {
    return damaged(report, {pm::kHeadPageOffset + offsetof(pm::HeadPage, heap)}, "alt");
  }
  for (PoolOffset o{head().list[head().alt]}; o; o = {chunk(o)->next}) {
    // A chunk is marked used when visited, so a loop or a foreign chunk is found here.
    BookPlace* const place = place_of(o);
    if (place == nullptr || place->used(o)) return damaged(report, o, "chunk list");
    const BookChunk& c = *chunk(o);
    const bool sound = c.magic == kBookChunkMagic && c.self == o.value && c.id != 0;
    if (!sound || shadows.contains(c.id)) return damaged(report, o, "chunk header");
    shadows.emplace(c.id, &append_chunk(*place, o, c.id));
    next_id_ = std::max(next_id_, c.id + 1);
  }
  if (last_ != nullptr) tail_used_ = 0;
  return Status::ok;
}

// --- room ----------------------------------------------------------------------------------------

std::uint64_t Book::room() const {
  return free_chunks_ * kBookChunkEntries + (kBookChunkEntries - tail_used_);
}

Status Book::promise() {
  if (!wants_tending_.load(std::memory_order_relaxed)) [[likely]] {
    if (spare_.fetch_sub(2, std::memory_order_relaxed) >= 2) return Status::ok;
    unpromise();
  }
  const std::lock_guard lock(mu_);
  tend_locked(false);
  while (spare_.fetch_sub(2, std::memory_order_relaxed) < 2) {
    unpromise();
    TENUTO_TRY(new_segment());
  }
  return Status::ok;
}

// Its memory is allocated before anything durable is written.
Status Book::new_segment() {
  if (segments_.size() == segments_.capacity()) segments_.reserve(2 * segments_.size() + 1);
  BookPlace place{PoolOffset{}};
  const Result<PoolOffset> frame = frames_.get(frame::kOrderSlab, 0);
  if (!frame) return frame.error();
  if (const Status s = file_.protect(*frame, kBookSegmentBytes, nullptr); s != Status::ok) {
    frames_.put(*frame, frame::kOrderSlab, 0);
    return s;
  }
  BookSegment& s = segment(*frame);
  if (TENUTO_PLANT("heap_book_segment_linked_early")) publish(head().segment, frame->value);
  s = {kBookSegmentMagic, frame->value, head().segment, {}};
  flush(s);
  fence("book segment header", "segment is linked");
  publish(head().segment, frame->value);
  fence("segment is linked", "its chunks are used");
  place.stand_at(*frame);
  segments_.insert(segments_.begin(), std::move(place));
  free_chunks_ += BookPlace::kChunks;
  constexpr auto fresh = BookPlace::kChunks * kBookChunkEntries;
  spare_.fetch_add(static_cast<std::int64_t>(fresh), std::memory_order_relaxed);
  return Status::ok;
}

// --- chunks --------------------------------------------------------------------------------------

// Null when no segment contains the chunk.
BookPlace* Book::place_of(PoolOffset chunk) {
  const auto at = std::find_if(segments_.begin(), segments_.end(),
                               [&](const BookPlace& place) { return place.has(chunk); });
  return at == segments_.end() ? nullptr : &*at;
}

// The segment with the lowest offset that has a free chunk.
BookPlace& Book::place_for_chunk() {
  BookPlace* lowest = nullptr;
  for (BookPlace& place : segments_) {
    if (place.any_free() && (lowest == nullptr || place.at() < lowest->at())) lowest = &place;
  }
  TENUTO_ASSERT(lowest != nullptr);
  return *lowest;
}

BookShadow& Book::append_chunk(BookPlace& place, PoolOffset at, std::uint64_t id) {
  BookShadow& t = place.use(at);
  t.id = id;
  t.prev = last_;
  (last_ != nullptr ? last_->next : first_) = &t;
  last_ = &t;
  chunks_ += 1;
  free_chunks_ -= 1;
  return t;
}

// The chunk has left the list.
void Book::free_chunk(BookShadow& shadow) {
  place_of(shadow.at)->put(shadow);
  chunks_ -= 1;
  free_chunks_ += 1;
}

// Zeroes a free chunk and writes its header. Flushed, not fenced.
void Book::prepare_chunk(PoolOffset o, std::uint64_t id) {
  BookChunk& c = *chunk(o);
  if (TENUTO_PLANT("heap_book_tombstones_name_places") && c.id != 0) id = c.id;
  if (!TENUTO_PLANT("heap_book_chunk_not_zeroed")) zero_flush(&c, sizeof c);
  c.self = o.value;
  c.id = id;
  store_ordered(c.magic, kBookChunkMagic);
  flush_bytes(&c, kLineBytes);
}

void Book::start_chunk() {
  BookPlace& place = place_for_chunk();
  const PoolOffset o = place.first_free();
  if (TENUTO_PLANT("heap_book_chunk_linked_early") && last_ != nullptr) {
    publish(chunk(last_->at)->next, o.value);
  }
  prepare_chunk(o, next_id_);
  fence("empty book chunk", "chunk is linked");
  publish(last_ == nullptr ? head().list[head().alt] : chunk(last_->at)->next, o.value);
  fence("chunk is linked", "its entries count");
  if (last_ != nullptr && last_->count == 0) may_leave(*last_);
  append_chunk(place, o, chunk(o)->id);
  next_id_ += 1;
  tail_used_ = 0;
  wants_tending_.store(true, std::memory_order_relaxed);
}

EntryRef Book::append(std::uint64_t raw) {
  if (tail_used_ == kBookChunkEntries) start_chunk();
  const unsigned i = tail_used_++;
  store_published(chunk(last_->at)->entry(i), raw);
  return EntryRef::make(last_, i);
}

// --- entries -------------------------------------------------------------------------------------

const std::uint64_t& Book::record(PoolOffset o, std::uint64_t frames, Kind kind) {
  const auto type = is_logged(kind) ? BookType::logged : BookType::derived;
  const std::lock_guard lock(mu_);
  const EntryRef e = append(BookEntry::make_extent(type, o, frames, kind == Kind::typed).raw);
  e.shadow()->set(e.index());
  slots_.at(o).set_entry(e);
  live_ += 1;
  return word(e);
}

void Book::clear_bit(BookShadow& shadow, unsigned i) {
  shadow.clear(i);
  if (shadow.count == 0 && &shadow != last_) may_leave(shadow);
}

void Book::may_leave(BookShadow& shadow) { shadow.next_empty = std::exchange(empty_, &shadow); }

EntryRef Book::append_tombstone(EntryRef killed) {
  const BookPosition names = BookPosition::make(killed.shadow()->id, killed.index());
  const EntryRef e = append(BookEntry::make_tombstone(names).raw);
  const bool needed = !TENUTO_PLANT("heap_book_tombstone_dropped_early");
  if (e.shadow() != killed.shadow() && needed) {
    killed.shadow()->killer[killed.index()] = e;
    e.shadow()->set(e.index());
  }
  clear_bit(*killed.shadow(), killed.index());
  live_ -= 1;
  return e;
}

const std::uint64_t& Book::erase(PoolOffset o) {
  const std::lock_guard lock(mu_);
  return word(append_tombstone(slots_.at(o).entry()));
}

// Recovery has no promise. It uses the room that is kept for it.
Status Book::recover_record(const BookRecord& r) {
  {
    const std::lock_guard lock(mu_);
    if (room() == 0) TENUTO_TRY(new_segment());
    spare_.fetch_sub(2, std::memory_order_relaxed);
  }
  flush(record(r.offset, r.frames, r.kind));
  return Status::ok;
}

Status Book::recover_erase(PoolOffset o) {
  {
    const std::lock_guard lock(mu_);
    if (room() == 0) TENUTO_TRY(new_segment());
  }
  flush(erase(o));
  return Status::ok;
}

}  // namespace TENUTO_NS::heap
