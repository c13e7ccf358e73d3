// How many frames of free extents may keep their pages (jemalloc's smootherstep decay). Of the
// frames that became free in one tick all may keep them at first, half after half of decay_ms, and
// none when decay_ms has passed. Has no effect but on its own state. REQUIRES for excess: the lock
// of the extents.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pm/metadata_key.h"
#include "tenuto/persist.h"
#include "tenuto/pool_options.h"

namespace TENUTO_NS::heap {

// The clock of the heap. In the traced build time stands still unless a test supplies a clock: runs
// must repeat exactly.
inline std::int64_t heap_clock_ms(const HeapOptions& o) {
  if (o.clock_ms) {
    const pm::MetadataClosed closed;
    return o.clock_ms();
  }
  if constexpr (kTraced) return 0;
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return std::int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1'000'000;
}

class Decay {
 public:
  static constexpr std::int64_t kStepsMax = 1000;
  static constexpr unsigned kFraction = 24;  // fraction bits of a weight

  Decay(const HeapOptions& o, std::int64_t now)
      : total_ms_(o.decay_ms), tick_ms_(std::max<std::int64_t>(1, o.decay_tick_ms)), tick_at_(now) {
    if (total_ms_ <= 0) return;
    tick_ms_ = std::max(tick_ms_, total_ms_ / kStepsMax);
    const std::int64_t steps = std::max<std::int64_t>(1, total_ms_ / tick_ms_);
    for (std::int64_t i = steps - 1; i >= 0; --i) {
      const double x = static_cast<double>(i) / static_cast<double>(steps);
      const double h = x * x * x * (x * (x * 6 - 15) + 10);
      weights_.push_back(static_cast<std::uint64_t>(h * (1 << kFraction)));
    }
    freed_.assign(weights_.size(), 0);
  }

  bool never() const { return total_ms_ < 0; }
  bool at_once() const { return total_ms_ == 0; }

  // How many of the `resident` frames (those with pages) have to lose their pages now.
  std::uint64_t excess(std::int64_t now, std::uint64_t resident) {
    if (never()) return 0;
    if (at_once()) return resident;
    const std::int64_t ticks = (now - tick_at_) / tick_ms_;
    if (ticks <= 0) return 0;
    tick_at_ += ticks * tick_ms_;
    const auto steps = static_cast<std::int64_t>(freed_.size());
    const auto gone = static_cast<std::ptrdiff_t>(std::min(ticks, steps));
    // The youngest are first.
    std::move_backward(freed_.begin(), freed_.end() - gone, freed_.end());
    std::fill(freed_.begin(), freed_.begin() + gone, 0);
    const std::uint64_t fresh = resident > known_ ? resident - known_ : 0;
    freed_[0] += fresh;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < freed_.size(); ++i) sum += freed_[i] * weights_[i];
    const std::uint64_t may_stay = sum >> kFraction;
    known_ = std::min(resident, may_stay);
    return resident - known_;
  }

 private:
  std::int64_t total_ms_;
  std::int64_t tick_ms_;
  std::int64_t tick_at_;
  std::vector<std::uint64_t> weights_;  // by age in ticks, descending
  std::vector<std::uint64_t> freed_;    // frames that became free, by age
  std::uint64_t known_ = 0;             // resident frames after the last tick
};

}  // namespace TENUTO_NS::heap
