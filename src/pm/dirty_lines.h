// Lines that were stored to and are flushed later, together. A locked instruction waits for every
// flush before it as a fence does, so an operation makes its stores first and flushes just before a
// fence; what its log entry covers may be left to the next one's. Used by the heap and
// transactions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::pm {

class DirtyLines {
 public:
  // Flushes what is there when it is full.
  void add(const std::uint64_t& word) {
    transient(&word, sizeof word);  // for a while: a log entry says it, or the fence is at once
    const char* line = line_of(&word);
    if (count_ != 0 && lines_[count_ - 1] == line) return;
    if (count_ == lines_.size()) flush();
    lines_[count_++] = line;
  }
  void flush() {
    for (std::size_t i = 0; i < count_; ++i) flush_bytes(lines_[i], kLineBytes);
    count_ = 0;
  }

 private:
  std::size_t count_ = 0;
  std::array<const char*, 128> lines_;
};

}  // namespace tenuto::inline TENUTO_ABI::pm
