// The request distributions of YCSB (Cooper et al., SoCC 2010): they choose the record of an
// operation. They are used to make operation streams, never inside a timed section. The zipfian
// draw is the approximation of Gray et al. (SIGMOD 1994, "Quickly generating billion-record
// synthetic databases") with YCSB's constants. So the skew equals that of published YCSB figures.
#pragma once

#include <cmath>
#include <cstdint>

#include "bench/support/rng.h"

namespace bench {

inline constexpr double kZipfTheta = 0.99;

// sum of 1 / i^theta for i in (from, to]
inline double zeta_sum(std::uint64_t from, std::uint64_t to, double theta) {
  double sum = 0;
  for (std::uint64_t i = from + 1; i <= to; ++i) sum += std::pow(static_cast<double>(i), -theta);
  return sum;
}

// Ranks 0, 1, 2 ... with probability proportional to 1 / (rank + 1)^theta.
class Zipfian {
 public:
  explicit Zipfian(std::uint64_t items, double theta = kZipfTheta)
      : Zipfian(items, theta, zeta_sum(0, items, theta)) {}
  Zipfian(std::uint64_t items, double theta, double zeta_items)
      : items_(items),
        theta_(theta),
        alpha_(1 / (1 - theta)),
        zeta_(zeta_items),
        zeta_two_(zeta_sum(0, 2, theta)) {
    settle();
  }

  std::uint64_t next(Rng& rng) const {
    const double u = rng.unit();
    const double at = u * zeta_;
    if (at < 1) return 0;
    if (at < zeta_two_) return 1;
    const auto rank = static_cast<std::uint64_t>(static_cast<double>(items_) *
                                                 std::pow(eta_ * u - eta_ + 1, alpha_));
    return rank < items_ ? rank : items_ - 1;
  }

  // Cheap: continues the sum instead of starting again. Does nothing if items is not larger.
  void grow(std::uint64_t items) {
    if (items <= items_) return;
    zeta_ += zeta_sum(items_, items, theta_);
    items_ = items;
    settle();
  }

  double zeta() const { return zeta_; }
  double eta() const { return eta_; }
  std::uint64_t items() const { return items_; }

 private:
  void settle() {
    eta_ = (1 - std::pow(2.0 / static_cast<double>(items_), 1 - theta_)) / (1 - zeta_two_ / zeta_);
  }

  std::uint64_t items_;
  double theta_;
  double alpha_;
  double zeta_;
  double zeta_two_;
  double eta_ = 0;
};

// YCSB's FNV-1a over the eight bytes of a number, lowest first, with the sign removed.
inline std::uint64_t fnv_hash(std::uint64_t n) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (int i = 0; i < 8; ++i) {
    h = (h ^ (n & 0xff)) * 1099511628211ull;
    n >>= 8;
  }
  const auto s = static_cast<std::int64_t>(h);
  return s < 0 ? 0 - h : h;
}

// Zipfian popularity spread over all records. Ranks are drawn from ten billion items and hashed
// down. So popular records are anywhere, and a growing store keeps its hot set.
class ScrambledZipfian {
 public:
  static constexpr std::uint64_t kItemSpace = 10'000'000'000ull;
  static constexpr double kZetaOfItemSpace = 26.46902820178302;  // zeta_sum(0, kItemSpace, 0.99)

  explicit ScrambledZipfian(std::uint64_t records)
      : records_(records), ranks_(kItemSpace, kZipfTheta, kZetaOfItemSpace) {}

  std::uint64_t next(Rng& rng) const { return fnv_hash(ranks_.next(rng)) % records_; }

 private:
  std::uint64_t records_;
  Zipfian ranks_;
};

// The newest records are the most popular. `count` is the current number of records.
class Latest {
 public:
  explicit Latest(std::uint64_t records) : ages_(records) {}

  std::uint64_t next(Rng& rng, std::uint64_t count) {
    ages_.grow(count);
    return count - 1 - ages_.next(rng);
  }

 private:
  Zipfian ages_;
};

}  // namespace bench
