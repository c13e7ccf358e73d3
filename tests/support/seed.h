// What the environment sets for a test: its seed, and numbers that make it longer.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "pm/sanitizer.h"

namespace tenuto::test {

inline std::uint64_t from_env(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

inline constexpr bool kSanitized = TENUTO_ASAN || TENUTO_TSAN;

// With a sanitizer each case takes several times as long, and the build without one has run many.
constexpr std::uint64_t fewer_if_sanitized(std::uint64_t cases, std::uint64_t by) {
  return kSanitized ? cases / by : cases;
}

// A seed for a run that was given none: random, but tools/test sets TENUTO_FRESH_SEED to a number
// of the commit, so that two runs of one commit try the same.
inline std::uint64_t fresh_seed() { return from_env("TENUTO_FRESH_SEED", std::random_device{}()); }

// The seed of this run: from TENUTO_SEED, otherwise a fresh one. It is printed, so that a failure
// can be repeated.
inline std::uint64_t test_seed() {
  const std::uint64_t seed = from_env("TENUTO_SEED", fresh_seed());
  std::printf("TENUTO_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace tenuto::test
