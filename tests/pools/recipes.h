// How each of the old pools is made: by a child process, which closes the pool or ends without a
// close.
#pragma once

#include <span>
#include <string>

#include "tenuto/status.h"

namespace tenuto::test {

struct Place {
  std::string pool;
  std::string text;  // the contents, written before the pool is closed or the process ends
};

struct Recipe {
  const char* name;
  const char* what;
  // Returns when the pool was closed, or with an error. To leave a killed pool it calls
  // std::_Exit(0).
  Status (*make)(const Place& place);
};

std::span<const Recipe> recipes();

}  // namespace tenuto::test
