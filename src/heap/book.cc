// Reads the bookkeeping log and appends to it. book_gc.cc keeps it short.
#include "heap/book.h"

#include <algorithm>
#include <utility>

#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {
constexpr std::int64_t kCredit = 64;  // that a core takes from spare_ at once
// A tail is closed when so many chunks are newer, and two more for each core.
constexpr std::uint64_t kLagsLeast = 64;

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
  unsigned used = 0;  // of the last chunk
  for (BookShadow* t = first_; t != nullptr; t = t->next) {
    for (unsigned i = 0; i < kBookChunkEntries; ++i) {
      const BookEntry e{chunk(t->at)->entry(i)};
      if (e.raw == 0) continue;
      const unsigned end = TENUTO_PLANT("heap_book_holes_not_counted") ? used + 1 : i + 1;
      if (t == last_) used = end;
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
  if (last_ != nullptr) set_tail(tails_[0], last_, used);
  tails_[0].live = static_cast<std::int64_t>(live.size());
  spare_.store(static_cast<std::int64_t>(room()) - static_cast<std::int64_t>(live.size()) -
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
  if (&target == &shadow || target.matter(at) || target.killer(at)) return;
  if (TENUTO_PLANT("heap_book_tombstone_dropped_early")) return;
  target.state[at] = EntryRef::make(&shadow, i);
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
  return Status::ok;
}

// --- locks ---------------------------------------------------------------------------------------

Book::All::All(const Book& book) : book_(book) {
  book_.mu_.lock();
  for (const Tail& tail : book_.tails_) tail.mu.lock();
}
Book::All::~All() {
  for (const Tail& tail : book_.tails_) tail.mu.unlock();
  book_.mu_.unlock();
}

// --- room ----------------------------------------------------------------------------------------

unsigned Book::left_in_last() const {
  for (const Tail& tail : tails_) {
    if (last_ != nullptr && tail.chunk == last_) return kBookChunkEntries - tail.used;
  }
  return 0;
}

std::uint64_t Book::room() const { return free_chunks_ * kBookChunkEntries + left_in_last(); }

std::uint64_t Book::live() const {
  std::int64_t n = 0;
  for (const Tail& tail : tails_) n += tail.live;
  return static_cast<std::uint64_t>(n);
}

void Book::take_credits() {
  for (Tail& tail : tails_) {
    spare_.fetch_add(tail.credit.exchange(0, std::memory_order_relaxed), std::memory_order_relaxed);
  }
}

Status Book::promise(unsigned core) {
  if (!wants_tending_.load(std::memory_order_relaxed)) [[likely]] {
    std::atomic<std::int64_t>& credit = tail_of(core).credit;
    if (credit.fetch_sub(2, std::memory_order_relaxed) >= 2) [[likely]]
      return Status::ok;
    credit.fetch_add(2, std::memory_order_relaxed);
    if (spare_.fetch_sub(kCredit + 2, std::memory_order_relaxed) >= kCredit + 2) {
      credit.fetch_add(kCredit, std::memory_order_relaxed);
      return Status::ok;
    }
    spare_.fetch_add(kCredit + 2, std::memory_order_relaxed);
  }
  const All all(*this);
  tend_locked(false);
  while (spare_.fetch_sub(2, std::memory_order_relaxed) < 2) {
    unpromise();
    const Status s = new_segment();
    if (s == Status::ok) continue;
    // The pool is full, but the list may have room for what it need not say any more.
    if (s != Status::full || TENUTO_PLANT("heap_book_full_of_the_dead") || !rewrite_if(true))
      return s;
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

// The chunk that the tail had is closed.
void Book::set_tail(Tail& tail, BookShadow* chunk, unsigned used) {
  BookShadow* const before = tail.chunk;
  if (chunk != nullptr) chunk->open();
  tail.chunk = chunk;
  tail.used = used;
  if (before != nullptr && before->close()) may_leave(*before);
}

void Book::start_chunk(Tail& tail) {
  BookPlace& place = place_for_chunk();
  const PoolOffset o = place.first_free();
  if (TENUTO_PLANT("heap_book_chunk_linked_early") && last_ != nullptr) {
    publish(chunk(last_->at)->next, o.value);
  }
  prepare_chunk(o, next_id_);
  fence("empty book chunk", "chunk is linked");
  publish(last_ == nullptr ? head().list[head().alt] : chunk(last_->at)->next, o.value);
  fence("chunk is linked", "its entries count");
  set_tail(tail, &append_chunk(place, o, chunk(o)->id), 0);
  next_id_ += 1;
  // A full chunk, or one whose core has stopped, shall not stay in the list for that.
  const std::uint64_t lags = kLagsLeast + 2 * tails_.size();
  for (Tail& other : tails_) {
    if (other.chunk == nullptr) continue;
    if (other.used == kBookChunkEntries || other.chunk->id + lags < next_id_)
      set_tail(other, nullptr, 0);
  }
  wants_tending_.store(true, std::memory_order_relaxed);
}

Book::Tail& Book::tail_with_room(unsigned core, std::uint64_t least) {
  Tail& own = tail_of(core);
  if (own.has_room(least)) return own;  // since All is held
  Tail* newest = nullptr;
  for (Tail& tail : tails_) {
    if (last_ != nullptr && tail.chunk == last_ && tail.has_room(0)) newest = &tail;
  }
  if (newest != nullptr && !TENUTO_PLANT("heap_book_room_of_older_tails_counts")) {
    const std::int64_t left = kBookChunkEntries - newest->used;
    if (spare_.fetch_sub(left, std::memory_order_relaxed) < left) {
      spare_.fetch_add(left, std::memory_order_relaxed);
      return *newest;
    }
  }
  start_chunk(own);
  return own;
}

// --- entries -------------------------------------------------------------------------------------

EntryRef Book::append(Tail& tail, std::uint64_t raw) {
  const unsigned i = tail.used++;
  store_published(chunk(tail.chunk->at)->entry(i), raw);
  if (tail.chunk != last_) tail.credit.fetch_add(1, std::memory_order_relaxed);
  return EntryRef::make(tail.chunk, i);
}

const std::uint64_t& Book::append_extent(Tail& tail, PoolOffset o, std::uint64_t raw) {
  const EntryRef e = append(tail, raw);
  e.shadow()->set(e.index());
  slots_.at(o).set_entry(e);
  tail.live += 1;
  return word(e);
}

const std::uint64_t& Book::record(PoolOffset o, std::uint64_t frames, Kind kind, unsigned core) {
  const auto type = is_logged(kind) ? BookType::logged : BookType::derived;
  const std::uint64_t raw = BookEntry::make_extent(type, o, frames, kind == Kind::typed).raw;
  Tail& own = tail_of(core);
  {
    const std::lock_guard lock(own.mu);
    if (own.has_room(0)) [[likely]]
      return append_extent(own, o, raw);
  }
  const All all(*this);
  return append_extent(tail_with_room(core, 0), o, raw);
}

void Book::may_leave(BookShadow& shadow) {
  shadow.next_empty = empty_.load(std::memory_order_relaxed);
  while (!empty_.compare_exchange_weak(shadow.next_empty, &shadow, std::memory_order_release,
                                       std::memory_order_relaxed)) {
  }
}

const std::uint64_t& Book::append_tombstone(Tail& tail, EntryRef killed) {
  BookShadow& target = *killed.shadow();
  const BookPosition names = BookPosition::make(target.id, killed.index());
  const EntryRef e = append(tail, BookEntry::make_tombstone(names).raw);
  const bool needed = e.shadow() != &target && !TENUTO_PLANT("heap_book_tombstone_dropped_early");
  if (needed) e.shadow()->set(e.index());
  bool leaves = target.clear(killed.index(), needed ? e : EntryRef{});
  if (TENUTO_PLANT("heap_book_tail_leaves"))
    leaves = &target != last_ && target.count % BookShadow::kOpen == 0;
  if (leaves) may_leave(target);
  tail.live -= 1;
  return word(e);
}

// The place of the entry is read under a lock: a slow GC moves entries.
const std::uint64_t& Book::erase(PoolOffset o, unsigned core) {
  const auto least = [](EntryRef e) {
    return TENUTO_PLANT("heap_book_tombstone_before_its_entry") ? 0 : e.shadow()->id;
  };
  Tail& own = tail_of(core);
  {
    const std::lock_guard lock(own.mu);
    const EntryRef killed = slots_.at(o).entry();
    if (own.has_room(least(killed))) [[likely]]
      return append_tombstone(own, killed);
  }
  const All all(*this);
  const EntryRef killed = slots_.at(o).entry();
  return append_tombstone(tail_with_room(core, least(killed)), killed);
}

// Recovery has no promise. It uses the room that is kept for it.
Status Book::recover_record(const BookRecord& r) {
  {
    const All all(*this);
    if (room() == 0) TENUTO_TRY(new_segment());
    spare_.fetch_sub(2, std::memory_order_relaxed);
  }
  flush(record(r.offset, r.frames, r.kind, 0));
  return Status::ok;
}

Status Book::recover_erase(PoolOffset o) {
  {
    const All all(*this);
    if (room() == 0) TENUTO_TRY(new_segment());
  }
  flush(erase(o, 0));
  return Status::ok;
}

}  // namespace TENUTO_NS::heap
