// The medium of the pools in crash scripts. The traced explorer records stores on any medium.
// journal_explorer.cc runs the same scripts on medium journal.
#pragma once

#include "tenuto/pool_options.h"

namespace tenuto::test {

inline Medium explored_medium = Medium::line;
inline Consistency explored_consistency = Consistency::as_is;
inline bool explored_canaries = false;

// The ring is so small that a script fills it more than once. Only the explorer commits.
inline PoolOptions on_explored_medium(PoolOptions o) {
  o.medium = explored_medium;
  o.consistency = explored_consistency;
  o.canaries = explored_canaries;
  o.journal.bytes = 256u << 10;
  o.journal.sync_every_ms = 0;
  return o;
}

}  // namespace tenuto::test
