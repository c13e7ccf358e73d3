#include "heap/extent.h"

#include <functional>

#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kShardsMax = 255;  // a byte names one
// With wear levelling a smaller pool has chunks of 2 MiB, so that slabs get more of it. One that
// cannot grow has no chunks for each node.
constexpr std::uint64_t kSmallPoolBytes = 256u << 20;
}  // namespace

Extents::Extents(pm::PoolFile& file, FrameSource& frames, const HeapOptions& options,
                 unsigned shards)
    : file_(file),
      frames_(frames),
      options_(options),
      slots_(file.bytes_max()),
      book_(file, frames, slots_, options, std::clamp(shards, 1u, kShardsMax)),
      region_pages_(2 * (file.bytes_max() / kChunkBytes + 1)),
      halves_(region_pages_.as<std::atomic<std::uint8_t>>()),
      owner_(halves_ + (file.bytes_max() / kChunkBytes + 1)) {
  for (unsigned i = 0; i < std::min(shards, kShardsMax); ++i) {
    shards_.push_back(std::make_unique<Shard>(slots_, options, now_ms()));
  }
  frames.set_reclaim([this] { return give_back_free(); });
}

// --- taking --------------------------------------------------------------------------------------

// `Holes` is authoritative for which frames have pages; a free extent's word repeats their count,
// which does not change while it is free. An extent that was in use counts its holes, too. Reason:
// in a file with holes, open takes reserved but never written space for a hole, and this may be at
// the end of an extent in use.
std::uint64_t Extents::count_resident(std::uint64_t frame, std::uint64_t frames) const {
  return frames - frames_.holes().count(frame, frames);
}

void Extents::add_free(Shard& shard, std::uint64_t frame, std::uint64_t frames, AgeOrder age) {
  shard.free.add(frame, frames, count_resident(frame, frames), age);
}

// Cuts the request out of a free extent. The rest stays free and keeps its age.
std::uint64_t Extents::carve(Shard& shard, std::uint64_t from, const Fit& fit, Kind kind,
                             std::uint64_t at) {
  const ExtentWord w = slots_[from].get();
  const AgeOrder age = shard.free.remove(from);
  if (at == 0) at = round_up(from, fit.align);
  const std::uint64_t end = at + fit.frames;
  const auto add = [&](std::uint64_t first, std::uint64_t n) {
    if (n == 0) return;
    if (w.resident() != w.frames()) return add_free(shard, first, n, age);
    shard.free.add(first, n, n, age);
  };
  add(from, at - from);
  add(end, from + w.frames() - end);
  slots_[at].set(ExtentWord::make(ExtentState::reserved, kind, fit.frames));
  shard.taken.add(fit.frames);
  return at;
}

// Takes 4 MiB if possible, else 2 MiB. A close is content with 2 MiB. If the other half of the
// region belongs to extents, both halves become one chunk. Returns the free extent that contains
// the new half.
Result<std::uint64_t> Extents::new_chunk(unsigned core, Shard*& shard, Lock& lock,
                                         const std::uint64_t* worn_max) {
  const bool small = wear_ != nullptr && file_.bytes() < kSmallPoolBytes;
  unsigned order = small || frames_.grows_little() ? frame::kOrderHuge : frame::kOrderMax;
  Result<PoolOffset> got = worn_max != nullptr ? frames_.get_fresher_chunk(*worn_max, core, order)
                                               : frames_.get_unfilled(order, core);
  if (!got && worn_max == nullptr) {
    order = frame::kOrderHuge;
    got = frames_.get_unfilled(order, core);
  }
  // Other threads will cut extents from it, and their fences do not cover this thread's flush.
  if (got) fence("frames of a chunk", "extents are cut from it");
  if (!got) return got.error();
  const std::uint64_t first = frame_of_offset(*got).value;
  const std::uint64_t frames = std::uint64_t{1} << order;
  // Each fill is a sync there. Without room for all of it, each extent is filled when it is taken.
  if (file_.frees_wait()) static_cast<void>(frames_.fill(first, frames));
  const std::uint64_t region = first / kChunkFrames;
  unsigned halves = 0;
  for (std::uint64_t f = first; f < first + frames; f += kHugeFrames) {
    halves |= 1u << (f / kHugeFrames % 2);
  }
  {
    const std::lock_guard regions(regions_mu_);
    const unsigned before = halves_[region].load(std::memory_order_relaxed);
    const unsigned mine = core % static_cast<unsigned>(shards_.size());
    if (before == 0) owner_[region].store(static_cast<std::uint8_t>(mine));
    halves_[region].store(static_cast<std::uint8_t>(before | halves), std::memory_order_release);
  }
  shard = &owner_of(first);
  lock = Lock(shard->mu);
  return put_free(*shard, first, frames);
}

