// What the traced twin counts about fences, and the bugs that it can make of them by name.
#pragma once

#include <cstdint>
#include <string>

#include "tenuto/abi.h"

namespace tenuto::inline TENUTO_ABI::pm {

// What one named fence saw, in recovery of crash states too. Lives in memory that forked workers
// share.
struct FenceStats {
  char first[80];
  char then[80];
  std::uint64_t passed;       // times it was executed
  std::uint64_t explored;     // times crash states before it were checked
  std::uint64_t lines;        // lines flushed for it, all times together
  std::uint32_t flushes_max;  // flush calls before it, most at one time
};

// Flushes and fences of the calling thread since it began, watched pool or not.
struct TraceCounts {
  std::uint64_t flushes = 0;  // calls
  std::uint64_t lines = 0;
  std::uint64_t fences = 0;
};
TraceCounts trace_counts();

// A bug made by the recorder: one fence, or one flush before it, does nothing.
struct Mutation {
  enum class Kind : std::uint8_t { none, drop_fence, drop_flush };
  Kind kind = Kind::none;
  std::string first, then;  // the fence's names
  std::uint32_t nth = 0;    // drop_flush: which flush call since the thread's fence before, from 0

  std::string text() const;
};

// Switches planted bugs of the code on (TENUTO_PLANT in pm/plant.h) and off again. The environment
// variable TENUTO_PLANT, names separated by commas, is the same from the start of the process.
void plant(const std::string& name);
void unplant_all();
// How often the code asked for `name` while it was switched on, in recovery of crash states too.
std::uint64_t plant_visits(const std::string& name);

}  // namespace tenuto::inline TENUTO_ABI::pm
