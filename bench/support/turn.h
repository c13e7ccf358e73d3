// One engine's turn in a round: a child process opens it in an empty directory, runs a course of
// phases on it, sweeps it after each, closes it, and opens it again against the clock. The results
// come back through shared memory; a crash or hang of an engine costs only its own turn.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/child.h"
#include "bench/support/drive.h"
#include "bench/support/engine.h"
#include "bench/support/workload.h"

namespace bench {

inline constexpr std::size_t kPhasesMax = 12;

// What every engine is asked to do on one store.
struct Course {
  const Records* records = nullptr;
  unsigned threads = 1;
  std::vector<Phase> phases;
  std::size_t prepare = 0;  // so many of the phases only prepare and are not reported
  // The last phase is cut short by SIGKILL after kill_after_ms; then the open is timed and what
  // was acknowledged is checked: all of it, or on a buffered journal that a prefix of all writes is
  // there, and nothing else. REQUIRES: one thread in that phase.
  bool kill = false;
  unsigned kill_after_ms = 0;
};

struct TurnResult {
  bool finished = false;
  PhaseResult phases[kPhasesMax];
  double open_ms = -1;         // open and one read, after a clean close
  double open_killed_ms = -1;  // the same after SIGKILL
  double close_ms = -1;
  // After SIGKILL, where the last writes may be lost: how many of the last phase were found, how
  // many acknowledged ones were not, and how old the first of these was.
  std::int64_t kept = -1;
  double lost_ops = -1;
  double lost_ms = -1;
  char medium[16] = {};  // in use; empty where the engine has none
  char error[400] = {};  // why the turn did not finish
};

// How a victim tells its parent how far it is.
struct alignas(64) Cue {
  std::atomic<std::uint64_t> acknowledged{0};  // operations of the last phase
  std::atomic<bool> ready{false};              // the last phase has begun
};

// What the processes of a turn share.
struct TurnMemory {
  Cue cue;
  TurnResult result;
};
using SharedTurn = Shared<TurnMemory>;

// Takes one turn in options.dir, which must be empty and is left as the engine leaves it.
void take_turn(const EngineKind& kind, const EngineOptions& options, const Course& course,
               unsigned seconds_max, SharedTurn& shared);

}  // namespace bench
