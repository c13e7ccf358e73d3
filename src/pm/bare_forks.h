// For test code that forks inside the library, where the calling thread may hold locks. Such a fork
// runs none of the library's handlers (pm/process.h), like a bare clone.
#pragma once

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

inline constinit thread_local bool forks_are_bare = false;
// While an object of this type lives, forks of the calling thread are bare.
struct BareForks {
  BareForks() { forks_are_bare = true; }
  ~BareForks() { forks_are_bare = false; }
  BareForks(const BareForks&) = delete;
  BareForks& operator=(const BareForks&) = delete;
};

}  // namespace TENUTO_NS::pm
