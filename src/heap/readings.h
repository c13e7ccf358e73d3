// What a trace has reached (reach.cc), and who has read it. A block may be reached in several ways,
// and each may see other pointers in it: a Ptr to the first element of a vector, or to the first
// member of an object, sees less than its owner. So a block is read once *by each reader*.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

#include "heap/block_marks.h"
#include "pm/no_memory.h"
#include "pm/thread.h"
#include "tenuto/garbage.h"
#include "tenuto/references.h"

namespace TENUTO_NS::heap {

// The block is reached, and was read word by word. In one word, because that is the usual way after
// a crash, and each locked instruction counts.
class ReachedMarks : public MarkBits<2> {
 public:
  using MarkBits::MarkBits;
  static constexpr std::uint64_t kReached = 1, kRead = 2;
};

// How many threads a trace has.
inline unsigned threads_of(const GarbageOptions& options) {
  constexpr unsigned kMost = 256;
  return options.threads == 0 ? pm::cores() : std::min(options.threads, kMost);
}

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
