// alloc_bench --numa: the placements of Souza et al. on NUMA nodes, with two-phase deallocation and
// without. On a machine with one node the nodes are simulated: then the counts of remote accesses
// mean something, and times do not.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace bench {

struct NumaBenchOptions {
  std::string dir;
  std::string medium;    // a name that medium_of knows
  unsigned threads = 2;  // an even number
  unsigned rounds = 3;
  double scale = 1;
};

// Prints a table to `out`, and appends a JSON object for each of its rows. Returns an empty string,
// or what went wrong.
std::string run_numa_bench(const NumaBenchOptions& options, std::FILE* out,
                           std::vector<std::string>& json);

}  // namespace bench
