// The figures of tx_bench: collected over the rounds, printed as a table of markdown and as lines
// of JSON.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "bench/tx/turn.h"

namespace bench {

// A case on all engines of a medium.
struct TxSetting {
  const TxCase* what = nullptr;
  std::string medium;
  unsigned threads = 1;
  WorkSize size;
  std::uint64_t transactions = 0;  // timed ones of a round and thread
  unsigned rounds = 0;
};

// One engine in a setting. An empty vector: not measured. Counts are of single transactions, times
// of rounds.
struct TxFigures {
  std::vector<double> mops;
  std::vector<double> tx_ns;
  std::vector<double> cpu_ns;
  std::vector<double> instructions;
  std::vector<double> fences;
  std::vector<double> lines;

  void add(const TurnResult& result);
};

// Prints the head of a table for this medium. Its cells have a figure for each engine, in order,
// between slashes; ratios are the first one's over each other's.
void print_tx_head(std::FILE* out, const std::vector<const TxEngineKind*>& engines,
                   const std::string& medium);
void print_tx_row(std::FILE* out, const TxSetting& setting, const std::vector<TxFigures>& figures);
// A line for each engine that was measured.
std::vector<std::string> tx_json_lines(const TxSetting& setting,
                                       const std::vector<const TxEngineKind*>& engines,
                                       const std::vector<TxFigures>& figures);

}  // namespace bench
