#include "tx/ranges.h"

#include <algorithm>
#include <iterator>

#include "pm/assert.h"

namespace TENUTO_NS::tx {

namespace {

constexpr std::size_t kFirstRanges = 16;  // the first capacity of a set

// The first range that ends after `at`.
std::size_t first_behind(const std::vector<Range>& ranges, std::uint64_t at) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), at,
                                   [](std::uint64_t a, const Range& r) { return a < r.end; });
  return static_cast<std::size_t>(it - ranges.begin());
}

}  // namespace

// The first chunk that has a range ending after `at`, or the last one.
std::size_t RangeSet::chunk_of(std::uint64_t at) const {
  const auto it = std::upper_bound(
      chunks_.begin(), std::prev(chunks_.end()), at,
      [](std::uint64_t a, const std::vector<Range>& c) { return a < c.back().end; });
  return static_cast<std::size_t>(it - chunks_.begin());
}

RangeSet::Answer RangeSet::search(std::uint64_t at) const {
  const std::vector<Range>& ranges = chunks_[chunk_of(at)];
  const Range& r = ranges[first_behind(ranges, at)];
  return at < r.begin ? Answer{false, r.begin} : Answer{true, r.end};
}

void RangeSet::insert_between(Range r) {
  std::size_t c = chunk_of(r.begin);
  std::size_t i = first_behind(chunks_[c], r.begin);
  // The left neighbour may be the last range of the previous chunk.
  Range* left = nullptr;
  if (i > 0) {
    left = &chunks_[c][i - 1];
  } else if (c > 0) {
    left = &chunks_[c - 1].back();
  }
  const bool has_right = i < chunks_[c].size();
  TENUTO_DCHECK(left == nullptr || left->end <= r.begin);
  TENUTO_DCHECK(!has_right || r.end <= chunks_[c][i].begin);
  const bool joins_left = left != nullptr && left->end == r.begin;
  const bool joins_right = has_right && chunks_[c][i].begin == r.end;
  if (joins_left && joins_right) {
    left->end = chunks_[c][i].end;
    chunks_[c].erase(chunks_[c].begin() + static_cast<std::ptrdiff_t>(i));
    if (chunks_[c].empty() && chunks_.size() > 1) {
      chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(c));
    }
  } else if (joins_left) {
    left->end = r.end;
  } else if (joins_right) {
    chunks_[c][i].begin = r.begin;
  } else {
    if (chunks_[c].size() >= kChunkRanges) {
      split(c);
      if (i > chunks_[c].size()) {
        i -= chunks_[c].size();
        c += 1;
      }
    }
    chunks_[c].insert(chunks_[c].begin() + static_cast<std::ptrdiff_t>(i), r);
  }
}

void RangeSet::split(std::size_t chunk) {
  TENUTO_DCHECK(spare_.capacity() >= kChunkRanges && chunks_.size() < chunks_.capacity());
  const auto half = static_cast<std::ptrdiff_t>(kChunkRanges / 2);
  std::vector<Range>& lower = chunks_[chunk];
  spare_.assign(lower.begin() + half, lower.end());
  lower.erase(lower.begin() + half, lower.end());
  chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(chunk) + 1, std::move(spare_));
  spare_ = {};
}

void RangeSet::make_more_room() {
  std::vector<Range>& first = chunks_[0];
  if (chunks_.size() == 1 && first.size() < kChunkRanges) {
    first.reserve(std::clamp(2 * first.size(), kFirstRanges, kChunkRanges));
    return;
  }
  if (spare_.capacity() < kChunkRanges) spare_.reserve(kChunkRanges);
  if (chunks_.size() == chunks_.capacity()) chunks_.reserve(2 * chunks_.size() + 1);
}

std::size_t RangeSet::size() const {
  std::size_t n = 0;
  for (const auto& c : chunks_) n += c.size();
  return n;
}

}  // namespace TENUTO_NS::tx
