// Lines that were stored to and are flushed later, together. The heap and transactions use it.
//
// A locked instruction waits for every flush before it, as a fence does. So an operation makes all
// its stores first and flushes just before a fence. A line that its log entry covers may wait for
// the fence of the next operation.
//
// A line leaves the list only by a fence of the thread that flushes it. The line may have been
// stored by another thread (a close, a thread that scavenges). The fence of one thread covers no
// flush of another, so the same thread flushes and fences each line.
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

  // From now on no line is added: on this medium nothing needs a flush.
  void turn_off() { off_ = true; }
  // When the list is full, this fences the lines in it first.
  [[gnu::always_inline]] void add(const std::uint64_t& word) {
    if (off_) return;
    transient(&word, sizeof word);  // for now: a log entry covers it, or the fence is next
    const char* line = line_of(&word);
    if (count_ != 0 && lines_[count_ - 1] == line) return;
    if (count_ == lines_.size()) [[unlikely]]
      make_room();
    lines_[count_++] = line;
  }
  // Takes the lines of another list. They are durable with the next fence of this one.
  void take(DirtyLines& other) {
    for (std::size_t i = 0; i < other.count_; ++i) {
      add(*reinterpret_cast<const std::uint64_t*>(other.lines_[i]));
    }
    other.count_ = 0;
  }
  // Flushes these lines and fences: covers them and all that the calling thread flushed before.
  void fence(const char* first, const char* then) {
    flush();
    tenuto::fence(first, then);
  }
  // For a fence of the caller, which covers more.
  void flush() {
    flush_lines(lines_.data(), count_);
    count_ = 0;
  }

 private:
  [[gnu::noinline]] void make_room() {
    if (TENUTO_PLANT("pm_dirty_lines_flushed_and_not_fenced")) return flush();
    fence("more dirty lines than fit", "they are forgotten");
  }

  bool off_ = false;
  std::size_t count_ = 0;
  std::array<const char*, kLinesMax> lines_;
};

}  // namespace TENUTO_NS::pm
