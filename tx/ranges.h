// A set of byte ranges of a pool: those that a transaction has logged, or has allocated.
//
// The ranges are sorted and disjoint. Ranges that touch become one. They are in chunks of a bounded
// size. A small transaction has one chunk, which is kept for the next transaction (no allocation).
// In a transaction of a million ranges each insert costs a binary search and a bounded move.
// make_room() gets all memory, before anything changes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenuto/abi.h"

namespace TENUTO_NS::tx {

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // begin < end
};

class RangeSet {
 public:
  RangeSet() : chunks_(1) {}

  bool empty() const { return end_ == 0; }
  // The end of the last range; 0: there is none.
  std::uint64_t end() const { return end_; }

  // Whether `at` is in the set, and up to where that answer holds: the end of its range, or the
  // start of the next range.
  struct Answer {
    bool inside;
    std::uint64_t until;
  };
  Answer at(std::uint64_t at) const {
    return at >= end_ ? Answer{false, ~std::uint64_t{0}} : search(at);
  }

  // After this, the next insert() needs no memory.
  void make_room() {
    const std::vector<Range>& first = chunks_[0];
    if (chunks_.size() == 1 && first.size() < std::min(first.capacity(), kChunkRanges)) [[likely]]
      return;
    make_more_room();
  }
  // REQUIRES: r is disjoint from the set; make_room() was called since the last insert.
  void insert(Range r) {
    std::vector<Range>& last = chunks_.back();
    if ((r.begin > end_ || last.empty()) && last.size() < kChunkRanges) {
      last.push_back(r);
      end_ = r.end;
    } else if (r.begin == end_) {
      last.back().end = end_ = r.end;
    } else {
      insert_between(r);
      end_ = std::max(end_, r.end);
    }
  }

  void clear() {
    if (chunks_.size() > 1) [[unlikely]]
      chunks_.resize(1);
    chunks_[0].clear();
    end_ = 0;
  }

  std::size_t size() const;  // the number of ranges; for tests

  // Walks the ranges in ascending order.
  class Cursor {
   public:
    explicit Cursor(const RangeSet& set)
        : chunk_(set.chunks_.data()), chunks_end_(chunk_ + set.chunks_.size()) {
      enter();
    }
    // Null: there are no more.
    const Range* get() const { return at_ != end_ ? at_ : nullptr; }
    void next() {
      if (++at_ == end_ && ++chunk_ != chunks_end_) enter();
    }

   private:
    void enter() {
      at_ = chunk_->data();
      end_ = at_ + chunk_->size();
    }
    const std::vector<Range>* chunk_;
    const std::vector<Range>* chunks_end_;
    const Range* at_ = nullptr;
    const Range* end_ = nullptr;
  };

 private:
  static constexpr std::size_t kChunkRanges = 256;

  std::size_t chunk_of(std::uint64_t at) const;
  Answer search(std::uint64_t at) const;
  void insert_between(Range r);
  void split(std::size_t chunk);
  void make_more_room();

  // No chunk is empty, unless it is the only one. When there are several, each has the capacity of
  // a full chunk.
  std::vector<std::vector<Range>> chunks_;
  std::vector<Range> spare_;  // empty: the memory of the next chunk
  std::uint64_t end_ = 0;
};

}  // namespace TENUTO_NS::tx
