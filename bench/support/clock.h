// The benchmarks' stopwatch: the processor's time stamp counter, calibrated once against the steady
// clock. A reading costs some ten nanoseconds. On many virtual machines that is a fifth of a
// clock_gettime, which matters when every operation is timed. REQUIRES an invariant counter
// (constant_tsc and nonstop_tsc, every x86-64 server since 2008).
#pragma once

#include <x86intrin.h>

#include <chrono>
#include <cstdint>

namespace bench {

// RDTSCP waits until all earlier instructions are done, so the timed section includes them.
inline std::uint64_t ticks() {
  unsigned core = 0;
  return __rdtscp(&core);
}

inline double measure_ns_per_tick() {
  using Clock = std::chrono::steady_clock;
  const auto t0 = Clock::now();
  const std::uint64_t c0 = ticks();
  while (Clock::now() - t0 < std::chrono::milliseconds(20)) _mm_pause();
  const auto t1 = Clock::now();
  const std::uint64_t c1 = ticks();
  return std::chrono::duration<double, std::nano>(t1 - t0).count() / static_cast<double>(c1 - c0);
}

inline double ns_per_tick() {
  static const double value = measure_ns_per_tick();
  return value;
}

inline double seconds_of(std::uint64_t tick_count) {
  return static_cast<double>(tick_count) * ns_per_tick() * 1e-9;
}

inline double milliseconds_since(std::uint64_t start) { return seconds_of(ticks() - start) * 1e3; }

}  // namespace bench
