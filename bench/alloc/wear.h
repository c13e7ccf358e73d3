// alloc_bench --wear: how evenly writes are spread over a pool, without wear levelling and with it
// (PMMS), for objects of 64 to 1024 bytes.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace bench {

struct WearBenchOptions {
  std::string dir;
  std::string medium;  // a name that medium_of knows
  unsigned rounds = 3;
  double scale = 1;  // of the replacements
};

// Prints a table to `out`, and appends a JSON object for each of its rows. Returns an empty string,
// or what went wrong.
std::string run_wear_bench(const WearBenchOptions& options, std::FILE* out,
                           std::vector<std::string>& json);

}  // namespace bench
