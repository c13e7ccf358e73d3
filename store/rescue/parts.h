// Parts of a rescue: ranges of keys that may be lost, and the writer of the new pool.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/tree/record.h"
#include "tenuto/collection.h"
#include "tenuto/rescue.h"

namespace TENUTO_NS::store {

// Ranges of keys, from (inclusive) to (exclusive; none: to the end).
class KeyRanges {
 public:
  void add(std::string from, std::optional<std::string> to) {
    ranges_.push_back({std::move(from), std::move(to)});
  }

  // Sorts the ranges and makes them disjoint, for the binary search of contains().
  void sort() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.from < b.from; });
    std::vector<Range> merged;
    for (Range& r : ranges_) {
      if (merged.empty() || (merged.back().to && *merged.back().to < r.from)) {
        merged.push_back(std::move(r));
      } else if (merged.back().to && (!r.to || *merged.back().to < *r.to)) {
        merged.back().to = std::move(r.to);
      }
    }
    ranges_ = std::move(merged);
  }

  // REQUIRES: sort() was called after the last add().
  bool contains(std::string_view key) const {
    const auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), key,
                         [](std::string_view k, const Range& r) { return k < r.from; });
    if (after == ranges_.begin()) return false;
    const Range& r = *std::prev(after);
    return !r.to || key < *r.to;
  }

 private:
  struct Range {
    std::string from;
    std::optional<std::string> to;
  };
  std::vector<Range> ranges_;
};

inline constexpr std::size_t kBatchOps = 1000;
inline constexpr std::uint64_t kBatchBytes = 4u << 20;

// Writes records to one collection of the new pool, in batches.
class Writer {
 public:
  Writer(Store& to, Collection into, RescueResult& result)
      : to_(to), into_(std::move(into)), result_(result) {}

  Status put(const Record& r) {
    batch_.put({into_, r.key}, r.value);
    bytes_ += r.key.size() + r.value.size();
    result_.records += 1;
    result_.record_bytes += r.key.size() + r.value.size();
    return batch_.count() < kBatchOps && bytes_ < kBatchBytes ? Status::ok : flush();
  }
  Status flush() {
    TENUTO_TRY(to_.write(batch_));
    batch_.clear();
    bytes_ = 0;
    return Status::ok;
  }
  // Whether the new collection has the key. Flushes first, so that it finds what was put.
  Result<bool> has(std::string_view key) {
    TENUTO_TRY(flush());
    const Status s = into_.contains(key);
    if (s == Status::ok) return true;
    if (s == Status::not_found) return false;
    return s;
  }

 private:
  Store& to_;
  Collection into_;
  RescueResult& result_;
  WriteBatch batch_;
  std::uint64_t bytes_ = 0;
};

}  // namespace TENUTO_NS::store
