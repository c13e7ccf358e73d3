// The processor's counters for this process and the threads it starts: instructions, cycles, cache
// and TLB misses, by perf_event_open. Virtual machines and containers often lack or forbid these
// counters. Then the value is negative and why() has the reason.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace bench {

struct HardwareUse {
  double instructions = -1;
  double cycles = -1;
  double cache_misses = -1;  // last level
  double tlb_misses = -1;    // data TLB, loads
};

class HardwareMeter {
 public:
  HardwareMeter();
  ~HardwareMeter();
  HardwareMeter(const HardwareMeter&) = delete;
  HardwareMeter& operator=(const HardwareMeter&) = delete;

  // Counts since the meter was made, user mode only. Scaled if the kernel had to multiplex
  // counters.
  HardwareUse since_start() const;
  // Why a counter is missing; empty if all exist.
  static std::string why();

 private:
  static constexpr std::size_t kCounters = 4;
  std::array<int, kCounters> fd_;
};

}  // namespace bench
