// Random lives of containers beside those of std: see container_lives.cc.
#pragma once

#include <cstdint>

namespace tenuto::test {

struct ContainerLives {
  int commits = 0, aborts = 0, kills = 0;
};
enum class LifeKind {
  plain,
  watched,    // stores that no transaction knows of are failures, too (tenuto/mistakes.h); this
              // takes ten times as long
  collected,  // Consistency::gc: after a kill exactly what the containers lead to is allocated
};
// Runs random transactions on containers, rolls some back, kills some, and compares with std after
// each. Failures are GoogleTest's.
ContainerLives live_with_containers(std::uint64_t seed, int transactions, LifeKind kind);

}  // namespace tenuto::test
