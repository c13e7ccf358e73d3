// Opening and validating the extents: from the records of the bookkeeping log to chunks and free
// extents.
#include <algorithm>

#include "heap/extent.h"
#include "heap/readings.h"
#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

Status Extents::damaged(Report* report, PoolOffset o, std::string_view what) const {
  return fail(Status::corrupt, report, "the bookkeeping of extents is damaged",
              file_.where(o, what));
}

Status Extents::open(bool clean, Report* report) {
  std::vector<BookRecord> live;
  TENUTO_TRY(book_.open(live, report));
  if (clean) TENUTO_TRY(book_.check_seal(report));
  const std::lock_guard lock(recover_mu_);
  recovered_.reserve(live.size());
  for (const BookRecord& r : live) {
    if (!well_placed(r.offset, r.frames)) return damaged(report, r.offset, "extent's place");
    if (!recovered_.empty() && recovered_.back().record.offset == r.offset) {
      return damaged(report, r.offset, "two extents at one place");
    }
    recovered_.push_back({r});
  }
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

// The first record at o or behind it.
std::vector<Extents::Recovered>::iterator Extents::recovered(PoolOffset o) {
  return std::lower_bound(recovered_.begin(), recovered_.end(), o,
                          [](const Recovered& r, PoolOffset at) { return r.record.offset < at; });
}

bool Extents::known(PoolOffset o) {
  const std::lock_guard lock(recover_mu_);
  const auto it = recovered(o);
  return it != recovered_.end() && it->record.offset == o;
}

std::uint64_t Extents::end_of_known(PoolOffset o) {
  const std::lock_guard lock(recover_mu_);
  const auto after = recovered(o + kSlabBytes);
  if (after == recovered_.begin()) return 0;
  const BookRecord& r = std::prev(after)->record;
  const std::uint64_t end = r.offset.value + r.frames * kFrameBytes;
  return end > o.value ? end : 0;
}

Status Extents::recover(const BookRecord& said, bool allocated, Report* report) {
  const std::lock_guard lock(recover_mu_);
  const PoolOffset o = said.offset;
  const auto it = recovered(o);
  const bool there = it != recovered_.end() && it->record.offset == o;
  if (!allocated) {
    if (!there) return Status::ok;
    if (!is_logged(it->record.kind)) return damaged(report, o, "an intent names it");
    if (TENUTO_PLANT("heap_extent_not_freed_by_replay")) return Status::ok;
    TENUTO_TRY(book_.recover_erase(o));
    recovered_.erase(it);
    return Status::ok;
  }
  if (there) {
    const bool same = it->record.kind == said.kind && it->record.frames == said.frames;
    return same ? Status::ok : damaged(report, o, "an intent says otherwise");
  }
  if (!well_placed(o, said.frames)) return damaged(report, o, "an intent names it");
  BookRecord record = said;
  if (TENUTO_PLANT("heap_recovered_extent_has_no_type")) record.kind = Kind::logged;
  TENUTO_TRY(book_.recover_record(record));
  recovered_.insert(it, {record});
  return Status::ok;
}

Status Extents::mark(PoolOffset o, Report* report) {
  const std::lock_guard lock(recover_mu_);
  const auto it = recovered(o);
  if (it == recovered_.end() || it->record.offset != o || it->record.kind != Kind::derived) {
    return damaged(report, o, "no extent there, but it is referred to");
  }
  if (it->marked) return damaged(report, o, "referred to twice");
  it->marked = true;
  return Status::ok;
}

void Extents::for_each_recovered(const std::function<void(const BookRecord&)>& f) const {
  const std::lock_guard lock(recover_mu_);
  for (const Recovered& r : recovered_) f(r.record);
}

void Extents::mark_reached(const ReachedMarks& marks) {
  const std::lock_guard lock(recover_mu_);
  for (Recovered& r : recovered_) {
    if (is_logged(r.record.kind)) r.marked = marks.has(r.record.offset);
  }
}

Status Extents::build(bool drop_unmarked, Report* report) {
  const std::lock_guard lock(recover_mu_);
  if (drop_unmarked && !TENUTO_PLANT("heap_unmarked_extents_stay")) {
    const bool gc = file_.consistency() == Consistency::gc;
    for (Recovered& r : recovered_) {
      if (r.dropped || r.marked || (r.record.kind != Kind::derived && !gc)) continue;
      TENUTO_TRY(book_.recover_erase(r.record.offset));
      r.dropped = true;
    }
    std::erase_if(recovered_, [](const Recovered& r) { return r.dropped; });
  }
  return build_chunks(report);
}

// Entries have no checksum, so they must at least agree with the frame allocator.
bool Extents::whole_huge_frames(PoolOffset o, std::uint64_t frames) const {
  const PoolOffset end = o + frames * kFrameBytes;
  for (PoolOffset at{round_down(o.value, kHugeBytes)}; at < end; at = at + kHugeBytes) {
    if (!frames_.frames().taken(frame_of_offset(at), frame::kOrderHuge)) return false;
  }
  return true;
}

Status Extents::build_chunks(Report* report) {
  // What needs memory comes first: the rest may not be done twice.
  std::map<std::uint64_t, std::uint64_t> larger;
  for (const Recovered& r : recovered_) {
    const std::uint64_t frames = r.record.frames;
    if (frames > kHugeFrames) larger.emplace(frame_of_offset(r.record.offset).value, frames);
  }
  const auto locks = lock_all();
  const std::lock_guard huge(huge_mu_);
  huge_ = std::move(larger);
  std::uint64_t end_before = 0;
  std::uint64_t logged = 0;
  std::uint64_t typed = 0;
  for (const auto& [r, marked, dropped] : recovered_) {
    if (r.offset.value < end_before) return damaged(report, r.offset, "extents overlap");
    if (!whole_huge_frames(r.offset, r.frames)) {
      return damaged(report, r.offset, "extent in frames that are not taken for extents");
    }
    end_before = r.offset.value + r.frames * kFrameBytes;
    slots_.at(r.offset).set(ExtentWord::make(ExtentState::live, r.kind, r.frames));
    (r.frames > kHugeFrames ? huge_taken_ : shards_.front()->taken).add(r.frames);
    logged += is_logged(r.kind) ? 1 : 0;
    typed += r.kind == Kind::typed ? 1 : 0;
    const std::uint64_t frame = frame_of_offset(r.offset).value;
    if (r.frames > kHugeFrames) continue;
    for (std::uint64_t h = frame / kHugeFrames; h <= (end_before - 1) / kHugeBytes; ++h) {
      halves_[h / 2].fetch_or(static_cast<std::uint8_t>(1u << (h % 2)));
      if (nodes_ > 1) {
        owner_[h / 2] =
            static_cast<std::uint8_t>(frames_.frames().node_of(FrameId{h * kHugeFrames}));
      }
    }
  }
  shards_.front()->live.store(logged, std::memory_order_relaxed);
  typed_.store(typed, std::memory_order_relaxed);
  recovered_.clear();
  recovered_.shrink_to_fit();
  fill_gaps();
  return Status::ok;
}

void Extents::fill_gaps() {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  const auto add_gap = [&] {
    if (end > begin) add_free(owner_of(begin), begin, end - begin);
  };
  for_each_extent([&](std::uint64_t frame, const ExtentWord& w) {
    if (frame != end || frame % kChunkFrames == 0) {
      add_gap();
      begin = end = frame;
    }
    if (w.state() == ExtentState::none) {
      end = frame + 1;
      return;
    }
    add_gap();
    begin = end = frame + w.frames();
  });
  add_gap();
}

Status Extents::own_frames(const std::function<Status(PoolOffset, std::uint64_t)>& keep) const {
  for (const PoolOffset s : book_.segments()) {
    TENUTO_TRY(keep(s, kBookSegmentBytes / kFrameBytes));
  }
  const auto locks = lock_all();
  const std::lock_guard huge(huge_mu_);
  for (std::uint64_t h = 0; h < 2 * regions(); ++h) {
    const unsigned halves = halves_[h / 2].load();
    if ((halves >> (h % 2) & 1) == 0) continue;
    const bool second = h % 2 == 1 && halves == 3;
    if (second && TENUTO_PLANT("heap_second_half_of_chunk_not_kept")) continue;
    TENUTO_TRY(keep(offset_of_frame({h * kHugeFrames}), kHugeFrames));
  }
  for (const auto& [frame, frames] : huge_) TENUTO_TRY(keep(offset_of_frame({frame}), frames));
  return Status::ok;
}

// --- introspection -------------------------------------------------------------------------------

void Extents::for_each(Kind kind, const std::function<void(PoolOffset, std::uint64_t)>& f) const {
  std::vector<Block> found;
  const auto look = [&](std::uint64_t frame, const ExtentWord& w) {
    const bool in_use = w.state() == ExtentState::live || w.state() == ExtentState::reserved;
    if (in_use && is_logged(w.kind()) == is_logged(kind)) {
      found.push_back({offset_of_frame({frame}), w.bytes()});
    }
  };
  {
    const auto locks = lock_all();
    const std::lock_guard huge(huge_mu_);
    for_each_extent(look);
    for (const auto& [frame, frames] : huge_) look(frame, slots_[frame].get());
  }
  for (const Block& b : found) f(b.offset, b.bytes);
}

ExtentStats Extents::stats() const {
  ExtentStats s;
  s.book = book_.stats();
  s.live_logged = live_logged();
  Taken taken;
  {
    const std::lock_guard lock(huge_mu_);
    taken = huge_taken_;
  }
  for (const auto& shard : shards_) {
    const std::lock_guard lock(shard->mu);
    const FreeExtents& free = shard->free;
    taken.extents += shard->taken.extents;
    taken.frames += shard->taken.frames;
    s.reclaimed_bytes += free.frames_resident() * kFrameBytes;
    s.retained_bytes += (free.frames_free() - free.frames_resident()) * kFrameBytes;
  }
  const std::uint64_t leaving = std::min(leaving_frames(), taken.frames);
  s.count = taken.extents;
  s.allocated_bytes = (taken.frames - leaving) * kFrameBytes;
  s.leaving_bytes = leaving * kFrameBytes;
  return s;
}

std::uint64_t Extents::live_logged() const {
  std::uint64_t n = 0;
  for (const auto& shard : shards_) n += shard->live.load(std::memory_order_relaxed);
  return n;
}

std::uint64_t Extents::leaving_frames() const {
  std::uint64_t n = 0;
  for (const auto& shard : shards_) n += shard->leaving_frames.load(std::memory_order_relaxed);
  return n;
}

Status Extents::validate_chunks(std::uint64_t entries, Report* report) const {
  Status status = Status::ok;
  const auto bad = [&](std::uint64_t frame, const char* what) {
    if (status == Status::ok) status = damaged(report, offset_of_frame({frame}), what);
  };
  std::uint64_t free_frames = 0, resident_frames = 0, live = 0, logged = 0, typed = 0, next = 0;
  std::uint64_t leaving = 0;
  bool free_before = false;
  const auto count = [&](std::uint64_t frame, const ExtentWord& w) {
    const bool in_log = w.state() == ExtentState::live || w.state() == ExtentState::claimed;
    live += in_log ? 1 : 0;
    logged += is_logged(w.kind()) && w.state() == ExtentState::live ? 1 : 0;
    const bool goes = w.state() == ExtentState::claimed || w.state() == ExtentState::killed;
    if (goes) leaving += w.frames();
    if (w.kind() != Kind::typed) return;
    typed += 1;
    if (in_log && type_word(offset_of_frame({frame})) == 0) bad(frame, "typed, without a type");
  };
  for_each_extent([&](std::uint64_t frame, const ExtentWord& w) {
    const bool free_now = w.state() == ExtentState::free;
    if (!free_now && !w.used()) return bad(frame, "chunk is not covered by extents");
    const std::uint64_t end = frame + w.frames();
    if ((end - 1) / kChunkFrames != frame / kChunkFrames) bad(frame, "extent leaves its chunk");
    const bool neighbour = frame == next && frame % kChunkFrames != 0;
    if (free_now && free_before && neighbour) bad(frame, "free neighbours not joined");
    if (free_now && owner_of(frame).free.ending_at(end - 1) != frame)
      bad(frame, "free extent without its end");
    free_before = free_now;
    next = end;
    if (!free_now) return count(frame, w);
    const std::uint64_t holes = frames_.holes().count(frame, w.frames());
    if (w.frames() - holes != w.resident()) bad(frame, "pages are miscounted");
    free_frames += w.frames();
    resident_frames += w.resident();
  });
  for (const auto& [frame, frames] : huge_) count(frame, slots_[frame].get());
  std::uint64_t listed = 0, said_free = 0, said_resident = 0;
  for (const auto& shard : shards_) {
    shard->free.for_each_from(1, [&](std::uint64_t frame, std::uint64_t frames) {
      const ExtentWord w = slots_[frame].get();
      const bool is_free = w.state() == ExtentState::free && w.frames() == frames;
      if (!is_free || &owner_of(frame) != shard.get()) bad(frame, "not free, but listed");
      listed += frames;
    });
    said_free += shard->free.frames_free();
    said_resident += shard->free.frames_resident();
  }
  TENUTO_TRY(status);
  const bool agree =
      listed == free_frames && said_free == free_frames && said_resident == resident_frames;
  if (!agree) return damaged(report, {}, "free lists disagree");
  if (logged != live_logged()) return damaged(report, {}, "live extents are miscounted");
  if (leaving != leaving_frames()) return damaged(report, {}, "freed extents are miscounted");
  if (typed != typed_.load()) return damaged(report, {}, "extents with types are miscounted");
  if (live != entries) return damaged(report, {}, "entries and extents differ");
  return Status::ok;
}

Status Extents::validate(Report* report) const {
  TENUTO_TRY(book_.validate(report));
  const std::uint64_t entries = book_.stats().live_entries;
  const auto locks = lock_all();
  const std::lock_guard huge(huge_mu_);
  return validate_chunks(entries, report);
}

}  // namespace TENUTO_NS::heap
