// Makes a story that fails short: takes steps out as long as it still fails in the same way.
#pragma once

#include <functional>
#include <string>

#include "life.h"

namespace tenuto::life {

struct ShrinkOptions {
  LifeOptions life;
  double seconds = 60;
  unsigned tries = 1;  // of each shorter story: where threads work at once, more than one
};

// `kind`: of the finding that must stay. The shortest story found; `result` what it came to.
Story shrink(Story story, const std::string& kind, const ShrinkOptions& options,
             LifeResult& result);

}  // namespace tenuto::life
