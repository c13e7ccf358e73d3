// The medium of the pools that crash scripts work on. The explorer proper records stores whatever
// it is; journal_explorer.cc has the same scripts run on medium journal.
#pragma once

#include "tenuto/pool_options.h"

namespace tenuto::test {

inline Medium explored_medium = Medium::line;

// With a ring so small that a script fills it more than once, and no commits but those that the
// explorer makes.
inline PoolOptions on_explored_medium(PoolOptions o) {
  o.medium = explored_medium;
  o.journal.bytes = 256u << 10;
  o.journal.sync_every_ms = 0;
  return o;
}

}  // namespace tenuto::test
