// The figures as tables for people and as JSON lines for programs, one object per case.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "bench/support/contest.h"
#include "bench/support/json_line.h"

namespace bench {

// The common settings of all cases of one contest.
struct Setting {
  std::string bench = "kv";  // the field "bench"
  std::uint64_t records = 0;
  unsigned threads = 1;
  std::size_t key_bytes = 0;
  std::size_t value_bytes = 0;
  bool ordered = false;
  Distribution distribution = Distribution::zipfian;
  unsigned rounds = 0;
  unsigned opens = 0;  // rounds of the workload `open`
  std::uint64_t seed = 0;
  EngineOptions engine;
  std::string file_system;
  std::string device;  // below the file system, as text
};

// Prints the table of throughput, ratios and latencies, then one of sizes and open times.
void print_tables(std::FILE* out, const Setting& setting, const ContestFigures& figures);
std::string settings_text(const Setting& setting, const Contestant& contestant);
// Prints the settings of each contestant as text.
void print_settings(std::FILE* out, const Setting& setting,
                    const std::vector<Contestant>& contestants);
// What the engines say of their turns: "tenuto: medium cache", "lmdb-large: ...".
std::vector<std::string> notes_of(const ContestFigures& figures);
// One JSON object per contestant and case.
std::vector<std::string> json_lines(const Setting& setting, const ContestFigures& figures);

}  // namespace bench
