// Mistakes that stand in the sources of the library, by name (src/pm/plant.h), and that lives must
// find: each is switched on alone, and lives are drawn from one seed on until one fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate.h"
#include "life.h"

namespace tenuto::life {

struct Plant {
  const char* name;
  const char* what;
};
const std::vector<Plant>& plants();

struct PlantFound {
  std::string kind;  // empty: it was not found
  double seconds = 0;
  std::uint64_t lives = 0, seed = 0;
};

// Looks until it is found or so much time is over. REQUIRES: a library with plants in it.
PlantFound look_for(const std::string& name, std::uint64_t seed, double seconds_max,
                    const Wanted& wanted, const LifeOptions& options);

}  // namespace tenuto::life
