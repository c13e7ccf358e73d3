// The scripts of heap_crash.cc and heap_mutants_crash.cc: what happens to a small heap world while
// the explorer cuts the power.
//
// TENUTO_CRASH_SCALE multiplies the number of seeds and of sampled crash states (crash_scale.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/crash_scale.h"
#include "support/heap_world.h"
#include "tenuto/crash.h"

namespace tenuto::test {

struct HeapScript {
  const char* name;
  std::function<void(HeapSession&, CrashContext&)> body;
  std::function<void(PoolParts&)> before = {};  // before the run; its effects are durable
  std::uint64_t size_max = kPoolBytesMin;
  // Set if threads hand over unfenced lines under malloc_to's seal.
  bool locked_instructions_fence = false;
  std::uint64_t size = kPoolBytesMin;
  HeapOptions heap = {};
  std::uint64_t table_bytes = 0;  // of the table's block; at least the table's size
  bool slow = false;              // recovery takes long: fewer states
  unsigned points_percent = 100;  // of the crash points without a named fence
  unsigned switch_every = 0;      // of interleaved threads; 0: the seed chooses
  unsigned stripes = 0;           // of the pool; 0: the default
};

// Makes all waiting memory free: this request is too large for the pool, so the heap searches
// everywhere.
void scavenge(HeapSession& s);

const std::vector<HeapScript>& heap_scripts();
void add_versioned_scripts(std::vector<HeapScript>& all);  // heap_versioned_scripts.cc
void add_typed_scripts(std::vector<HeapScript>& all);      // heap_typed_scripts.cc
const HeapScript& heap_script(const std::string& name);
CrashOptions crash_options(const HeapScript& s);
CrashResult run(const HeapScript& s, const CrashOptions& crash);

}  // namespace tenuto::test
