// How each of the old pools is made: by a child process, which closes the pool or is gone without.
#pragma once

#include <span>
#include <string>

#include "tenuto/status.h"

namespace tenuto::test {

struct Place {
  std::string pool;
  std::string text;  // the contents, written before the pool is closed or left
};

struct Recipe {
  const char* name;
  const char* what;
  // Comes back when the pool was closed, or with an error; leaves a killed pool by std::_Exit(0).
  Status (*make)(const Place& place);
};

std::span<const Recipe> recipes();

}  // namespace tenuto::test
