// What the processor counts in this process and the threads it starts: instructions, cycles, cache
// and TLB misses, by perf_event_open. Virtual machines and containers often have no such counters,
// or forbid them; then each is negative and why() tells.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace bench {

struct HardwareUse {
  double instructions = -1;
  double cycles = -1;
  double cache_misses = -1;  // of the last level
  double tlb_misses = -1;    // of loads, data
};

class HardwareMeter {
 public:
  HardwareMeter();
  ~HardwareMeter();
  HardwareMeter(const HardwareMeter&) = delete;
  HardwareMeter& operator=(const HardwareMeter&) = delete;

  // Since the meter was made; user mode only. Scaled where counters had to take turns.
  HardwareUse since_start() const;
  // Why a counter is missing; empty when all are there.
  static std::string why();

 private:
  static constexpr std::size_t kCounters = 4;
  std::array<int, kCounters> fd_;
};

}  // namespace bench
