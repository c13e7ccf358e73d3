// A lane's cache of free blocks: one LIFO list a stripe for each class and kind. A cursor goes
// round the stripes, so that consecutive allocations set bits in different lines (NVAlloc's
// interleaving). Where bits are not flushed there is one list. Owner: the thread that holds the
// lane. No lock.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "heap/slab.h"

namespace TENUTO_NS::heap {

// Its size is a power of two, as every call looks one up in an array.
class alignas(2 * kLineBytes) ClassCache {
 public:
  // The most blocks a cache can hold.
  static constexpr std::size_t kMost = 192 + kStripesMax;

  void init(ClassId class_id, unsigned stripes) {
    const std::uint64_t blocks = std::clamp<std::uint64_t>(
        kCacheBytes / kClassBytes[class_id.value], kBlocksLeast, kBlocksMost);
    const auto per_stripe = static_cast<unsigned>((blocks + stripes - 1) / stripes);
    slots_ = std::make_unique<PoolOffset[]>(std::size_t{per_stripe} * stripes);
    stripes_ = stripes;
    per_stripe_ = per_stripe;  // last: without memory put() finds no room
  }
  bool ready() const { return slots_ != nullptr; }
  unsigned stripes() const { return stripes_; }
  unsigned count() const { return count_.load(std::memory_order_relaxed); }  // any thread
  unsigned capacity() const { return per_stripe_ * stripes_; }

  // A block from the next stripe that has one. A null offset when the cache is empty.
  [[gnu::always_inline]] PoolOffset take() {
    const unsigned before = count();
    if (before == 0) return {};
    unsigned s = cursor_;
    while (size_[s] == 0) s = next(s);
    const PoolOffset block = slots_[s * per_stripe_ + --size_[s]];
    cursor_ = next(s);
    set_count(before - 1);
    return block;
  }
  // A block from the stripe of the last one, if that stripe has one. For batches: their bits may
  // share a line.
  PoolOffset take_near() {
    const unsigned last = cursor_ == 0 ? stripes_ - 1 : cursor_ - 1;
    if (count() != 0 && size_[last] != 0) cursor_ = last;
    return take();
  }
  // False when the stripe's list is full, or init() was not called or found no memory.
  [[gnu::always_inline]] bool put(PoolOffset block, unsigned stripe) {
    if (size_[stripe] == per_stripe_) return false;
    slots_[stripe * per_stripe_ + size_[stripe]++] = block;
    set_count(count() + 1);
    return true;
  }
  // Moves the older half, or all, of every stripe's list to `out`. REQUIRES: out has room for
  // kMost. Returns how many blocks it moved.
  std::size_t spill(PoolOffset* out, bool all) {
    const unsigned before = count();
    for (unsigned s = 0; s < stripes_; ++s) {
      const unsigned n = all ? size_[s] : (size_[s] + 1) / 2;
      PoolOffset* list = slots_.get() + s * per_stripe_;
      out = std::copy(list, list + n, out);
      std::copy(list + n, list + size_[s], list);
      size_[s] = static_cast<std::uint16_t>(size_[s] - n);
      set_count(count() - n);
    }
    return before - count();
  }

 private:
  static constexpr std::uint64_t kCacheBytes = 64u << 10;  // bytes of blocks a class
  static constexpr std::uint64_t kBlocksLeast = 6;
  static constexpr std::uint64_t kBlocksMost = kMost - kStripesMax;
  void set_count(unsigned n) { count_.store(n, std::memory_order_relaxed); }
  unsigned next(unsigned s) const { return s + 1 == stripes_ ? 0 : s + 1; }

  unsigned stripes_ = 0;
  unsigned per_stripe_ = 0;
  std::atomic<unsigned> count_ = 0;  // stored by the owner alone; stats read it
  unsigned cursor_ = 0;
  std::array<std::uint16_t, kStripesMax> size_{};
  std::unique_ptr<PoolOffset[]> slots_;
};

}  // namespace TENUTO_NS::heap
