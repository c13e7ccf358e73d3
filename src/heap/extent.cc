#include "heap/extent.h"

#include <functional>

#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

Extents::Extents(pm::PoolFile& file, FrameSource& frames, const HeapOptions& options)
    : file_(file),
      frames_(frames),
      options_(options),
      slots_(file.bytes_max()),
      book_(file, frames, slots_, options),
      halves_(file.bytes_max() / kChunkBytes + 1),
      free_(slots_),
      decay_(options, now_ms()) {
  frames.set_reclaim([this] { return give_back_free(); });
}

// --- taking --------------------------------------------------------------------------------------

// `Holes` is authoritative for which frames have pages; a free extent's word repeats their count.
// So every new free extent counts its holes again, also one that was in use. Reason: in a file with
// holes, open takes reserved but never written space for a hole, and this may be at the end of an
// extent in use.
void Extents::add_free(std::uint64_t frame, std::uint64_t frames, AgeOrder age) {
  free_.add(frame, frames, frames - frames_.holes().count(frame, frames), age);
}

// Cuts the request out of a free extent. The rest stays free and keeps its age.
std::uint64_t Extents::carve(std::uint64_t from, const Fit& fit, Kind kind) {
  const ExtentWord w = slots_[from].get();
  const AgeOrder age = free_.remove(from);
  const std::uint64_t at = round_up(from, fit.align);
  const std::uint64_t end = at + fit.frames;
  const std::uint64_t behind = from + w.frames() - end;
  if (at > from) add_free(from, at - from, age);
  if (behind > 0) add_free(end, behind, age);
  slots_[at].set(ExtentWord::make(ExtentState::reserved, kind, fit.frames));
  taken_ += 1;
  taken_frames_ += fit.frames;
  return at;
}

// Takes 4 MiB if possible, else 2 MiB. If the other half of the region belongs to extents, both
// halves become one chunk. Returns the free extent that contains the new half.
Result<std::uint64_t> Extents::new_chunk(unsigned core, std::unique_lock<pm::ShortLock>& lock) {
  lock.unlock();
  unsigned order = frame::kOrderMax;
  Result<PoolOffset> got = frames_.get_unfilled(order, core);
  if (!got) {
    order = frame::kOrderHuge;
    got = frames_.get_unfilled(order, core);
  }
  // Other threads will cut extents from it, and their fences do not cover this thread's flush.
  if (got) fence("frames of a chunk", "extents are cut from it");
  lock.lock();
  if (!got) return got.error();
  const std::uint64_t first = frame_of_offset(*got).value;
  const std::uint64_t frames = std::uint64_t{1} << order;
  for (std::uint64_t f = first; f < first + frames; f += kHugeFrames) {
    halves_of(f) |= static_cast<std::uint8_t>(1u << (f / kHugeFrames % 2));
  }
  return put_free(first, frames);
}

Result<std::uint64_t> Extents::take_small(const Fit& fit, Kind kind, unsigned core) {
  std::unique_lock lock(mu_);
  std::uint64_t from = free_.best(fit.frames, fit.align);
  if (from == 0) {
    const Result<std::uint64_t> fresh = new_chunk(core, lock);
    if (!fresh) return fresh.error();
    from = *fresh;  // has a whole huge frame: room for every request
  }
  const bool all_there = slots_[from].get().resident() == slots_[from].get().frames();
  const std::uint64_t frame = carve(from, fit, kind);
  lock.unlock();
  if (all_there) [[likely]]
    return frame;
  const Status s = frames_.fill(frame, fit.frames);
  if (s == Status::ok) return frame;
  lock.lock();
  slots_[frame].set({});
  taken_ -= 1;
  taken_frames_ -= fit.frames;
  put_free(frame, fit.frames, Age::old);
  return s;
}

Result<std::uint64_t> Extents::take_huge(std::uint64_t huge_frames, Kind kind, unsigned core) {
  const std::uint64_t frames = huge_frames * kHugeFrames;
  if (frames > ExtentWord::kFramesMax) return Status::too_large;
  std::map<std::uint64_t, std::uint64_t> made{{0, frames}};  // its memory comes before the frames
  auto node = made.extract(made.begin());
  const Result<PoolOffset> got = frames_.get_run(huge_frames, core);
  if (!got) return got.error();
  const std::uint64_t frame = frame_of_offset(*got).value;
  const std::lock_guard lock(mu_);
  node.key() = frame;
  huge_.insert(std::move(node));
  slots_[frame].set(ExtentWord::make(ExtentState::reserved, kind, frames));
  taken_ += 1;
  taken_frames_ += frames;
  return frame;
}

Result<Block> Extents::reserve(std::uint64_t bytes, Kind kind, unsigned core, std::uint64_t align) {
  TENUTO_ASSERT(align >= kFrameBytes && align <= kHugeBytes && (align & (align - 1)) == 0);
  tick();
  TENUTO_TRY(book_.promise());
  struct Promised {
    Book* book;
    ~Promised() {
      if (book != nullptr) book->unpromise();
    }
  } promised{&book_};
  const Fit fit{round_up(bytes, kFrameBytes) / kFrameBytes, align / kFrameBytes};
  const Result<std::uint64_t> frame =
      bytes <= kExtentBytesMax ? take_small(fit, kind, core)
                               : take_huge(round_up(bytes, kHugeBytes) / kHugeBytes, kind, core);
  if (!frame) return frame.error();
  promised.book = nullptr;
  const PoolOffset o = offset_of_frame({*frame});
  const ExtentWord w = slots_[*frame].get();
  if (kind == Kind::derived) {
    flush(book_.record(o, w.frames(), kind));
    change_state(o, ExtentState::live);
  } else if (kind == Kind::typed) {
    typed_.fetch_add(1, std::memory_order_relaxed);
  }
  return Block{o, w.bytes()};
}

