// Points in a transaction that it can go back to. They are in DRAM alone: the undo log keeps the
// oldest bytes, and a crash undoes the whole transaction. While there is a savepoint, a range that
// is added is copied here, too, once for each savepoint. rollback_to stores the copies back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tx/fields.h"
#include "tx/ranges.h"

namespace TENUTO_NS::tx {

// How much a transaction had done when the savepoint was made.
struct Mark {
  std::uint64_t id = 0;  // unique in the process
  std::size_t log = 0;   // entries
  std::size_t new_blocks = 0;
  std::size_t cancelled = 0;
  std::size_t freed = 0;
  std::size_t saved = 0;  // ranges
  std::size_t on_commit = 0;
  std::size_t on_abort = 0;
  WaitingFields fields;
};

class Savepoints {
 public:
  bool any() const { return !marks_.empty(); }
  // Null: there is no such savepoint, or not any more.
  const Mark* find(std::uint64_t id) const;
  // Fills id and saved.
  std::uint64_t add(Mark mark);

  // Copies the parts of `r` that were not copied since the youngest savepoint. `base` is the pool's
  // first byte. An exception leaves copies that are right.
  void save(const std::byte* base, Range r);
  // Calls f(offset, bytes, count) for each range that was copied since the mark, the youngest
  // first, and forgets them and all younger savepoints.
  template <class F>
  void take_back(const Mark& mark, F&& f) {
    while (saved_.size() > mark.saved) {
      const Saved& s = saved_.back();
      f(s.offset, &bytes_[s.at], bytes_.size() - s.at);
      bytes_.resize(s.at);
      saved_.pop_back();
    }
    since_.clear();
    marks_.resize(static_cast<std::size_t>(&mark - marks_.data()) + 1);
  }
  void clear();
  // Nobody goes back to this one any more.
  void release(std::uint64_t id);

  // Notes that new block i was cancelled. make_room_to_cancel() gets the memory for one.
  void make_room_to_cancel() {
    if (any()) make_room_in(cancelled_);
  }
  void cancel(std::size_t i) {
    if (any()) cancelled_.push_back(i);
  }
  std::size_t cancelled() const { return cancelled_.size(); }
  // The block that was cancelled last.
  std::size_t take_cancelled() {
    const std::size_t i = cancelled_.back();
    cancelled_.pop_back();
    return i;
  }

 private:
  struct Saved {
    std::uint64_t offset;
    std::size_t at;  // in bytes_, up to the next one's
  };
  template <class T>
  static void make_room_in(std::vector<T>& v) {
    if (v.size() == v.capacity()) v.reserve(2 * v.size() + 8);
  }

  std::vector<Mark> marks_;
  std::vector<Saved> saved_;
  std::vector<std::byte> bytes_;
  RangeSet since_;  // copied since the youngest savepoint
  std::vector<std::size_t> cancelled_;
};

}  // namespace TENUTO_NS::tx
