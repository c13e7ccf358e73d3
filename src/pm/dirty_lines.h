// Lines that were stored to and are flushed later, together. A locked instruction waits for every
// flush before it as a fence does, so an operation makes its stores first and flushes just before a
// fence; what its log entry covers may be left to the next one's. Used by the heap and
// transactions.
//
// A line leaves only by a fence of the thread that flushed it. What stands here may be fenced by
// another thread than the one that stored it (a close, whoever scavenges), and that one's fence
// covers none of the first one's flushes: so nothing is ever flushed here and fenced elsewhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

class DirtyLines {
 public:
  static constexpr std::size_t kLinesMax = 128;

  // Fences what is there when it is full.
  void add(const std::uint64_t& word) {
    transient(&word, sizeof word);  // for a while: a log entry says it, or the fence is at once
    const char* line = line_of(&word);
    if (count_ != 0 && lines_[count_ - 1] == line) return;
    if (count_ == lines_.size()) [[unlikely]]
      make_room();
    lines_[count_++] = line;
  }
  // The fence of the calling thread, over these lines and all that it flushed before.
  void fence(const char* first, const char* then) {
    flush();
    tenuto::fence(first, then);
  }

 private:
  void flush() {
    for (std::size_t i = 0; i < count_; ++i) flush_bytes(lines_[i], kLineBytes);
    count_ = 0;
  }
  void make_room() {
    if (TENUTO_PLANT("pm_dirty_lines_flushed_and_not_fenced")) return flush();
    fence("more dirty lines than fit", "they are forgotten");
  }

  std::size_t count_ = 0;
  std::array<const char*, kLinesMax> lines_;
};

}  // namespace TENUTO_NS::pm
