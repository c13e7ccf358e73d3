// The extents' side of opening a pool: from the records of the bookkeeping log to chunks and free
// extents, and their validation.
#include <algorithm>

#include "heap/extent.h"
#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::heap {

Status Extents::damaged(Report* report, PoolOffset o, std::string_view what) const {
  return fail(Status::corrupt, report, "the bookkeeping of extents is damaged",
              file_.where(o, what));
}

Status Extents::open(Report* report) {
  const std::lock_guard lock(mu_);
  std::vector<BookRecord> live;
  TENUTO_TRY(book_.open(live, report));
  for (const BookRecord& r : live) {
    if (!well_placed(r.offset, r.frames)) return damaged(report, r.offset, "extent's place");
    if (!recovered_.emplace(r.offset.value, Recovered{r.frames, r.kind, r.position, false})
             .second) {
      return damaged(report, r.offset, "two extents at one place");
    }
  }
  live_ = recovered_.size();
  return Status::ok;
}

bool Extents::well_placed(PoolOffset o, std::uint64_t frames) const {
  if (o.value % kFrameBytes != 0 || frames == 0) return false;
  if (!file_.in_range(o, frames * kFrameBytes)) return false;
  if (frames > kExtentBytesMax / kFrameBytes) {
    return o.value % kHugeBytes == 0 && frames % kHugeFrames == 0;
  }
  return o.value / kChunkBytes == (o.value + frames * kFrameBytes - 1) / kChunkBytes;
}

bool Extents::known(PoolOffset o) const {
  const std::lock_guard lock(mu_);
  return recovered_.contains(o.value);
}

std::uint64_t Extents::end_of_known(PoolOffset o) const {
  const std::lock_guard lock(mu_);
  auto after = recovered_.lower_bound(o.value + kSlabBytes);
  if (after == recovered_.begin()) return 0;
  const auto& [offset, r] = *std::prev(after);
  const std::uint64_t end = offset + r.frames * kFrameBytes;
  return end > o.value ? end : 0;
}

Status Extents::recover(PoolOffset o, std::uint64_t frames, bool allocated, Report* report) {
  const std::lock_guard lock(mu_);
  const auto it = recovered_.find(o.value);
  if (!allocated) {
    if (it == recovered_.end()) return Status::ok;
    if (it->second.kind != Kind::logged) return damaged(report, o, "an intent names it");
    if (TENUTO_PLANT("heap_extent_not_freed_by_replay")) return Status::ok;
    TENUTO_TRY(book_.ensure_room(1));
    book_.append(BookEntry::make_tombstone(it->second.position));
    recovered_.erase(it);
    live_ -= 1;
    return Status::ok;
  }
  if (it != recovered_.end()) {
    const bool same = it->second.kind == Kind::logged && it->second.frames == frames;
    return same ? Status::ok : damaged(report, o, "an intent says otherwise");
  }
  if (!well_placed(o, frames)) return damaged(report, o, "an intent names it");
  TENUTO_TRY(book_.ensure_room(2));
  const auto at = book_.append(BookEntry::make_extent(BookType::logged, o, frames));
  recovered_.emplace(o.value, Recovered{frames, Kind::logged, at, false});
  live_ += 1;
  return Status::ok;
}

Status Extents::mark(PoolOffset o, Report* report) {
  const std::lock_guard lock(mu_);
  const auto it = recovered_.find(o.value);
  if (it == recovered_.end() || it->second.kind != Kind::derived) {
    return damaged(report, o, "no extent there, but it is referred to");
  }
  if (it->second.marked) return damaged(report, o, "referred to twice");
  it->second.marked = true;
  return Status::ok;
}

Status Extents::build(bool drop_unmarked, Report* report) {
  const std::lock_guard lock(mu_);
  if (drop_unmarked && !TENUTO_PLANT("heap_unmarked_extents_stay")) {
    for (auto it = recovered_.begin(); it != recovered_.end();) {
      if (it->second.kind != Kind::derived || it->second.marked) {
        ++it;
        continue;
      }
      TENUTO_TRY(book_.ensure_room(1));
      book_.append(BookEntry::make_tombstone(it->second.position));
      it = recovered_.erase(it);
      live_ -= 1;
    }
  }
  return build_chunks(report);
}

// Entries have no checksum: what they say must at least agree with the frame allocator.
bool Extents::whole_huge_frames(PoolOffset o, std::uint64_t frames) const {
  const PoolOffset end = o + frames * kFrameBytes;
  for (PoolOffset at{round_down(o.value, kHugeBytes)}; at < end; at = at + kHugeBytes) {
    if (!frames_.frames().taken(frame_of_offset(at), frame::kOrderHuge)) return false;
  }
  return true;
}

