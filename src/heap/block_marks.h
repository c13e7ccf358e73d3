// Bits for each 16 bytes of a pool: marks for the block that begins there. In DRAM: kBits/128 of
// the pool's size at most, because only touched pages exist.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "pm/zero_pages.h"
#include "tenuto/units.h"

namespace TENUTO_NS::heap {

template <unsigned kBits>
class MarkBits {
 public:
  explicit MarkBits(std::uint64_t pool_bytes)
      : pages_((pool_bytes / kBytesAWord + 1) * sizeof(std::uint64_t)),
        words_(pages_.as<std::atomic<std::uint64_t>>()) {}

  bool there() const { return static_cast<bool>(pages_); }
  // The first bit.
  bool has(PoolOffset o) const { return (get(o) & 1) != 0; }
  // True: this call set it. Any thread.
  bool set(PoolOffset o) { return (add(o, 1) & 1) == 0; }
  // Sets bits, and returns those that were set before. Any thread.
  std::uint64_t add(PoolOffset o, std::uint64_t bits) {
    if (const std::uint64_t now = get(o); (now & bits) == bits) return now;
    return word(o).fetch_or(bits << place(o), std::memory_order_relaxed) >> place(o) & kMask;
  }
  // Calls f(PoolOffset) for each place in [from, from + bytes) whose first bit is set. REQUIRES:
  // both are multiples of a slab's.
  template <class F>
  void for_each(PoolOffset from, std::uint64_t bytes, const F& f) const {
    for (PoolOffset at = from; at < from + bytes; at = at + kBytesAWord) {
      std::uint64_t bits = word(at).load(std::memory_order_relaxed) & kFirst;
      for (; bits != 0; bits &= bits - 1) {
        f(at + static_cast<unsigned>(std::countr_zero(bits)) / kBits * 16);
      }
    }
  }
  // Makes the pages for the marks of [from, from + bytes). Else the first look at a page maps a
  // page of zeros, and the first mark a page of its own: a fault more, which interrupts all cores.
  void prepare(PoolOffset from, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; i += kFrameBytes / 8 * kBytesAWord) {
      word(from + i).fetch_or(0, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::uint64_t kFirst = ~std::uint64_t{0} / ((std::uint64_t{1} << kBits) - 1);
  static constexpr std::uint64_t kBytesAWord = 64 / kBits * 16;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << kBits) - 1;
  std::atomic<std::uint64_t>& word(PoolOffset o) const { return words_[o.value / kBytesAWord]; }
  static unsigned place(PoolOffset o) {
    return static_cast<unsigned>(o.value % kBytesAWord / 16 * kBits);
  }
  std::uint64_t get(PoolOffset o) const {
    return word(o).load(std::memory_order_relaxed) >> place(o) & kMask;
  }

  const pm::ZeroPages pages_;
  std::atomic<std::uint64_t>* const words_;
};

// One mark.
class BlockMarks : public MarkBits<1> {
 public:
  using MarkBits::MarkBits;
};

}  // namespace TENUTO_NS::heap
