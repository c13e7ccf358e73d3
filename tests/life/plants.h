// Mistakes planted in the library, by name (src/pm/plant.h), that lives must find. Each is switched
// on alone, and lives are drawn from one seed on until one fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate.h"
#include "life.h"

namespace tenuto::life {

// Where to look for a mistake: in lives of a kind and of a medium. There is no script: which calls
// are made, and in which order, is random.
struct Plant {
  const char* name;
  const char* of;  // the defect that it brings back (README.md); "": none
  const char* what;
  Kind kind = Kind::any;
  Medium medium = Medium::automatic;
  const char* without = "faults";  // groups of calls that would only take time
  bool quick = false;              // found within seconds, so CI looks for it
};
const std::vector<Plant>& plants();

struct PlantFound {
  std::string kind;  // empty: not found
  double seconds = 0;
  std::uint64_t lives = 0, seed = 0, calls = 0;
  Story story;
};

// Looks until the mistake is found or the time is over. The plant decides what `wanted` leaves
// open. REQUIRES: a library with plants.
PlantFound look_for(const Plant& plant, std::uint64_t seed, double seconds_max,
                    const Wanted& wanted, const LifeOptions& options);

}  // namespace tenuto::life
