#include "heap/frame_source.h"

#include "frame/format.h"

namespace TENUTO_NS::heap {

// The new zone is open to all threads at once. Those that come without the lock may empty it before
// this one gets its part, so it grows again: each turn has served others, and the file's limit ends
// the loop.
template <class Get>
Result<PoolOffset> FrameSource::get_or_grow(const Get& get, std::uint64_t frames,
                                            frame::ZoneUse use) {
  const std::uint64_t huge_frames = (frames + frame::kHugeFrames - 1) / frame::kHugeFrames;
  Result<FrameId> got = get();
  const bool reclaims = use == frame::ZoneUse::any && reclaim_ != nullptr;
  if (!got && got.error() == Status::full && reclaims && reclaim_()) got = get();
  if (!got && got.error() == Status::full) {
    // One thread grows the file. The others find the new zone here, also when the thread that grew
    // it had no memory to take it into service.
    const std::lock_guard lock(grow_mu_);
    TENUTO_TRY(frames_.add_zone(file_.zone(file_.zone_count() - 1)));
    got = get();
    while (!got && got.error() == Status::full) {
      TENUTO_TRY(grow(huge_frames, use));
      got = get();
    }
  }
  if (!got) return got.error();
  large_.took(frames);
  return offset_of_frame(*got);
}

bool FrameSource::make_record_zone() {
  const std::lock_guard lock(grow_mu_);
  if (frames_.has(frame::ZoneUse::records)) return true;
  if (grow(1, frame::ZoneUse::records) == Status::ok) return true;
  refused_at_.store(file_.bytes(), std::memory_order_relaxed);
  return false;
}

Status FrameSource::grow(std::uint64_t huge_frames, frame::ZoneUse use) {
  if (!may_grow_.load(std::memory_order_relaxed)) return Status::full;
  const Result<pm::ZoneEntry> zone =
      file_.grow(frame::Frames::zone_bytes_for(huge_frames),
                 [&](const pm::ZoneEntry& z, std::uint64_t head_bytes) {
                   frame::Frames::format_zone(file_, z, head_bytes, use);
                 });
  if (!zone) return zone.error();
  TENUTO_TRY(frames_.add_zone(*zone));
  large_.grown();
  return Status::ok;
}

Status FrameSource::fill(std::uint64_t first, std::uint64_t frames) {
  if (holes_.count(first, frames) == 0) [[likely]]
    return Status::ok;
  TENUTO_TRY(holes_.fill(first, frames));
  if (holes_.any_whole(first, frames)) large_.look();
  return Status::ok;
}

Result<PoolOffset> FrameSource::get_unfilled(unsigned order, unsigned core, frame::ZoneUse use) {
  return get_or_grow([&] { return frames_.get(order, core, use); }, std::uint64_t{1} << order, use);
}

Result<PoolOffset> FrameSource::get(unsigned order, unsigned core, frame::ZoneUse use) {
  Result<PoolOffset> got = get_unfilled(order, core, use);
  if (!got) return got;
  const Status s = fill(frame_of_offset(*got).value, std::uint64_t{1} << order);
  if (s == Status::ok) return got;
  put(*got, order, core);
  return s;
}

Result<PoolOffset> FrameSource::get_run(std::uint64_t huge_frames, unsigned core) {
  Result<PoolOffset> got = get_or_grow([&] { return frames_.get_run(huge_frames, core); },
                                       huge_frames * frame::kHugeFrames, frame::ZoneUse::any);
  if (!got) return got;
  const Status s = fill(frame_of_offset(*got).value, huge_frames * frame::kHugeFrames);
  if (s == Status::ok) return got;
  put_run(*got, huge_frames, core);
  return s;
}

void FrameSource::put(PoolOffset o, unsigned order, unsigned core) {
  given_back(o, frames_.put(frame_of_offset(o), order, core));
}

void FrameSource::put_run(PoolOffset o, std::uint64_t huge_frames, unsigned core) {
  given_back(o, frames_.put_run(frame_of_offset(o), huge_frames, core));
}

// Each frame is taken while its pages are given back, so that no other thread gets it. Nothing
// names it, so nothing has to be durable before. Of a huge frame that is partly in use the free
// 64-KiB frames lose their pages, too.
void FrameSource::punch_free() {
  file_.drop_prepared();
  constexpr std::uint64_t kFrames = frame::kHugeFrames;
  for (std::uint64_t f = 0; f < file_.bytes() / kFrameBytes && file_.may_punch(); f += kFrames) {
    if (holes_.count(f, kFrames) == kFrames) continue;
    if (frames_.get_huge({f}) != Status::ok) {
      punch_pieces(f, f + kFrames);
      continue;
    }
    static_cast<void>(holes_.punch(f, kFrames, true));  // if it fails, the pages stay
    put_run(offset_of_frame({f}), 1, 0);
  }
}

// Punches neighbouring frames in one system call.
void FrameSource::punch_pieces(std::uint64_t frame, std::uint64_t end) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << frame::kOrderSlab;
  const auto take = [&](std::uint64_t f) {
    return f < end && holes_.count(f, kPiece) != kPiece &&
           frames_.get_at({f}, frame::kOrderSlab) == Status::ok;
  };
  for (; frame < end; frame += kPiece) {
    const std::uint64_t first = frame;
    while (take(frame)) frame += kPiece;
    if (frame == first) continue;
    static_cast<void>(holes_.punch(first, frame - first, true));
    for (std::uint64_t f = first; f < frame; f += kPiece) {
      put(offset_of_frame({f}), frame::kOrderSlab, 0);
    }
  }
}

// A pool that turned read-only meanwhile (damage, a bad page) keeps its frames until recovery.
void FrameSource::given_back(PoolOffset o, Status s) {
  if (s == Status::ok || file_.read_only()) return;
  static_cast<void>(file_.damaged(o, "frame that is given back, but its bits say it is free"));
}

}  // namespace TENUTO_NS::heap
