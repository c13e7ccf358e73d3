// One engine's turn in a round. A child process opens the engine in an empty directory, runs a
// course of phases, and sweeps the store after the last one. It then closes the store and opens it
// again against the clock. The results return through shared memory. A crash or hang of an
// engine costs only its own turn.
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

// The work for every engine on one store.
struct Course {
  const Records* records = nullptr;
  unsigned threads = 1;
  std::vector<Phase> phases;
  std::size_t prepare = 0;  // the first phases, which only prepare and are not reported
  // SIGKILL cuts the last phase short after kill_after_ms. Then the open is timed and the contents
  // are checked. All acknowledged writes must be there. On a buffered journal, exactly a prefix of
  // all writes must be there. REQUIRES: one thread in that phase.
  bool kill = false;
  unsigned kill_after_ms = 0;
};

struct OpenTime {
  double ms = -1;              // the open and the first read
  double first_get_ms = -1;    // of that, the read
  double first_write_ms = -1;  // the write behind it
};

struct TurnResult {
  bool finished = false;
  PhaseResult phases[kPhasesMax];
  OpenTime open;         // after a clean close
  OpenTime open_killed;  // after SIGKILL
  double close_ms = -1;
  // After SIGKILL, where the last writes may be lost. kept: operations of the last phase that were
  // found. lost_ops: acknowledged ones that were not. lost_ms: the age of the first lost one.
  std::int64_t kept = -1;
  double lost_ops = -1;
  double lost_ms = -1;
  char medium[16] = {};  // in use; empty: the engine has none
  char note[200] = {};   // Engine::note after the last phase
  char error[400] = {};  // why the turn did not finish
};

// Reports the progress of the process to be killed to its parent.
struct alignas(64) Cue {
  std::atomic<std::uint64_t> acknowledged{0};  // operations of the last phase
  std::atomic<bool> ready{false};              // the last phase has started
};

// The memory that the processes of a turn share.
struct TurnMemory {
  Cue cue;
  TurnResult result;
};
using SharedTurn = Shared<TurnMemory>;

// Runs one turn in options.dir. It must be empty; the engine's files stay in it.
void take_turn(const EngineKind& kind, const EngineOptions& options, const Course& course,
               unsigned seconds_max, SharedTurn& shared);

}  // namespace bench
