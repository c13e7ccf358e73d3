// A histogram of durations with logarithmic buckets, after the idea of HdrHistogram. Each power of
// two is divided into 64 equal parts. So every percentile is correct within 1.6 %, and recording is
// a shift and an add. Plain memory: it also works in mappings shared between processes. One thread
// writes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace bench {

class Histogram {
 public:
  static constexpr unsigned kPartBits = 6;
  static constexpr unsigned kValueBits = 46;  // longer durations count as the longest
  static constexpr std::size_t kBuckets =
      ((kValueBits - kPartBits) << kPartBits) + (std::size_t{1} << kPartBits);

  void record(std::uint64_t value) {
    ++counts_[bucket_of(value)];
    ++total_;
    sum_ += value;
    if (value > max_) max_ = value;
  }

  void merge(const Histogram& o) {
    for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += o.counts_[i];
    total_ += o.total_;
    sum_ += o.sum_;
    max_ = std::max(max_, o.max_);
  }

  // The upper end of the bucket that holds the percentile `share` (0..1), never above max(). 0 when
  // nothing was recorded.
  std::uint64_t percentile(double share) const {
    if (total_ == 0) return 0;
    const double exact = share * static_cast<double>(total_);
    auto rank = static_cast<std::uint64_t>(exact);
    if (static_cast<double>(rank) < exact || rank == 0) ++rank;
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (seen >= rank) return std::min(last_value_of(i), max_);
    }
    return max_;
  }

  std::uint64_t total() const { return total_; }
  std::uint64_t max() const { return max_; }
  double mean() const {
    return total_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(total_);
  }

  static constexpr std::size_t bucket_of(std::uint64_t value) {
    value = std::min(value, (std::uint64_t{1} << kValueBits) - 1);
    const std::uint64_t low = (std::uint64_t{2} << kPartBits) - 1;
    const auto shift = static_cast<unsigned>(std::bit_width(value | low)) - kPartBits - 1;
    return (std::size_t{shift} << kPartBits) + (value >> shift);
  }
  static constexpr std::uint64_t last_value_of(std::size_t bucket) {
    if (bucket < (std::size_t{2} << kPartBits)) return bucket;
    const unsigned shift = static_cast<unsigned>(bucket >> kPartBits) - 1;
    const std::uint64_t part = bucket - (std::size_t{shift} << kPartBits);
    return ((part + 1) << shift) - 1;
  }

 private:
  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t total_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
};
static_assert(Histogram::bucket_of(~0ull) == Histogram::kBuckets - 1);
static_assert(Histogram::bucket_of(127) == 127 && Histogram::last_value_of(127) == 127);
static_assert(Histogram::bucket_of(128) == 128 && Histogram::last_value_of(128) == 129);

}  // namespace bench
