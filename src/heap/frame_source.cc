#include "heap/frame_source.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "frame/format.h"
#include "heap/numa.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

namespace {
constexpr std::uint64_t kAnyWear = ~std::uint64_t{0};
}  // namespace

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

void FrameSource::set_numa(Numa* numa) {
  numa_ = numa;
  // Its pages would be on the node of the thread that asks for them.
  if (!numa->simulated()) large_.prepare_nothing();
}

Status FrameSource::grow(std::uint64_t huge_frames, frame::ZoneUse use, unsigned node) {
  constexpr std::uint64_t kLittle = 32;  // a part of the pool
  const Growth growth = growth_.load(std::memory_order_relaxed);
  if (growth == Growth::none) return Status::full;
  std::uint64_t bytes = frame::Frames::zone_bytes_for(huge_frames);
  auto by = pm::PoolFile::GrowBy::policy;
  if (growth == Growth::little) {
    const std::uint64_t little = round_up(file_.bytes() / kLittle, std::uint64_t{kHugeBytes});
    if (bytes > little) return Status::full;
    bytes = little;
    by = pm::PoolFile::GrowBy::need;
    end_growth();
  }
  std::optional<Numa::Preferred> preferred;
  if (node != frame::kAnyNode) {
    numa_->plan(file_.zone_count(), node);
    preferred.emplace(*numa_, node);
  }
  const auto format = [&](const pm::ZoneEntry& z, std::uint64_t head_bytes) {
    frame::Frames::format_zone(file_, z, head_bytes, use);
  };
  const Result<pm::ZoneEntry> zone = file_.grow(bytes, format, by);
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

// To fill a hole costs a sync of the pool file on medium `journal`. So a huge frame that is used in
// pieces is filled at once, if there is room for it. Its other frames may have other owners, or
// none, but a punch of them waits.
void FrameSource::fill_around(std::uint64_t frame) {
  const std::uint64_t first = round_down(frame, std::uint64_t{frame::kHugeFrames});
  const std::uint64_t end =
      std::min<std::uint64_t>(first + frame::kHugeFrames, file_.bytes() / kFrameBytes);
  const auto stopped = holes_.try_to_stop_punches();
  if (stopped.owns_lock()) static_cast<void>(fill(first, end - first));
}

Result<PoolOffset> FrameSource::get_unfilled(unsigned order, unsigned core, frame::ZoneUse use) {
  const std::uint64_t frames = std::uint64_t{1} << order;
  if (numa_ != nullptr) {
    const auto get = [&](unsigned node) { return choose(order, core, use, node); };
    Result<PoolOffset> near = get_near(get, frames, numa_->node_of_core(core), use);
    if (near) return near;
  }
  const auto get = [&] { return choose(order, core, use, frame::kAnyNode); };
  Result<PoolOffset> got = get_or_grow(get, frames, use);
  if (numa_ != nullptr && got) numa_->frames_remote.fetch_add(frames, std::memory_order_relaxed);
  return got;
}

// The least written free frame, if wear levelling chooses.
Result<FrameId> FrameSource::choose(unsigned order, unsigned core, frame::ZoneUse use,
                                    unsigned node) {
  if (fresh_ != nullptr && use == frame::ZoneUse::any) {
    std::optional<FrameId> f;
    if (order == frame::kOrderSlab) f = fresh_->take_slab(kAnyWear, node);
    if (order == frame::kOrderHuge) f = fresh_->take_huge(1, 1, kAnyWear, node);
    if (order == frame::kOrderMax) f = fresh_->take_huge(2, 2, kAnyWear, node);
    if (f) return *f;
  }
  return frames_.get(order, core, use, node);
}

Result<FrameId> FrameSource::choose_run(std::uint64_t huge_frames, unsigned core, unsigned node) {
  if (fresh_ != nullptr) {
    if (const auto f = fresh_->take_huge(huge_frames, 1, kAnyWear, node)) return *f;
  }
  return frames_.get_run(huge_frames, core, node);
}

Result<PoolOffset> FrameSource::get_fresher(std::uint64_t worn_max, unsigned core) {
  const std::optional<FrameId> f = fresh_->take_slab(worn_max, node_of(core));
  if (!f) return Status::full;
  const PoolOffset o = offset_of_frame(*f);
  const std::uint64_t frames = std::uint64_t{1} << frame::kOrderSlab;
  if (file_.frees_wait()) fill_around(f->value);
  const Status s = fill(f->value, frames);
  if (s == Status::ok) {
    large_.took(frames);
    return o;
  }
  put(o, frame::kOrderSlab, core);
  return s;
}

Result<PoolOffset> FrameSource::get_fresher_chunk(std::uint64_t worn_max, unsigned core,
                                                  unsigned& order) {
  order = frame::kOrderMax;
  std::optional<FrameId> f = fresh_->take_huge(2, 2, worn_max, node_of(core));
  if (!f) {
    order = frame::kOrderHuge;
    f = fresh_->take_huge(1, 1, worn_max, node_of(core));
  }
  if (!f) return Status::full;
  large_.took(std::uint64_t{1} << order);
  return offset_of_frame(*f);
}

unsigned FrameSource::node_of(unsigned core) const {
  return numa_ == nullptr ? frame::kAnyNode : numa_->node_of_core(core);
}

Result<PoolOffset> FrameSource::get(unsigned order, unsigned core, frame::ZoneUse use) {
  return filled(get_unfilled(order, core, use), order, core);
}

Result<PoolOffset> FrameSource::get_there(unsigned order, unsigned core) {
  const auto get = [&](unsigned node) { return choose(order, core, frame::ZoneUse::any, node); };
  const std::uint64_t frames = std::uint64_t{1} << order;
  return filled(get_near(get, frames, numa_->node_of_core(core), frame::ZoneUse::any), order, core);
}

Result<PoolOffset> FrameSource::filled(Result<PoolOffset> got, unsigned order, unsigned core) {
  if (!got) return got;
  const std::uint64_t first = frame_of_offset(*got).value;
  if (file_.frees_wait() && order < frame::kOrderHuge) fill_around(first);
  const Status s = fill(first, std::uint64_t{1} << order);
  if (s == Status::ok) return got;
  put(*got, order, core);
  return s;
}

Result<PoolOffset> FrameSource::get_run(std::uint64_t huge_frames, unsigned core) {
  const std::uint64_t frames = huge_frames * frame::kHugeFrames;
  Result<PoolOffset> got = Status::full;
  if (numa_ != nullptr) {
    const auto get = [&](unsigned node) { return choose_run(huge_frames, core, node); };
    got = get_near(get, frames, numa_->node_of_core(core), frame::ZoneUse::any);
  }
  if (!got) {
    const auto get = [&] { return choose_run(huge_frames, core, frame::kAnyNode); };
    got = get_or_grow(get, frames, frame::ZoneUse::any);
    if (numa_ != nullptr && got) numa_->frames_remote.fetch_add(frames, std::memory_order_relaxed);
  }
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

// Frames that are held while their pages are given back, so that no other thread gets them. Nothing
// names them: their frees are settled, and nothing else has to be durable before.
class FrameSource::Held {
 public:
  explicit Held(FrameSource& from)
      : from_(from), frames_max_(from.file_.frees_wait() ? kJournalFrames : frame::kHugeFrames) {}
  ~Held() { punch(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // The caller has taken the frames, in pieces of `piece`. Neighbours become one.
  void add(std::uint64_t first, std::uint64_t frames, std::uint64_t piece) {
    Piece* last = count_ == 0 ? nullptr : &pieces_[count_ - 1];
    if (last != nullptr && last->piece == piece && last->first + last->frames == first) {
      last->frames += frames;
    } else {
      pieces_[count_++] = {first, frames, piece};
    }
    held_ += frames;
    if (held_ >= frames_max_ || count_ == pieces_.size()) punch();
  }

 private:
  struct Piece {
    std::uint64_t first, frames, piece;
  };

  // If it fails, the pages stay.
  void punch() {
    if (count_ == 0) return;
    const bool settled = from_.file_.settle_frees() == Status::ok;
    for (const Piece& p : std::span(pieces_).first(count_)) {
      if (settled) static_cast<void>(from_.holes_.punch(p.first, p.frames, true));
      for (std::uint64_t f = p.first; f < p.first + p.frames; f += p.piece) give_back(f, p.piece);
    }
    count_ = 0;
    held_ = 0;
  }
  void give_back(std::uint64_t f, std::uint64_t piece) {
    if (piece == frame::kHugeFrames) return from_.put_run(offset_of_frame({f}), 1, 0);
    from_.put(offset_of_frame({f}), frame::kOrderSlab, 0);
  }

  // Under a journal each turn makes a checkpoint, so it is for 256 MiB.
  static constexpr std::uint64_t kJournalFrames = (256u << 20) / kFrameBytes;

  FrameSource& from_;
  const std::uint64_t frames_max_;
  std::array<Piece, 512> pieces_;
  std::size_t count_ = 0;
  std::uint64_t held_ = 0;
};

// Of a huge frame that is partly in use the free 64-KiB frames lose their pages.
void FrameSource::punch_free() {
  file_.drop_prepared();
  Held held(*this);
  constexpr std::uint64_t kHuge = frame::kHugeFrames;
  constexpr std::uint64_t kSlab = std::uint64_t{1} << frame::kOrderSlab;
  for (std::uint64_t f = 0; f < file_.bytes() / kFrameBytes && file_.may_punch(); f += kHuge) {
    if (holes_.count(f, kHuge) == kHuge) continue;
    if (frames_.get_huge({f}) == Status::ok) {
      held.add(f, kHuge, kHuge);
      continue;
    }
    for (std::uint64_t piece = f; piece < f + kHuge; piece += kSlab) {
      const bool free = holes_.count(piece, kSlab) != kSlab &&
                        frames_.get_at({piece}, frame::kOrderSlab) == Status::ok;
      if (free) held.add(piece, kSlab, kSlab);
    }
  }
}

// A pool that turned read-only meanwhile (damage, a bad page) keeps its frames until recovery.
void FrameSource::given_back(PoolOffset o, Status s) {
  if (s == Status::ok || file_.read_only()) return;
  static_cast<void>(file_.damaged(o, "frame that is given back, but its bits say it is free"));
}

}  // namespace TENUTO_NS::heap
