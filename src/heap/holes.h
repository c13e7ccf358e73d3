// Which frames of the pool have no pages in the file: one bit a frame, in DRAM only. The owner of a
// frame may change its bit, also just before it gives the frame away. Neighbouring frames may have
// other owners, so the words are atomic.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "file/pool_file.h"
#include "pm/zero_pages.h"

namespace TENUTO_NS::heap {

class Holes {
 public:
  explicit Holes(pm::PoolFile& file)
      : file_(file),
        pages_((file.bytes_max() / kFrameBytes / 64 + 1) * sizeof(std::uint64_t)),
        words_(pages_.as<std::atomic<std::uint64_t>>()) {
    if (file.read_only() || !there()) return;
    file.for_each_hole([this](PoolOffset o, std::uint64_t bytes) {
      const std::uint64_t first = o.value / kFrameBytes;
      set(first, (o.value + bytes + kFrameBytes - 1) / kFrameBytes - first, true);
    });
  }

  bool there() const { return static_cast<bool>(pages_); }
  bool is_hole(std::uint64_t frame) const {
    return (word(frame).load(std::memory_order_relaxed) >> (frame % 64) & 1) != 0;
  }
  // How many of these frames have no pages.
  std::uint64_t count(std::uint64_t first, std::uint64_t frames) const {
    std::uint64_t n = 0;
    for_words(first, frames, [&](std::uint64_t at, std::uint64_t mask) {
      n += static_cast<std::uint64_t>(
          std::popcount(words_[at].load(std::memory_order_relaxed) & mask));
    });
    return n;
  }

  // Gives all pages of these frames back (PoolFile::punch).
  Status punch(std::uint64_t first, std::uint64_t frames) {
    TENUTO_TRY(file_.punch(offset_of_frame({first}), frames * kFrameBytes));
    set(first, frames, true);
    return Status::ok;
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
};

}  // namespace TENUTO_NS::heap
