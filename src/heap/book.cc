#include "heap/book.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::heap {

namespace {
constexpr std::uint64_t kCompactChunksLeast = 4;  // below this a log is not worth compacting
}

Status Book::damaged(Report* report, PoolOffset o, std::string_view what) const {
  return fail(Status::corrupt, report, "the bookkeeping log is damaged", file_.where(o, what));
}

Status Book::open(std::vector<BookRecord>& live, Report* report) {
  TENUTO_TRY(open_segments(report));
  TENUTO_TRY(open_list(list_, report));
  std::unordered_set<std::uint64_t> killed;
  std::unordered_map<std::uint64_t, BookRecord> records;
  for (std::size_t c = 0; c < list_.size(); ++c) {
    for (unsigned i = 0; i < kBookChunkEntries; ++i) {
      const BookEntry e{chunk(list_[c])->entry(i)};
      if (e.raw == 0) continue;
      const unsigned end = TENUTO_PLANT("heap_book_holes_not_counted") ? tail_used_ + 1 : i + 1;
      if (c + 1 == list_.size()) tail_used_ = end;
      const BookPosition at = BookPosition::make(list_[c], i);
      if (e.type() == BookType::tombstone) {
        killed.insert(e.killed().value);
        continue;
      }
      const bool sound = e.type() != BookType::empty && e.frames() != 0 &&
                         file_.in_range(e.offset(), e.frames() * kFrameBytes);
      if (!sound) return damaged(report, list_[c], "entry " + std::to_string(i));
      const Kind kind = e.type() == BookType::logged ? Kind::logged : Kind::derived;
      records.emplace(at.value, BookRecord{e.offset(), e.frames(), kind, at});
    }
  }
  for (const std::uint64_t k : killed) records.erase(k);
  for (const auto& [position, record] : records) live.push_back(record);
  std::sort(live.begin(), live.end(), [](const BookRecord& a, const BookRecord& b) {
    return a.offset.value < b.offset.value;
  });
  return Status::ok;
}

Status Book::open_segments(Report* report) {
  const std::uint64_t segments_max = file_.bytes() / kBookSegmentBytes;
  for (PoolOffset o{head().segment}; o;) {
    if (!file_.in_range(o, kBookSegmentBytes) || o.value % kBookSegmentBytes != 0) {
      return damaged(report, o, "segment outside the pool");
    }
    const auto& s = *file_.at<BookSegment>(o);
    if (s.magic != kBookSegmentMagic || s.self != o.value) {
      return damaged(report, o, "segment header");
    }
    segments_.push_back(o);
    if (segments_.size() > segments_max) return damaged(report, o, "segments form a loop");
    o = {s.next};
  }
  return Status::ok;
}

Status Book::open_list(std::vector<PoolOffset>& list, Report* report) {
  if (head().alt > 1) {
    return damaged(report, {pm::kHeadPageOffset + offsetof(pm::HeadPage, heap)}, "alt");
  }
  std::unordered_set<std::uint64_t> unused;
  for (const PoolOffset s : segments_) {
    for (std::uint64_t at = kBookChunkBytes; at < kBookSegmentBytes; at += kBookChunkBytes) {
      unused.insert(s.value + at);
    }
  }
  for (PoolOffset o{head().list[head().alt]}; o; o = {chunk(o)->next}) {
    // Erased when visited, so a loop or a foreign chunk is found here.
    if (unused.erase(o.value) == 0) return damaged(report, o, "chunk list");
    if (chunk(o)->magic != kBookChunkMagic || chunk(o)->self != o.value) {
      return damaged(report, o, "chunk header");
    }
    list.push_back(o);
  }
  for (const std::uint64_t o : unused) free_chunks_.push_back({o});
  std::sort(free_chunks_.begin(), free_chunks_.end(), std::greater<>());
  if (!list.empty()) tail_used_ = 0;
  return Status::ok;
}

std::uint64_t Book::room() const {
  return free_chunks_.size() * kBookChunkEntries + (kBookChunkEntries - tail_used_);
}

Status Book::ensure_room(std::uint64_t entries) {
  while (room() < entries) TENUTO_TRY(new_segment());
  return Status::ok;
}

