// How many crash states are sampled, and how many seeds drawn. TENUTO_CRASH_SCALE multiplies the
// numbers in the sources. Without it they are taken times kUsual, which keeps continuous
// integration within its hour.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdlib>

namespace tenuto::test {

inline std::size_t crash_scaled(std::size_t n) {
  constexpr double kUsual = 0.4;
  static const char* const text = std::getenv("TENUTO_CRASH_SCALE");
  const double scale = text == nullptr ? kUsual : std::atof(text);
  return static_cast<std::size_t>(std::ceil(static_cast<double>(n) * scale));
}

}  // namespace tenuto::test
