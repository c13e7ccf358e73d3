// Forks of testers that fork in the middle of the library, where the calling thread may hold locks:
// no handler of ours runs (pm/process.h), as after a bare clone.
#pragma once

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

inline constinit thread_local bool forks_are_bare = false;
// While it lives, those of the calling thread are.
struct BareForks {
  BareForks() { forks_are_bare = true; }
  ~BareForks() { forks_are_bare = false; }
  BareForks(const BareForks&) = delete;
  BareForks& operator=(const BareForks&) = delete;
};

}  // namespace TENUTO_NS::pm
