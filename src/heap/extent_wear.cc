// Wear levelling of extents: the least written place in the free extents (wear.h). Best fit comes
// first only among equals: the search goes from the smallest fitting extent to larger ones.
#include <algorithm>

#include "heap/extent.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

namespace {
constexpr std::uint64_t kLookFrames = 4096;  // of free extents, for one request
}

// The least written place for the request in a free extent. Places begin at multiples of the
// request's size from the first that fits, and at the last one.
Extents::Place Extents::fresh_place(std::uint64_t from, const Fit& fit) const {
  const std::uint64_t end = from + slots_[from].get().frames();
  const std::uint64_t first = round_up(from, fit.align);
  const std::uint64_t step = std::max(round_up(fit.frames, fit.align), fit.align);
  Place best;
  if (first + fit.frames > end) return best;
  if (TENUTO_PLANT("heap_wear_takes_the_best_fit")) return {from, first, 0};
  for (std::uint64_t at = first; at + fit.frames <= end; at += step) {
    const std::uint64_t worn = wear_->of_frames(at, fit.frames) * Wear::kUnitFrames / fit.frames;
    if (best.from == 0 || worn < best.worn) best = {from, at, worn};
  }
  return best;
}

// REQUIRES: the lock of the shard is held.
Extents::Place Extents::fresh_fit(const Shard& shard, const Fit& fit) const {
  Place best;
  std::uint64_t looked = 0;
  shard.free.for_some_from(fit.frames, [&](std::uint64_t from, std::uint64_t frames) {
    const Place p = fresh_place(from, fit);
    if (p.from != 0 && (best.from == 0 || p.worn < best.worn)) best = p;
    looked += frames;
    return looked < kLookFrames;
  });
  return best;
}

// A free extent in the shard. If all it has is worn, one in a new chunk in fresher frames, if the
// file has them. The old chunks empty, and what is wholly free of them goes back then.
std::uint64_t Extents::best_or_fresh(Shard*& shard, Lock& lock, const Fit& fit, unsigned core) {
  if (TENUTO_PLANT("heap_wear_takes_the_best_fit")) return shard->free.best(fit.frames, fit.align);
  const Place p = fresh_fit(*shard, fit);
  if (p.from == 0 || p.worn <= wear_->frame_limit() * Wear::kUnitFrames) return p.from;
  const std::uint64_t limit = wear_->limit();
  Shard* const own = shard;
  lock.unlock();
  give_back_free();
  Lock other;
  const Result<std::uint64_t> fresh = new_chunk(core, shard, other, &limit);
  if (fresh) {
    lock = std::move(other);
    return *fresh;
  }
  shard = own;
  lock = Lock(shard->mu);
  return fresh_fit(*shard, fit).from;
}

}  // namespace TENUTO_NS::heap
