#include "heap/fresh_frames.h"

#include <algorithm>
#include <mutex>

#include "pm/no_memory.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

std::optional<FrameId> FreshFrames::take_slab(std::uint64_t worn_max, unsigned node) {
  const std::lock_guard lock(mu_);
  if (node != frame::kAnyNode) return take_kept(kept_[node], worn_max);
  for (unsigned n = 0; n < nodes_; ++n) {
    if (const auto f = take_kept(kept_[n], worn_max)) return f;
  }
  return std::nullopt;
}

// REQUIRES: mu_ is held.
std::optional<FrameId> FreshFrames::take_kept(Kept& kept, std::uint64_t worn_max) {
  for (unsigned round = 0; round < 2; ++round) {
    while (!kept.seen.empty() && kept.seen.back().worn <= worn_max) {
      const FrameId f{kept.seen.back().number * Wear::kUnitFrames};
      kept.seen.pop_back();
      if (frames_.get_at(f, frame::kOrderSlab) == Status::ok) return f;
    }
    // What is kept is too worn. There may be better ones by now, but seldom.
    if (round == 1 || (!kept.seen.empty() && ++kept.misses < kMissesMax)) return std::nullopt;
    if (!pm::had_memory([&] { look(); })) return std::nullopt;
  }
  return std::nullopt;
}

// REQUIRES: mu_ is held. Throws bad_alloc.
void FreshFrames::look() {
  const std::uint64_t units = file_.bytes() / kSlabBytes;
  std::array<std::vector<Seen>, kNodesMax> seen;
  for (std::uint64_t n = 0; n < std::min(units, kLookUnits); ++n) {
    const std::uint64_t unit = next_unit_ >= units ? 0 : next_unit_;
    next_unit_ = unit + 1;
    const FrameId f{unit * Wear::kUnitFrames};
    if (!frames_.untaken(f, frame::kOrderSlab)) continue;
    if (frames_.use_of(f) != frame::ZoneUse::any) continue;
    seen[frames_.node_of(f)].push_back({wear_.of_unit(offset_of_frame(f)), unit});
  }
  // Of equal ones the lowest comes first: what was never written is used from one end.
  const auto more = [](const Seen& a, const Seen& b) {
    return a.worn != b.worn ? a.worn > b.worn : a.number > b.number;
  };
  const bool worst = TENUTO_PLANT("heap_wear_takes_the_most_worn_frame");
  for (unsigned node = 0; node < nodes_; ++node) {
    std::vector<Seen>& s = seen[node];
    if (worst) {
      std::sort(s.begin(), s.end(), [&](const Seen& a, const Seen& b) { return more(b, a); });
    } else {
      std::sort(s.begin(), s.end(), more);
    }
    if (s.size() > kKept) s.erase(s.begin(), s.end() - kKept);
    kept_[node] = {std::move(s), 0};
  }
}

std::uint64_t FreshFrames::worn_huge(std::uint64_t huge) const {
  constexpr std::uint64_t kUnits = kHugeBytes / kSlabBytes;
  std::uint64_t sum = 0;
  for (std::uint64_t u = 0; u < kUnits; ++u) {
    sum += wear_.of_unit({huge * kHugeBytes + u * kSlabBytes});
  }
  return sum / kUnits;
}

// A huge frame that is taken in part is found out by the allocator, when it is asked for it. So the
// best are tried one after the other.
std::optional<FrameId> FreshFrames::take_huge(std::uint64_t count, std::uint64_t align,
                                              std::uint64_t worn_max, unsigned node) {
  const std::lock_guard lock(mu_);
  const std::uint64_t all = file_.bytes() / kHugeBytes;
  if (count == 0 || count > all || count > kLookHuge / 2) return std::nullopt;
  std::vector<Seen> seen;
  const auto look_at_all = [&] {
    for (std::uint64_t n = 0; n < std::min(all, kLookHuge); ++n) {
      const std::uint64_t huge = next_huge_ >= all ? 0 : next_huge_;
      next_huge_ = huge + 1;
      if (huge % align != 0 || huge + count > all) continue;
      if (node != frame::kAnyNode && frames_.node_of({huge * kHugeFramesEach}) != node) continue;
      std::uint64_t worn = 0;
      bool whole = true;
      for (std::uint64_t i = 0; i < count && whole; ++i) {
        const FrameId f{(huge + i) * kHugeFramesEach};
        whole = frames_.untaken(f, frame::kOrderSlab) && frames_.use_of(f) == frame::ZoneUse::any;
        worn += worn_huge(huge + i);
      }
      if (whole && worn / count <= worn_max) seen.push_back({worn, huge});
    }
  };
  if (!pm::had_memory(look_at_all)) return std::nullopt;
  std::sort(seen.begin(), seen.end(), [](const Seen& a, const Seen& b) {
    return a.worn != b.worn ? a.worn < b.worn : a.number > b.number;
  });
  for (const Seen& s : seen) {
    std::uint64_t got = 0;
    while (got < count && frames_.get_huge({(s.number + got) * kHugeFramesEach}) == Status::ok)
      ++got;
    if (got == count) return FrameId{s.number * kHugeFramesEach};
    for (; got > 0; --got) {
      static_cast<void>(frames_.put_run({(s.number + got - 1) * kHugeFramesEach}, 1, 0));
    }
  }
  return std::nullopt;
}

}  // namespace TENUTO_NS::heap
