// A turn: one case on one engine, in a child process and on a pool of its own. It is timed or
// counted, not both, as counting runs single steps. In both, the contents are checked after each
// batch, and at the end the engine checks its pool.
#pragma once

#include <cstdint>
#include <string>

#include "bench/support/child.h"
#include "bench/tx/engine.h"

namespace bench {

inline constexpr unsigned kSamplesMax = 4096;

struct TurnOptions {
  std::string dir;  // an empty directory
  std::string medium;
  unsigned threads = 1;
  WorkSize size;
  std::uint64_t batches = 1;  // timed ones, for each thread; one more before them is not
  unsigned samples = 0;       // above 0: count so many transactions on one thread; no time
};

// What one transaction took. Negative: not counted.
struct TxCounts {
  double instructions = -1;
  double fences = -1;
  double lines = -1;
};

// Plain memory: the child writes it, its parent reads it.
struct TurnResult {
  bool finished = false;
  double mops = -1;    // of all threads
  double tx_ns = -1;   // of one transaction on its thread
  double cpu_ns = -1;  // the same of the processor's time: without waits for a busy one
  unsigned counted = 0;
  TxCounts counts[kSamplesMax];
  char error[400] = {};  // why it did not finish: also wrong contents
};

void play(const TxEngineKind& kind, const TxCase& what, const TurnOptions& options,
          Shared<TurnResult>& result);

}  // namespace bench
