// Places that words lead to, and that no thread has looked at: what a trace (reach.cc) has still to
// do. They are kept by the slab that they are in. So the header, the marks and the pages of a slab
// are looked at for many places at once, and a block's lines are asked for long before it is read.
// A trace that follows each word at once waits for memory at each: a third of the speed.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "heap/format.h"
#include "tenuto/references.h"
#include "tenuto/units.h"

namespace TENUTO_NS::heap {

struct Candidate {
  static constexpr std::uint64_t kBegin = std::uint64_t{1} << 63;

  std::uint64_t bits = 0;  // the place's offset. kBegin: only a block that begins there counts
  References::Reader reader = nullptr;

  PoolOffset at() const { return {bits & ~kBegin}; }
  bool only_begin() const { return (bits & kBegin) != 0; }
};

// Of one thread. May throw bad_alloc.
class Candidates {
 public:
  void add(const Candidate& c) {
    const std::size_t b = c.at().value / kSlabBytes % kBuckets;
    buckets_[b].push_back(c);
    used_[b / 64] |= std::uint64_t{1} << b % 64;
  }
  // Takes the bucket that was taken last, if it has some again, or the next one. `to` loses what is
  // in it, and is empty then if there are none.
  void take(std::vector<Candidate>& to) {
    make_empty(to);
    const std::size_t b = next();
    if (b == kBuckets) return;
    last_ = b;
    take_bucket(b, to);
  }
  // Every second bucket, or half of the only one, to give it away. Empty if there is one candidate.
  std::vector<Candidate> half() {
    std::vector<Candidate> out;
    std::vector<Candidate> bucket;
    std::vector<Candidate>* first = nullptr;
    bool mine = false;
    for (std::size_t w = 0; w < used_.size(); ++w) {
      for (std::uint64_t bits = used_[w]; bits != 0; bits &= bits - 1) {
        const std::size_t b = 64 * w + static_cast<std::size_t>(std::countr_zero(bits));
        if (first == nullptr) first = &buckets_[b];
        if ((mine = !mine)) continue;
        take_bucket(b, bucket);
        out.insert(out.end(), bucket.begin(), bucket.end());
        make_empty(bucket);
      }
    }
    if (out.empty() && first != nullptr) {
      const auto from = first->begin() + static_cast<std::ptrdiff_t>((first->size() + 1) / 2);
      out.assign(from, first->end());
      first->erase(from, first->end());
    }
    return out;
  }

 private:
  static constexpr std::size_t kBuckets = 1024;
  static constexpr std::size_t kKept = 256;  // in an empty bucket: 4 MiB in all

  // Its memory becomes a bucket's: else each bucket would keep what the largest one needed.
  static void make_empty(std::vector<Candidate>& bucket) {
    bucket.clear();
    if (bucket.capacity() > kKept) std::vector<Candidate>().swap(bucket);
  }
  // kBuckets: all are empty.
  std::size_t next() const {
    const std::size_t first = last_ / 64;
    const std::uint64_t here = used_[first] >> last_ % 64 << last_ % 64;
    if (here != 0) return 64 * first + static_cast<std::size_t>(std::countr_zero(here));
    for (std::size_t i = 1; i <= used_.size(); ++i) {
      const std::size_t w = (first + i) % used_.size();
      if (used_[w] != 0) return 64 * w + static_cast<std::size_t>(std::countr_zero(used_[w]));
    }
    return kBuckets;
  }
  void take_bucket(std::size_t b, std::vector<Candidate>& to) {
    used_[b / 64] &= ~(std::uint64_t{1} << b % 64);
    buckets_[b].swap(to);
  }

  std::array<std::vector<Candidate>, kBuckets> buckets_;
  std::array<std::uint64_t, kBuckets / 64> used_ = {};
  std::size_t last_ = 0;
};

}  // namespace TENUTO_NS::heap
