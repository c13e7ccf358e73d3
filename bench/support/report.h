// Figures for people (a table) and for programs (JSON lines as in the design: one object a case).
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "bench/support/contest.h"
#include "bench/support/json_line.h"

namespace bench {

// What all cases of one contest share.
struct Setting {
  std::string bench = "kv";  // the field "bench"
  std::uint64_t records = 0;
  unsigned threads = 1;
  std::size_t key_bytes = 0;
  std::size_t value_bytes = 0;
  bool ordered = false;
  Distribution distribution = Distribution::zipfian;
  unsigned rounds = 0;
  std::uint64_t seed = 0;
  EngineOptions engine;
  std::string file_system;
  std::string device;  // below it, in words
};

// The table of throughput, ratios and latencies, then one of sizes and open times.
void print_tables(std::FILE* out, const Setting& setting, const ContestFigures& figures);
// The settings of each contestant in words.
void print_settings(std::FILE* out, const Setting& setting,
                    const std::vector<Contestant>& contestants);
// One JSON object for each contestant and case.
std::vector<std::string> json_lines(const Setting& setting, const ContestFigures& figures);

}  // namespace bench