Status Book::new_segment() {
  const Result<PoolOffset> frame = frames_.get(frame::kOrderSlab, 0);
  if (!frame) return frame.error();
  auto& s = *file_.at<BookSegment>(*frame);
  if (TENUTO_PLANT("heap_book_segment_linked_early")) publish(head().segment, frame->value);
  s = {kBookSegmentMagic, frame->value, head().segment, {}};
  flush(s);
  fence("book segment header", "segment is linked");
  publish(head().segment, frame->value);
  fence("segment is linked", "its chunks are used");
  segments_.push_back(*frame);
  for (std::uint64_t at = kBookSegmentBytes - kBookChunkBytes; at > 0; at -= kBookChunkBytes) {
    free_chunks_.push_back(*frame + at);
  }
  return Status::ok;
}

// Zeroes a free chunk and gives it its header; flushed, not fenced.
void Book::prepare_chunk(PoolOffset o) {
  BookChunk& c = *chunk(o);
  if (!TENUTO_PLANT("heap_book_chunk_not_zeroed")) zero_flush(&c, sizeof c);
  c.self = o.value;
  store_ordered(c.magic, kBookChunkMagic);
  flush_bytes(&c, kLineBytes);
}

void Book::start_chunk() {
  TENUTO_ASSERT(!free_chunks_.empty());
  const PoolOffset o = free_chunks_.back();
  free_chunks_.pop_back();
  if (TENUTO_PLANT("heap_book_chunk_linked_early") && !list_.empty()) {
    publish(chunk(list_.back())->next, o.value);
  }
  prepare_chunk(o);
  fence("empty book chunk", "chunk is linked");
  if (list_.empty()) {
    publish(head().list[head().alt], o.value);
  } else {
    publish(chunk(list_.back())->next, o.value);
  }
  fence("chunk is linked", "its entries count");
  list_.push_back(o);
  tail_used_ = 0;
}

BookPosition Book::append(BookEntry entry) {
  if (list_.empty() || tail_used_ == kBookChunkEntries) start_chunk();
  const unsigned i = tail_used_++;
  publish(chunk(list_.back())->entry(i), entry.raw);
  return BookPosition::make(list_.back(), i);
}

bool Book::wants_compaction(std::uint64_t live) const {
  const std::uint64_t used = list_.size() * kBookChunkEntries;
  return list_.size() > kCompactChunksLeast && used > 4 * live;
}

void Book::compact(std::uint64_t live, const std::function<void(const Sink&)>& each) {
  const std::uint64_t chunks = live / kBookChunkEntries + 1;
  if (free_chunks_.size() < chunks) return;
  std::vector<PoolOffset> fresh(free_chunks_.end() - static_cast<std::ptrdiff_t>(chunks),
                                free_chunks_.end());
  free_chunks_.resize(free_chunks_.size() - chunks);
  for (std::size_t c = 0; c < chunks; ++c) {
    prepare_chunk(fresh[c]);
    chunk(fresh[c])->next = c + 1 < chunks ? fresh[c + 1].value : 0;
  }
  std::uint64_t n = 0;
  each([&](BookEntry e) {
    const PoolOffset at = fresh[n / kBookChunkEntries];
    const auto i = static_cast<unsigned>(n++ % kBookChunkEntries);
    chunk(at)->entry(i) = e.raw;
    return BookPosition::make(at, i);
  });
  TENUTO_ASSERT(n == live);
  for (const PoolOffset o : fresh) flush_bytes(chunk(o), kBookChunkBytes);
  const std::uint64_t other = 1 - head().alt;
  if (TENUTO_PLANT("heap_compaction_flips_early")) publish(head().alt, other);
  publish(head().list[other], fresh.front().value);
  fence("compacted list", "alt names it");
  publish(head().alt, other);
  fence("alt names it", "old chunks are reused");
  free_chunks_.insert(free_chunks_.end(), list_.begin(), list_.end());
  list_ = std::move(fresh);
  tail_used_ = static_cast<unsigned>(n - (chunks - 1) * kBookChunkEntries);
}

}  // namespace tenuto::inline TENUTO_ABI::heap
