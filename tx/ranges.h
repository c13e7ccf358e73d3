// A set of byte ranges of a pool: what a transaction has logged, or has allocated.
//
// Sorted and disjoint, in chunks of a bounded number of ranges: a small transaction is one chunk
// that is kept between transactions (no allocation), a transaction of a million ranges costs a
// binary search and a bounded move each. Touching ranges become one. All memory is got by
// make_room(), before anything is changed.
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

  bool empty() const { return chunks_[0].empty(); }

  // Whether `at` lies in the set, and up to where that answer holds: the end of its range, or the
  // begin of the next one.
  struct Answer {
    bool inside;
    std::uint64_t until;
  };
  Answer at(std::uint64_t at) const {
    if (empty() || at >= chunks_.back().back().end) return {false, ~std::uint64_t{0}};
    return search(at);
  }

  // The next insert() needs no memory.
  void make_room() {
    const std::vector<Range>& first = chunks_[0];
    if (chunks_.size() == 1 && first.size() < std::min(first.capacity(), kChunkRanges)) [[likely]]
      return;
    make_more_room();
  }
  // REQUIRES: disjoint from the set; make_room() since the last one.
  void insert(Range r) {
    std::vector<Range>& last = chunks_.back();
    if (!last.empty() && r.begin == last.back().end) {
      last.back().end = r.end;
    } else if ((last.empty() || r.begin > last.back().end) && last.size() < kChunkRanges) {
      last.push_back(r);
    } else {
      insert_between(r);
    }
  }

  void clear() {
    chunks_.resize(1);
    chunks_[0].clear();
  }

  std::size_t size() const;  // ranges; for tests

  // Goes through the ranges in ascending order.
  class Cursor {
   public:
    explicit Cursor(const RangeSet& set) : set_(set) {}
    const Range* get() const {
      return chunk_ < set_.chunks_.size() && i_ < set_.chunks_[chunk_].size()
                 ? &set_.chunks_[chunk_][i_]
                 : nullptr;
    }
    void next() {
      if (++i_ < set_.chunks_[chunk_].size()) return;
      i_ = 0;
      ++chunk_;
    }

   private:
    const RangeSet& set_;
    std::size_t chunk_ = 0;
    std::size_t i_ = 0;
  };

 private:
  static constexpr std::size_t kChunkRanges = 256;

  std::size_t chunk_of(std::uint64_t at) const;
  Answer search(std::uint64_t at) const;
  void insert_between(Range r);
  void split(std::size_t chunk);
  void make_more_room();

  // No chunk is empty, unless it is the only one. Where there are several, each has room for all
  // that a chunk may hold.
  std::vector<std::vector<Range>> chunks_;
  std::vector<Range> spare_;  // the next chunk, empty
};

}  // namespace TENUTO_NS::tx
