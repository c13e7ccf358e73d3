// The measurements of alloc_bench: collected over the rounds, printed as a table and as JSON lines.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "bench/alloc/stage.h"
#include "bench/support/spread.h"

namespace bench {

struct AllocContestant {
  const AllocatorKind* kind = nullptr;
  std::string medium;  // empty: volatile
  std::string label;   // "tenuto", "tenuto/line" with several media, "tenuto stripes=1"
  Ablation ablation;
};

// One contestant in one setting, over all rounds. An empty vector: not measured.
struct AllocFigures {
  std::uint64_t ops = 0;  // of one round
  std::string medium;     // in use
  std::vector<double> mops;
  std::vector<double> lines_per_op;
  std::vector<double> fences_per_op;
  std::vector<double> reflushes_per_op;
  std::vector<double> peak_bytes;
  std::vector<double> live_bytes;
  std::vector<double> peak_per_live;
  std::vector<double> file_per_live;
  std::vector<double> after_bytes;
  std::vector<double> open_ms;
  std::vector<double> open_killed_ms;
  std::vector<double> recovery_ms;
  std::vector<double> recovery_clean_ms;
  Histogram latency;
  std::vector<double> book_bytes;
  std::vector<double> book_fast_gcs;
  std::vector<double> book_slow_gcs;
  std::vector<double> morphed_slabs;
  HeapShape shape;        // of the last round
  CaseFindings findings;  // of the last round

  void add(const AllocResult& result);
};

struct AllocSetting {
  const CaseKind* kind = nullptr;
  StageOptions stage;
  unsigned rounds = 0;
  std::string file_system;
};

std::size_t label_width(const std::vector<AllocContestant>& contestants);
void print_head(std::FILE* out, const std::vector<AllocContestant>& contestants, bool latency);
// One line for each measured contestant. The ratio is the first contestant's speed over this one's.
void print_rows(std::FILE* out, const AllocSetting& setting,
                const std::vector<AllocContestant>& contestants,
                const std::vector<AllocFigures>& figures);
std::vector<std::string> json_lines(const AllocSetting& setting,
                                    const std::vector<AllocContestant>& contestants,
                                    const std::vector<AllocFigures>& figures);

}  // namespace bench
