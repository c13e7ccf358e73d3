// What a trace has reached (reach.cc), and who has read it. A block may be reached in several ways,
// and each may see other pointers in it: a Ptr to the first element of a vector, or to the first
// member of an object, sees less than its owner. So a block is read once *by each reader*.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "heap/block_marks.h"
#include "pm/no_memory.h"
#include "pm/zero_pages.h"
#include "tenuto/references.h"

namespace TENUTO_NS::heap {

// Two bits for each 16 bytes: the block that begins there is reached, and was read word by word. In
// one word, because that is the usual way after a crash, and each locked instruction counts.
class ReachedMarks {
 public:
  explicit ReachedMarks(std::uint64_t pool_bytes)
      : pages_((pool_bytes / kBytesAWord + 1) * sizeof(std::uint64_t)),
        words_(pages_.as<std::atomic<std::uint64_t>>()) {}
  bool there() const { return static_cast<bool>(pages_); }

  struct Bits {
    bool reached;
    bool read;
  };
  bool has(PoolOffset o) const { return get(o).reached; }
  // True: this call set it. Any thread.
  bool set(PoolOffset o) { return !add(o, 1).reached; }
  // Also as read. What it was before.
  Bits set_read(PoolOffset o) { return add(o, 3); }

 private:
  static constexpr std::uint64_t kBytesAWord = 32 * 16;
  static unsigned place(PoolOffset o) { return static_cast<unsigned>(o.value / 16 % 32 * 2); }
  std::atomic<std::uint64_t>& word(PoolOffset o) const { return words_[o.value / kBytesAWord]; }
  static Bits bits(std::uint64_t word, PoolOffset o) {
    return {(word >> place(o) & 1) != 0, (word >> place(o) & 2) != 0};
  }
  Bits get(PoolOffset o) const { return bits(word(o).load(std::memory_order_relaxed), o); }
  Bits add(PoolOffset o, std::uint64_t wanted) {
    const std::uint64_t add = wanted << place(o);
    const std::uint64_t now = word(o).load(std::memory_order_relaxed);
    if ((now & add) == add) return bits(now, o);
    return bits(word(o).fetch_or(add, std::memory_order_relaxed), o);
  }

  const pm::ZeroPages pages_;
  std::atomic<std::uint64_t>* const words_;
};

class Readings {
 public:
  explicit Readings(std::uint64_t pool_bytes) : reached(pool_bytes), pool_bytes_(pool_bytes) {}
  bool there() const { return reached.there(); }

  // The blocks that `reader`, which is not null, has read. Any thread. Throws bad_alloc.
  BlockMarks& by(References::Reader reader) {
    const std::lock_guard lock(mu_);
    const auto at = by_.try_emplace(reader, pool_bytes_).first;
    if (!at->second.there()) pm::throw_bad_alloc();
    return at->second;
  }

  ReachedMarks reached;

 private:
  const std::uint64_t pool_bytes_;
  std::mutex mu_;
  std::map<References::Reader, BlockMarks> by_;
};

}  // namespace TENUTO_NS::heap