std::uint64_t Extents::borrow(const Fit& fit, std::uint64_t from_frames, unsigned node,
                              Shard*& shard, Lock& lock) {
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const auto& other = shards_[i];
    if (other.get() == shard || (from_frames != 1 && i % nodes_ != node)) continue;
    Lock held(other->mu);
    if (other->free.frames_free() < from_frames) continue;
    const std::uint64_t from = other->free.best(fit.frames, fit.align);
    if (from == 0) continue;
    shard = other.get();
    lock = std::move(held);
    return from;
  }
  return 0;
}

Result<std::uint64_t> Extents::take_small(const Fit& fit, Kind kind, unsigned core) {
  Shard* shard = shards_[core % shards_.size()].get();
  Lock lock(shard->mu);
  std::uint64_t from = wear_ == nullptr ? shard->free.best(fit.frames, fit.align)
                                        : best_or_fresh(shard, lock, fit, core);
  if (from == 0) {
    lock.unlock();
    from = borrow(fit, kLentFrom, core % nodes_, shard, lock);
    const bool small = file_.bytes() == file_.bytes_max() && file_.bytes() < kSmallPoolBytes;
    if (from == 0 && nodes_ > 1 && small) from = borrow(fit, 1, 0, shard, lock);
  }
  if (from == 0) {
    const Result<std::uint64_t> fresh = new_chunk(core, shard, lock);
    // A fresh chunk has a whole huge frame: room for every request.
    if (!fresh) shard = nullptr;
    from = fresh ? *fresh : borrow(fit, 1, core % nodes_, shard, lock);
    if (from == 0) return fresh.error();
  }
  const bool all_there = slots_[from].get().resident() == slots_[from].get().frames();
  const std::uint64_t at = wear_ == nullptr ? 0 : fresh_place(from, fit).at;
  const std::uint64_t frame = carve(*shard, from, fit, kind, at);
  lock.unlock();
  if (all_there) [[likely]]
    return frame;
  const Status s = frames_.fill(frame, fit.frames);
  if (s == Status::ok) return frame;
  lock.lock();
  slots_[frame].set({});
  shard->taken.remove(fit.frames);
  put_free(*shard, frame, fit.frames, Age::old);
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
  const std::lock_guard lock(huge_mu_);
  node.key() = frame;
  huge_.insert(std::move(node));
  slots_[frame].set(ExtentWord::make(ExtentState::reserved, kind, frames));
  huge_taken_.add(frames);
  return frame;
}

