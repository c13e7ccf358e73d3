// Which frames of the pool have no pages in the file: one bit a frame, in DRAM only. The owner of a
// frame may change its bit, also just before it gives the frame away. Neighbouring frames may have
// other owners, so the words are atomic.
//
// Also which huge frames are one large page (large_pages.h), and which were punched: one bit each.
// To join the pages of a huge frame fills its holes. So it is done only where there are none, and
// while it is done nothing is punched anywhere: `pages_change_` is held, exclusively for a join,
// shared for a punch. Both hold it during a system call; only trim waits for it, and with decay_ms
// 0 each punch.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <shared_mutex>

#include "file/pool_file.h"
#include "pm/plant.h"
#include "pm/zero_pages.h"

namespace TENUTO_NS::heap {

class Holes {
 public:
  explicit Holes(pm::PoolFile& file)
      : file_(file),
        pages_((file.bytes_max() / kFrameBytes / 64 + 1) * sizeof(std::uint64_t)),
        words_(pages_.as<std::atomic<std::uint64_t>>()),
        large_pages_((file.bytes_max() / kHugeBytes / 64 + 1) * sizeof(std::uint64_t)),
        large_(large_pages_.as<std::atomic<std::uint64_t>>()),
        punched_pages_((file.bytes_max() / kHugeBytes / 64 + 1) * sizeof(std::uint64_t)),
        punched_(punched_pages_.as<std::atomic<std::uint64_t>>()) {
    if (file.read_only() || !there()) return;
    file.for_each_hole([this](PoolOffset o, std::uint64_t bytes) {
      const std::uint64_t first = o.value / kFrameBytes;
      set(first, (o.value + bytes + kFrameBytes - 1) / kFrameBytes - first, true);
    });
  }

  bool there() const {
    return static_cast<bool>(pages_) && static_cast<bool>(large_pages_) &&
           static_cast<bool>(punched_pages_);
  }
  bool is_hole(std::uint64_t frame) const {
    return (word(frame).load(std::memory_order_relaxed) >> (frame % 64) & 1) != 0;
  }
  // How many of these frames have no pages.
  std::uint64_t count(std::uint64_t first, std::uint64_t frames) const {
    std::uint64_t n = 0;
    for_words(first, frames, [&](std::uint64_t at, std::uint64_t mask) {
      const std::uint64_t holes = words_[at].load(std::memory_order_relaxed) & mask;
      if (holes != 0) n += static_cast<std::uint64_t>(std::popcount(holes));  // a call, and rare
    });
    return n;
  }

  // Gives all pages of these frames back (PoolFile::punch). busy: pages are being joined now; with
  // `wait` the call waits for that.
  Status punch(std::uint64_t first, std::uint64_t frames, bool wait) {
    std::shared_lock lock(pages_change_, std::defer_lock);
    if (wait) {
      lock.lock();
    } else if (!lock.try_lock()) {
      return Status::busy;
    }
    TENUTO_TRY(file_.punch(offset_of_frame({first}), frames * kFrameBytes));
    set(first, frames, true);
    for (std::uint64_t h = first / kHugeFrames; h <= (first + frames - 1) / kHugeFrames; ++h) {
      const std::uint64_t bit = std::uint64_t{1} << (h % 64);
      large_[h / 64].fetch_and(~bit, std::memory_order_relaxed);
      punched_[h / 64].fetch_or(bit, std::memory_order_relaxed);
    }
    return Status::ok;
  }
  // Whether no frame of it is a hole, now.
  bool may_join(std::uint64_t huge) const {
    return count(huge * kHugeFrames, kHugeFrames) == 0 || TENUTO_PLANT("heap_holes_joined");
  }
  // While the lock is owned nothing is punched. Not owned: pages are being given back now.
  [[nodiscard]] std::unique_lock<std::shared_mutex> try_to_stop_punches() {
    return std::unique_lock(pages_change_, std::try_to_lock);
  }
  // Calls join() for the huge frame, with nothing punched meanwhile, and notes that it is large if
  // the result is true. If this returns another status than ok, join was not called. not_found: the
  // huge frame has holes. busy: pages are being given back now.
  template <class F>
  Status join(std::uint64_t huge, const F& join) {
    const auto lock = try_to_stop_punches();
    if (!lock.owns_lock()) return Status::busy;
    if (!may_join(huge)) return Status::not_found;
    if (join()) {
      large_[huge / 64].fetch_or(std::uint64_t{1} << (huge % 64), std::memory_order_relaxed);
    }
    return Status::ok;
  }
  bool is_large(std::uint64_t huge) const {
    return (large_[huge / 64].load(std::memory_order_relaxed) >> (huge % 64) & 1) != 0;
  }
  // Whether anything of it was punched since the last call.
  bool take_punched(std::uint64_t huge) {
    const std::uint64_t bit = std::uint64_t{1} << (huge % 64);
    auto& word = punched_[huge / 64];
    return (word.load(std::memory_order_relaxed) & bit) != 0 &&
           (word.fetch_and(~bit, std::memory_order_relaxed) & bit) != 0;
  }
  // Whether a huge frame of which these are a part has no holes now.
  bool any_whole(std::uint64_t first, std::uint64_t frames) const {
    const std::uint64_t last = (first + frames - 1) / kHugeFrames;
    for (std::uint64_t h = first / kHugeFrames; h <= last; ++h) {
      if (count(h * kHugeFrames, kHugeFrames) == 0) return true;
    }
    return false;
  }
  // Makes sure that all of them may be stored to. full when the file system has no room.
  Status fill(std::uint64_t first, std::uint64_t frames) {
    if (count(first, frames) == 0) [[likely]]
      return Status::ok;
    TENUTO_TRY(file_.fill(offset_of_frame({first}), frames * kFrameBytes));
    set(first, frames, false);
    return Status::ok;
  }

 private:
  static constexpr std::uint64_t kHugeFrames = kHugeBytes / kFrameBytes;

  std::atomic<std::uint64_t>& word(std::uint64_t frame) const { return words_[frame / 64]; }
  template <class F>
  static void for_words(std::uint64_t first, std::uint64_t frames, const F& f) {
    for (const std::uint64_t end = first + frames; first < end;) {
      const std::uint64_t n = std::min(end - first, 64 - first % 64);
      const std::uint64_t ones = n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
      f(first / 64, ones << (first % 64));
      first += n;
    }
  }
  void set(std::uint64_t first, std::uint64_t frames, bool hole) {
    for_words(first, frames, [&](std::uint64_t at, std::uint64_t mask) {
      if (hole) {
        words_[at].fetch_or(mask, std::memory_order_relaxed);
      } else {
        words_[at].fetch_and(~mask, std::memory_order_relaxed);
      }
    });
  }

  pm::PoolFile& file_;
  const pm::ZeroPages pages_;
  std::atomic<std::uint64_t>* const words_;
  const pm::ZeroPages large_pages_;
  std::atomic<std::uint64_t>* const large_;
  const pm::ZeroPages punched_pages_;
  std::atomic<std::uint64_t>* const punched_;
  std::shared_mutex pages_change_;
};

}  // namespace TENUTO_NS::heap