// --- states of one extent ------------------------------------------------------------------------

bool Extents::move_state(PoolOffset o, ExtentState from, ExtentState to) {
  Slot& s = slots_.at(o);
  std::uint32_t raw = s.get().raw;
  const ExtentWord w{raw};
  if (w.state() != from) return false;
  return s.word.compare_exchange_strong(raw, w.with(to).raw, std::memory_order_acq_rel);
}

// REQUIRES: the caller owns the extent.
void Extents::change_state(PoolOffset o, ExtentState to) {
  Slot& s = slots_.at(o);
  s.set(s.get().with(to));
}

bool Extents::cancel(PoolOffset o) {
  const ExtentWord w = slots_.find(o);
  if (!w.used() || !is_logged(w.kind())) return false;
  if (w.state() == ExtentState::killed) return true;
  if (!move_state(o, ExtentState::reserved, ExtentState::killed)) return false;
  leaving_frames_.fetch_add(w.frames(), std::memory_order_relaxed);
  book_.unpromise();
  return true;
}

const std::uint64_t& Extents::mark_allocated(PoolOffset o) {
  const std::uint64_t& entry = record(o);
  set_live(o);
  return entry;
}

const std::uint64_t& Extents::record(PoolOffset o) {
  const ExtentWord w = slots_.find(o);
  TENUTO_ASSERT(w.state() == ExtentState::reserved);
  return book_.record(o, w.frames(), w.kind());
}

void Extents::set_live(PoolOffset o) {
  change_state(o, ExtentState::live);
  live_logged_.fetch_add(1, std::memory_order_relaxed);
}

const std::uint64_t& Extents::mark_free(PoolOffset o) {
  const ExtentWord w = slots_.find(o);
  TENUTO_ASSERT(w.state() == ExtentState::claimed);
  const std::uint64_t& tombstone = book_.erase(o);
  change_state(o, ExtentState::killed);
  return tombstone;
}

bool Extents::claim(PoolOffset o) {
  const ExtentWord w = slots_.find(o);
  if (!is_logged(w.kind()) || w.state() != ExtentState::live) return false;
  if (!move_state(o, ExtentState::live, ExtentState::claimed)) return false;
  live_logged_.fetch_sub(1, std::memory_order_relaxed);
  leaving_frames_.fetch_add(w.frames(), std::memory_order_relaxed);
  return true;
}

void Extents::unclaim(PoolOffset o) {
  const bool claimed = move_state(o, ExtentState::claimed, ExtentState::live);
  TENUTO_ASSERT(claimed);
  live_logged_.fetch_add(1, std::memory_order_relaxed);
  leaving_frames_.fetch_sub(slots_.find(o).frames(), std::memory_order_relaxed);
}

Result<Block> Extents::find(PoolOffset o, Kind kind, Wanted wanted) const {
  const ExtentWord w = slots_.find(o);
  if (!w.used() || is_logged(w.kind()) != is_logged(kind)) return Status::not_found;
  const bool live = w.state() == ExtentState::live;
  const bool in_use = live || w.state() == ExtentState::reserved;
  if (wanted == Wanted::allocated && !live) return Status::not_found;
  if (wanted == Wanted::in_use && !in_use) return Status::not_found;
  return Block{o, w.bytes()};
}

// --- giving back ---------------------------------------------------------------------------------

void Extents::release(PoolOffset o, unsigned core) {
  const ExtentWord w = slots_.find(o);
  if (w.kind() == Kind::derived) {
    TENUTO_ASSERT(w.state() == ExtentState::live);
    flush(book_.erase(o));
    change_state(o, ExtentState::killed);
    fence("extent tombstone", "extent is reused");
  } else {
    TENUTO_ASSERT(w.state() == ExtentState::killed);
    leaving_frames_.fetch_sub(w.frames(), std::memory_order_relaxed);
  }
  if (w.kind() == Kind::typed) typed_.fetch_sub(1, std::memory_order_relaxed);
  const std::uint64_t frame = frame_of_offset(o).value;
  {
    const std::lock_guard lock(mu_);
    taken_ -= 1;
    taken_frames_ -= w.frames();
    slots_[frame].set({});
    if (w.frames() <= kHugeFrames) {
      put_free(frame, w.frames());
    } else {
      huge_.erase(frame);
    }
  }
  if (w.frames() > kHugeFrames) frames_.put_run(o, w.frames() / kHugeFrames, core);
  tick();
}

// Joins it with free neighbours in its chunk. Returns the free extent that contains it now.
std::uint64_t Extents::put_free(std::uint64_t frame, std::uint64_t frames, Age age) {
  const auto absorb = [&](std::uint64_t neighbour) {
    const ExtentWord n = slots_[neighbour].get();
    free_.remove(neighbour);
    frame = std::min(frame, neighbour);
    frames += n.frames();
  };
  const std::uint64_t after = frame + frames;
  if (after % kChunkFrames != 0 && free_.is_free(after)) absorb(after);
  if (frame % kChunkFrames != 0) {
    if (const std::uint64_t before = free_.ending_at(frame - 1)) absorb(before);
  }
  add_free(frame, frames, {age == Age::old ? free_.oldest() : std::uint64_t{0}});
  return frame;
}

}  // namespace TENUTO_NS::heap