Result<Block> Extents::reserve(std::uint64_t bytes, Kind kind, unsigned core, std::uint64_t align) {
  TENUTO_ASSERT(align >= kFrameBytes && align <= kHugeBytes && (align & (align - 1)) == 0);
  tick(core);
  TENUTO_TRY(book_.promise(core));
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
  if (wear_ != nullptr) wear_->took(o, w.frames() * kFrameBytes);
  if (kind == Kind::derived) {
    flush(book_.record(o, w.frames(), kind, core));
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
  return w.state() == ExtentState::killed || cancel_reserved(o);
}

bool Extents::cancel_reserved(PoolOffset o) {
  const ExtentWord w = slots_.find(o);
  if (!w.used() || !is_logged(w.kind())) return false;
  if (!move_state(o, ExtentState::reserved, ExtentState::killed)) return false;
  count_leaving(o, static_cast<std::int64_t>(w.frames()));
  book_.unpromise();
  return true;
}

const std::uint64_t& Extents::mark_allocated(PoolOffset o, unsigned core) {
  const std::uint64_t& entry = record(o, core);
  set_live(o);
  return entry;
}

const std::uint64_t& Extents::record(PoolOffset o, unsigned core) {
  const ExtentWord w = slots_.find(o);
  TENUTO_ASSERT(w.state() == ExtentState::reserved);
  return book_.record(o, w.frames(), w.kind(), core);
}

void Extents::set_live(PoolOffset o) {
  change_state(o, ExtentState::live);
  count_live(o, 1);
}

const std::uint64_t& Extents::mark_free(PoolOffset o, unsigned core) {
  const ExtentWord w = slots_.find(o);
  TENUTO_ASSERT(w.state() == ExtentState::claimed);
  const std::uint64_t& tombstone = book_.erase(o, core);
  change_state(o, ExtentState::killed);
  return tombstone;
}

bool Extents::claim(PoolOffset o) {
  const ExtentWord w = slots_.find(o);
  if (!is_logged(w.kind()) || w.state() != ExtentState::live) return false;
  if (!move_state(o, ExtentState::live, ExtentState::claimed)) return false;
  count_live(o, -1);
  count_leaving(o, static_cast<std::int64_t>(w.frames()));
  return true;
}

void Extents::unclaim(PoolOffset o) {
  const bool claimed = move_state(o, ExtentState::claimed, ExtentState::live);
  TENUTO_ASSERT(claimed);
  count_live(o, 1);
  count_leaving(o, -static_cast<std::int64_t>(slots_.find(o).frames()));
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

void Extents::kill_derived(PoolOffset o, unsigned core) {
  const ExtentWord w = slots_.find(o);
  if (w.kind() != Kind::derived || w.state() == ExtentState::killed) return;
  TENUTO_ASSERT(w.state() == ExtentState::live);
  flush(book_.erase(o, core));
  change_state(o, ExtentState::killed);
  count_leaving(o, static_cast<std::int64_t>(w.frames()));
  fence("extent tombstone", "extent is reused");
}

void Extents::release(PoolOffset o, unsigned core) {
  kill_derived(o, core);
  const ExtentWord w = slots_.find(o);
  TENUTO_ASSERT(w.state() == ExtentState::killed);
  count_leaving(o, -static_cast<std::int64_t>(w.frames()));
  if (w.kind() == Kind::typed) typed_.fetch_sub(1, std::memory_order_relaxed);
  const std::uint64_t frame = frame_of_offset(o).value;
  if (w.frames() <= kHugeFrames) {
    Shard& shard = owner_of(frame);
    const std::lock_guard lock(shard.mu);
    shard.taken.remove(w.frames());
    slots_[frame].set({});
    put_free(shard, frame, w.frames());
  } else {
    {
      const std::lock_guard lock(huge_mu_);
      huge_taken_.remove(w.frames());
      slots_[frame].set({});
      huge_.erase(frame);
    }
    frames_.put_run(o, w.frames() / kHugeFrames, core);
  }
  tick(core);
}

// Joins it with free neighbours in its chunk. Returns the free extent that contains it now.
std::uint64_t Extents::put_free(Shard& shard, std::uint64_t frame, std::uint64_t frames, Age age) {
  FreeExtents& free = shard.free;
  std::uint64_t resident = count_resident(frame, frames);
  const auto absorb = [&](std::uint64_t neighbour) {
    const ExtentWord n = slots_[neighbour].get();
    free.remove(neighbour);
    frame = std::min(frame, neighbour);
    frames += n.frames();
    resident += n.resident();
  };
  const std::uint64_t after = frame + frames;
  if (after % kChunkFrames != 0 && free.is_free(after)) absorb(after);
  if (frame % kChunkFrames != 0) {
    if (const std::uint64_t before = free.ending_at(frame - 1)) absorb(before);
  }
  free.add(frame, frames, resident, {age == Age::old ? free.oldest() : std::uint64_t{0}});
  return frame;
}

std::vector<Extents::Lock> Extents::lock_all() const {
  std::vector<Lock> all;
  for (const auto& shard : shards_) all.emplace_back(shard->mu);
  return all;
}

}  // namespace TENUTO_NS::heap
