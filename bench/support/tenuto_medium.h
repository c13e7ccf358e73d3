// Finds tenuto's media by their names in options.
#pragma once

#include <optional>
#include <string_view>

#include "tenuto/pool_options.h"

namespace bench {

inline std::optional<tenuto::Medium> medium_of(std::string_view name) {
  using tenuto::Medium;
  for (const Medium m :
       {Medium::automatic, Medium::line, Medium::cache, Medium::model, Medium::journal}) {
    if (name == tenuto::medium_name(m)) return m;
  }
  return std::nullopt;
}

}  // namespace bench
