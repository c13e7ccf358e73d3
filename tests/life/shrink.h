// Shortens a story that fails: removes steps as long as it still fails in the same way.
#pragma once

#include <functional>
#include <string>

#include "life.h"

namespace tenuto::life {

struct ShrinkOptions {
  LifeOptions life;
  double seconds = 60;
  unsigned tries = 1;  // of each shorter story; more than one if threads run at once
};

// `kind`: the kind of the finding, which must stay. Returns the shortest story found. `result` gets
// its result.
Story shrink(Story story, const std::string& kind, const ShrinkOptions& options,
             LifeResult& result);

}  // namespace tenuto::life
