// Seeds of the tool's randomized tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace tenuto::test {

// The seed of this run: from TENUTO_SEED, otherwise a new one. It is printed, so that a failure can
// be repeated.
inline std::uint64_t test_seed() {
  const char* text = std::getenv("TENUTO_SEED");
  const std::uint64_t seed =
      text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
  std::printf("TENUTO_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace tenuto::test
