// A small seeded generator (Steele, Lea, Flood: SplitMix, OOPSLA 2014), and the bijective mixers
// that turn record numbers into keys. Everything in a benchmark follows from its --seed.
#pragma once

#include <cstdint>

namespace bench {

constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(mix64(seed)) {}

  std::uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15ull); }
  // Uniform in [0, n) for n > 0 (REQUIRES), from the high half of a product. The bias is below n /
  // 2^64.
  std::uint64_t below(std::uint64_t n) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * n) >> 64);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  std::uint64_t state_;
};

// A permutation of the `kBits`-bit numbers: record n has the key number forward(n). So keys arrive
// in hashed order as in YCSB. Unlike with a hash, no two records share a key.
// backward(forward(n)) == n.
template <unsigned kBits>
struct Permutation {
  static_assert(kBits % 2 == 0 && kBits <= 64);
  static constexpr std::uint64_t kMask = ~0ull >> (64 - kBits);
  static constexpr std::uint64_t kFactorA = 0x9e3779b97f4a7c15ull;
  static constexpr std::uint64_t kFactorB = 0xd6e8feb86659fd93ull;

  // The inverse of an odd factor modulo 2^64, by Newton's iteration: each step doubles the bits.
  static constexpr std::uint64_t inverse(std::uint64_t odd) {
    std::uint64_t x = odd;
    for (int i = 0; i < 6; ++i) x *= 2 - odd * x;
    return x;
  }
  static constexpr std::uint64_t fold(std::uint64_t x) { return x ^ (x >> (kBits / 2)); }

  static constexpr std::uint64_t forward(std::uint64_t n) {
    n = fold((n * kFactorA) & kMask);
    return fold((n * kFactorB) & kMask);
  }
  static constexpr std::uint64_t backward(std::uint64_t n) {
    n = (fold(n) * inverse(kFactorB)) & kMask;
    return (fold(n) * inverse(kFactorA)) & kMask;
  }
};
static_assert(Permutation<60>::backward(Permutation<60>::forward(123456789)) == 123456789);
static_assert(Permutation<64>::backward(Permutation<64>::forward(~0ull)) == ~0ull);

}  // namespace bench
