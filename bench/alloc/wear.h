// alloc_bench --wear: how evenly writes are spread over a pool, without wear levelling and with it
// (PMMS), for objects of 64 to 1024 bytes.
#pragma once

#include <string>

namespace bench {

struct WearBenchOptions {
  std::string dir;
  std::string medium;
  unsigned rounds = 3;
  double scale = 1;  // of the replacements
};

// Prints a table. Returns an empty string, or what went wrong.
std::string run_wear_bench(const WearBenchOptions& options);

}  // namespace bench
