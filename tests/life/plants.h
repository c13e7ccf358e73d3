// Mistakes that stand in the sources of the library, by name (src/pm/plant.h), and that lives must
// find: each is switched on alone, and lives are drawn from one seed on until one fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate.h"
#include "life.h"

namespace tenuto::life {

// Where a mistake is to be looked for: lives of a kind, and of a medium. No script: which calls are
// made, and in which order, is chance.
struct Plant {
  const char* name;
  const char* of;  // the defect that it brings back (README.md); "": another mistake
  const char* what;
  Kind kind = Kind::any;
  Medium medium = Medium::automatic;
  const char* without = "faults";  // groups of calls that only take time
  bool quick = false;              // found within seconds: CI looks for it
};
const std::vector<Plant>& plants();

struct PlantFound {
  std::string kind;  // empty: it was not found
  double seconds = 0;
  std::uint64_t lives = 0, seed = 0, calls = 0;
  Story story;
};

// Looks until it is found or so much time is over; what `wanted` leaves open is as the plant says.
// REQUIRES: a library with plants in it.
PlantFound look_for(const Plant& plant, std::uint64_t seed, double seconds_max,
                    const Wanted& wanted, const LifeOptions& options);

}  // namespace tenuto::life
