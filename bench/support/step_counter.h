// Counts what a piece of code executes: instructions, fences, flushed lines. It runs the code
// one instruction at a time (the processor's trap flag) and looks at each. So the counts are exact,
// they need no counters of the processor, which virtual machines often lack, and all engines are
// counted by the same means, whatever they say of themselves. A step costs a microsecond or two:
// count some dozens of transactions, and measure their time elsewhere.
//
// Counted in user mode. A string instruction (rep movsb) counts once. A line is a CLWB, CLFLUSHOPT
// or CLFLUSH, or 64 bytes of non-temporal stores. A fence is an SFENCE or MFENCE. Locked
// instructions (with the prefix LOCK, or an XCHG with memory) order stores as well, so one that
// follows a flush waits for it as a fence does, and a fence behind it then has nothing to wait for:
// `drains` counts how often either finds flushes that nothing has waited for.
//
// REQUIRES: one thread counts at a time, and the code neither handles nor blocks SIGTRAP.
#pragma once

#include <cstdint>

namespace bench {

struct StepCounts {
  std::uint64_t instructions = 0;
  std::uint64_t fences = 0;
  std::uint64_t locked = 0;
  std::uint64_t drains = 0;  // fences and locked instructions that wait for flushes
  std::uint64_t flushes = 0;
  std::uint64_t streamed_bytes = 0;  // by non-temporal stores

  double lines() const {
    return static_cast<double>(flushes) + static_cast<double>(streamed_bytes) / 64;
  }
};

class StepCounter {
 public:
  StepCounter();   // takes SIGTRAP
  ~StepCounter();  // gives it back
  StepCounter(const StepCounter&) = delete;
  StepCounter& operator=(const StepCounter&) = delete;

  // Some instructions of the counter itself are included, the same number each time: subtract the
  // count of a body that does nothing.
  template <class Body>
  StepCounts count(Body&& body) {
    begin();
    set_trap(true);
    asm volatile("nop");  // the first trap is behind the instruction that follows
    body();
    set_trap(false);
    return counted();
  }

 private:
  static void begin();
  static StepCounts counted();
  static void set_trap(bool on) {
    constexpr unsigned long long kTrapFlag = 1u << 8;
    const unsigned long long flags = __builtin_ia32_readeflags_u64();
    __builtin_ia32_writeeflags_u64(on ? flags | kTrapFlag : flags & ~kTrapFlag);
  }
};

// What one instruction is, by its first bytes. For the counter and its test.
StepCounts classify(const std::uint8_t* instruction);

}  // namespace bench
