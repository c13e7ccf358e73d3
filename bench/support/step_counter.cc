// The trap handler and the instructions it knows; see step_counter.h.
#include "bench/support/step_counter.h"

#include <signal.h>
#include <ucontext.h>

namespace bench {
namespace {

// Of the one thread that counts.
StepCounts g_counts;
std::uintptr_t g_last = 0;
bool g_flushed = false;  // and nothing has waited for it
struct sigaction g_before {};

// Before each instruction: its address is in the context.
void on_step(int, siginfo_t*, void* context) {
  const auto* const c = static_cast<const ucontext_t*>(context);
  const auto at = static_cast<std::uintptr_t>(c->uc_mcontext.gregs[REG_RIP]);
  if (at == g_last) return;  // the next turn of a string instruction
  g_last = at;
  const StepCounts one = classify(reinterpret_cast<const std::uint8_t*>(at));
  g_counts.instructions += one.instructions;
  g_counts.fences += one.fences;
  g_counts.locked += one.locked;
  g_counts.flushes += one.flushes;
  g_counts.streamed_bytes += one.streamed_bytes;
  if (one.locked + one.fences != 0) {
    g_counts.drains += g_flushed ? 1 : 0;
    g_flushed = false;
  }
  if (one.flushes + one.streamed_bytes != 0) g_flushed = true;
}

// What stands before the opcode.
struct Prefix {
  bool operand_size = false;  // 66
  bool repeat = false;        // F2 or F3
  bool lock = false;          // F0
  bool wide = false;          // REX.W
  bool two_bytes = false;     // the opcode is one after 0F
  std::uint64_t vector_bytes = 16;
};

// Moves `at` behind the prefixes of an instruction without VEX or EVEX.
Prefix legacy_prefix(const std::uint8_t*& at) {
  constexpr int kPrefixesMax = 14;  // an instruction has 15 bytes
  Prefix p;
  for (int i = 0; i < kPrefixesMax; ++i, ++at) {
    if (*at == 0x66)
      p.operand_size = true;
    else if (*at == 0xf2 || *at == 0xf3)
      p.repeat = true;
    else if (*at == 0xf0)
      p.lock = true;
    else if (*at != 0x2e && *at != 0x36 && *at != 0x3e && *at != 0x26 && *at != 0x64 && *at != 0x65)
      break;
  }
  if ((*at & 0xf0) == 0x40) p.wide = (*at++ & 0x08) != 0;
  p.two_bytes = *at == 0x0f;
  if (p.two_bytes) ++at;
  return p;
}

// The same for C5 (two bytes), C4 (three) and 62 (four): the vector length is in them.
Prefix vector_prefix(const std::uint8_t*& at) {
  Prefix p;
  const std::uint8_t* const first = at;
  if (first[0] == 0xc5) {
    p.two_bytes = true;
    p.vector_bytes = (first[1] & 0x04) != 0 ? 32 : 16;
    at += 2;
  } else if (first[0] == 0xc4) {
    p.two_bytes = (first[1] & 0x1f) == 1;
    p.vector_bytes = (first[2] & 0x04) != 0 ? 32 : 16;
    at += 3;
  } else {
    p.two_bytes = (first[1] & 0x07) == 1;
    p.vector_bytes = std::uint64_t{16} << (first[3] >> 5 & 3);
    at += 4;
  }
  return p;
}

}  // namespace

StepCounts classify(const std::uint8_t* at) {
  StepCounts c;
  c.instructions = 1;
  const bool vector = *at == 0xc5 || *at == 0xc4 || *at == 0x62;
  const Prefix p = vector ? vector_prefix(at) : legacy_prefix(at);
  const bool in_memory = (at[1] & 0xc0) != 0xc0;
  const bool exchange = !p.two_bytes && !vector && (at[0] == 0x86 || at[0] == 0x87) && in_memory;
  c.locked = p.lock || exchange ? 1 : 0;
  if (!p.two_bytes || p.repeat) return c;
  const unsigned reg = at[1] >> 3 & 7;
  switch (at[0]) {
    case 0xae:  // 66 /6 CLWB, 66 /7 CLFLUSHOPT, /7 CLFLUSH; of registers /6 MFENCE, /7 SFENCE
      if (vector) break;
      if (in_memory)
        c.flushes = reg == 7 || (reg == 6 && p.operand_size) ? 1 : 0;
      else
        c.fences = !p.operand_size && (reg == 6 || reg == 7) ? 1 : 0;
      break;
    case 0xc3:  // MOVNTI
      if (!vector && in_memory && !p.operand_size) c.streamed_bytes = p.wide ? 8 : 4;
      break;
    case 0xe7:  // MOVNTDQ; MOVNTQ of old has 8 bytes
      c.streamed_bytes = vector || p.operand_size ? p.vector_bytes : 8;
      break;
    case 0x2b:  // MOVNTPS, MOVNTPD
      c.streamed_bytes = p.vector_bytes;
      break;
    default:
      break;
  }
  return c;
}

StepCounter::StepCounter() {
  struct sigaction act {};
  act.sa_sigaction = on_step;
  act.sa_flags = SA_SIGINFO;
  ::sigaction(SIGTRAP, &act, &g_before);
}

StepCounter::~StepCounter() { ::sigaction(SIGTRAP, &g_before, nullptr); }

void StepCounter::begin() {
  g_counts = {};
  g_last = 0;
  g_flushed = false;
}

StepCounts StepCounter::counted() { return g_counts; }

}  // namespace bench