Status Extents::build_chunks(Report* report) {
  std::uint64_t end_before = 0;
  for (const auto& [offset, r] : recovered_) {
    if (offset < end_before) return damaged(report, {offset}, "extents overlap");
    if (!whole_huge_frames({offset}, r.frames)) {
      return damaged(report, {offset}, "extent in frames that are not taken for extents");
    }
    end_before = offset + r.frames * kFrameBytes;
    auto* e = new Extent{{offset}, r.frames, ExtentState::live, r.kind, r.position};
    allocated_frames_ += r.frames;
    if (r.frames > kExtentBytesMax / kFrameBytes) {
      pages_.set(e->offset, PageOwner::huge, e);
      huge_.emplace(offset, e);
      continue;
    }
    const PoolOffset region{round_down(offset, kChunkBytes)};
    const auto first = static_cast<unsigned>((offset - region.value) / kFrameBytes);
    const auto half_begin = first / kHugeFrames * kHugeFrames;
    const auto half_end = static_cast<unsigned>(round_up(first + r.frames, kHugeFrames));
    auto it = chunks_.find(region.value);
    Chunk& chunk = it == chunks_.end() ? add_chunk(region, half_begin, half_end) : *it->second;
    if (chunk.end < half_end) {
      for (std::uint64_t at = chunk.end * kFrameBytes; at < half_end * kFrameBytes;
           at += kSlabBytes) {
        pages_.set(region + at, PageOwner::chunk, &chunk);
      }
      chunk.end = half_end;
    }
    place(chunk, e);
  }
  recovered_.clear();
  for (auto& [region, chunk] : chunks_) fill_gaps(*chunk);
  return Status::ok;
}

void Extents::fill_gaps(Chunk& chunk) {
  unsigned i = chunk.first;
  while (i < chunk.end) {
    if (chunk.at[i] != nullptr) {
      i += static_cast<unsigned>(chunk.at[i]->frames);
      continue;
    }
    unsigned end = i + 1;
    while (end < chunk.end && chunk.at[end] == nullptr) ++end;
    place(chunk,
          new Extent{chunk.region + i * kFrameBytes, end - i, ExtentState::free, Kind::logged, {}});
    i = end;
  }
}

Status Extents::own_frames(const std::function<Status(PoolOffset, std::uint64_t)>& keep) const {
  const std::lock_guard lock(mu_);
  for (const auto& [region, chunk] : chunks_) {
    for (unsigned f = chunk->first; f < chunk->end; f += kHugeFrames) {
      if (TENUTO_PLANT("heap_second_half_of_chunk_not_kept") && f > chunk->first) break;
      TENUTO_TRY(keep(chunk->region + f * kFrameBytes, kHugeFrames));
    }
  }
  for (const auto& [offset, e] : huge_) TENUTO_TRY(keep(e->offset, e->frames));
  for (const PoolOffset s : book_.segments()) {
    TENUTO_TRY(keep(s, kBookSegmentBytes / kFrameBytes));
  }
  return Status::ok;
}

Status Extents::validate(Report* report) const {
  const std::lock_guard lock(mu_);
  std::uint64_t free_frames = 0;
  std::uint64_t live = 0;
  for (const auto& [region, chunk] : chunks_) {
    bool free_before = false;
    for (unsigned i = chunk->first; i < chunk->end;) {
      const Extent* e = chunk->at[i];
      const PoolOffset at = chunk->region + i * kFrameBytes;
      if (e == nullptr || e->offset != at || e->frames == 0 || i + e->frames > chunk->end) {
        return damaged(report, at, "chunk is not covered by extents");
      }
      const bool free_now = e->state == ExtentState::free;
      if (free_now && free_before) return damaged(report, at, "free neighbours not joined");
      if (free_now && !free_.contains({e->frames, e->offset.value})) {
        return damaged(report, at, "free extent not listed");
      }
      if (free_now) free_frames += e->frames;
      if (e->state == ExtentState::live || e->state == ExtentState::claimed) live += 1;
      free_before = free_now;
      i += static_cast<unsigned>(e->frames);
    }
  }
  for (const auto& [offset, e] : huge_) {
    if (e->state == ExtentState::live || e->state == ExtentState::claimed) live += 1;
  }
  std::uint64_t listed = 0;
  for (const FreeKey& k : free_) listed += k.first;
  if (listed != free_frames) return damaged(report, {}, "free lists disagree");
  if (live != live_) return damaged(report, {}, "live extents are miscounted");
  return Status::ok;
}

}  // namespace tenuto::inline TENUTO_ABI::heap
