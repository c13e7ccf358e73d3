#include "bench/support/peers.h"

#include <string_view>

namespace bench {

std::string peers_left_out() {
  constexpr std::string_view kNames = TENUTO_PEERS_LEFT_OUT;
  if (kNames.empty()) return {};
  return "left out of this build, as their packages were not there: " + std::string(kNames) + "\n";
}

}  // namespace bench
