// The rest of freed blocks (HeapOptions::wear_rest_ms): in order of time, oldest first. Whose block
// is here is in use by nobody: small blocks are not free in their slab, extents are `killed`. A
// crash forgets the queue, and everything in it is free: what made the blocks free is durable
// before they come here.
//
// An entry is a block, an extent, or the frame of a slab that was evacuated. One lock, a leaf, held
// for some instructions.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

#include "pm/no_memory.h"
#include "pm/short_lock.h"
#include "tenuto/units.h"

namespace TENUTO_NS::heap {

struct Resting {
  enum class What : std::uint8_t { block = 0, extent = 1, slab_frame = 2 };
  std::int64_t since_ms = 0;
  PoolOffset at;
  std::uint32_t bytes = 0;  // of a derived block, for the figures; else 0
  What what = What::block;
};

class RestQueue {
 public:
  // False: there is no memory for it.
  bool add(const Resting& r) {
    const std::lock_guard lock(mu_);
    if (!pm::had_memory([&] { queue_.push_back(r); })) return false;
    bytes_.fetch_add(r.bytes, std::memory_order_relaxed);
    count_.store(queue_.size(), std::memory_order_relaxed);
    return true;
  }
  // Takes up to `most` entries that rest since `until` or longer.
  std::size_t take(std::int64_t until, Resting* out, std::size_t most) {
    if (count() == 0) return 0;
    const std::lock_guard lock(mu_);
    std::size_t n = 0;
    for (; n < most && !queue_.empty() && queue_.front().since_ms <= until; ++n) {
      out[n] = queue_.front();
      queue_.pop_front();
      bytes_.fetch_sub(out[n].bytes, std::memory_order_relaxed);
    }
    count_.store(queue_.size(), std::memory_order_relaxed);
    return n;
  }
  std::size_t count() const { return count_.load(std::memory_order_relaxed); }  // any thread
  std::uint64_t derived_bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  pm::ShortLock mu_;
  std::deque<Resting> queue_;  // guarded by mu_
  std::atomic<std::size_t> count_ = 0;
  std::atomic<std::uint64_t> bytes_ = 0;
};

}  // namespace TENUTO_NS::heap
