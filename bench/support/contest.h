// Runs several engines on the same work. Rounds are interleaved (A B C A B C ...), and each turn
// starts in an empty directory. The figures of all rounds are kept together for medians and ratios.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/support/process.h"
#include "bench/support/spread.h"
#include "bench/support/turn.h"

namespace bench {

struct Contestant {
  const EngineKind* kind = nullptr;
  std::string medium = "auto";
  std::string label;  // "tenuto", or "tenuto/line" with several media
  std::string journal_writes = "direct";
};

// One engine on one workload, over all rounds. An empty vector: not measured.
struct CaseFigures {
  std::uint64_t ops = 0;  // of one round
  std::string medium;     // in use; empty where the engine has none
  std::string note;       // of the last round
  std::vector<double> ops_per_second;
  std::vector<double> scanned_per_op;
  std::vector<double> lines_per_op;
  std::vector<double> fences_per_op;
  std::vector<double> reflushes_per_op;
  std::vector<double> bytes_written_per_op;
  std::vector<double> cpu_us_per_op;
  // The processor's counters; they include the client's own work and its checks.
  std::vector<double> instructions_per_op;
  std::vector<double> cycles_per_op;
  std::vector<double> cache_misses_per_op;
  std::vector<double> tlb_misses_per_op;
  // Per write (insert, update, read-modify-write, erase). The last five only on tenuto's journal.
  std::vector<double> sync_calls_per_write;
  std::vector<double> device_flushes_per_write;
  std::vector<double> storage_bytes_per_write;
  std::vector<double> device_bytes_per_write;
  std::vector<double> commits_per_write;
  std::vector<double> journal_lines_per_write;
  std::vector<double> journal_payload_per_write;
  std::vector<double> journal_written_per_write;
  std::vector<double> checkpoint_bytes_per_write;
  std::vector<double> lost_ops;
  std::vector<double> lost_ms;
  std::vector<double> memory_bytes;
  std::vector<double> file_bytes;
  std::vector<double> open_ms;  // with the first get
  std::vector<double> first_get_ms;
  std::vector<double> first_write_ms;
  std::vector<double> open_killed_ms;
  std::vector<double> first_get_killed_ms;
  std::vector<double> first_write_killed_ms;
  std::vector<double> close_ms;
  Histogram by_kind[kOpKinds];  // ticks, all rounds
  Histogram all;
};

struct ContestFigures {
  std::vector<Contestant> contestants;
  std::vector<Workload> cases;                                      // in order of execution
  std::map<std::pair<std::size_t, Workload>, CaseFigures> figures;  // by contestant and case
  std::vector<std::string> failures;  // "lmdb, a, round 2: read: bad value ..."

  const CaseFigures* find(std::size_t contestant, Workload workload) const;
  // ops_per_second of the first contestant divided by that of `other`, round by round.
  std::optional<Spread> ratio_to(std::size_t other, Workload workload) const;
};

struct ContestOptions {
  unsigned rounds = 3;
  unsigned turn_seconds_max = 900;
  // A round after the first is not begun if it would probably end later than this. 0: no limit.
  double seconds_max = 0;
  EngineOptions engine;  // dir and medium are set for each turn
  // Called for every finished phase: contestant, round, workload, operations per second.
  std::function<void(const Contestant&, unsigned, Workload, double)> progress;
};

// Runs the rounds in `scratch`, which is empty before and after each turn. Several courses may add
// to the same figures.
void play(const std::vector<Contestant>& contestants, const Course& course,
          const ContestOptions& options, Scratch& scratch, ContestFigures& into);

}  // namespace bench
