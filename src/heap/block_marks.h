// One bit for each 16 bytes of a pool: a mark for the block that begins there. In DRAM: 1/128 of
// the pool's size at most, because only touched pages exist.
#pragma once

#include <atomic>
#include <cstdint>

#include "pm/zero_pages.h"
#include "tenuto/units.h"

namespace TENUTO_NS::heap {

class BlockMarks {
 public:
  explicit BlockMarks(std::uint64_t pool_bytes)
      : pages_((pool_bytes / kBytesAWord + 1) * sizeof(std::uint64_t)),
        words_(pages_.as<std::atomic<std::uint64_t>>()) {}

  bool there() const { return static_cast<bool>(pages_); }
  bool has(PoolOffset o) const { return (word(o).load(std::memory_order_relaxed) & bit(o)) != 0; }
  // True: this call set it. Any thread.
  bool set(PoolOffset o) {
    if (has(o)) return false;
    return (word(o).fetch_or(bit(o), std::memory_order_relaxed) & bit(o)) == 0;
  }

 private:
  static constexpr std::uint64_t kBytesAWord = 64 * 16;
  std::atomic<std::uint64_t>& word(PoolOffset o) const { return words_[o.value / kBytesAWord]; }
  static std::uint64_t bit(PoolOffset o) { return std::uint64_t{1} << (o.value / 16 % 64); }

  const pm::ZeroPages pages_;
  std::atomic<std::uint64_t>* const words_;
};

}  // namespace TENUTO_NS::heap
