// Pool files alone under the crash explorer: their states (clean, running) and their growth, judged
// by the least that a layer above relies on. Used by pm_crash.cc and planted_crash.cc.
#pragma once

#include "tenuto/crash.h"

namespace tenuto::test {

CrashOptions pm_crash_options();

// Two words: the second follows the first later, and a clean close promises that it has. After a
// crash recovery makes them agree. Opened and closed so often that each superblock copy takes every
// state.
CrashResult explore_pool_states(const CrashOptions& options);

// A zone is appended; a crash leaves it formatted or not there, and then the pool can still grow.
CrashResult explore_pool_growth(const CrashOptions& options);

// The pool's times move forward; a crash never takes back what was told.
CrashResult explore_pool_times(const CrashOptions& options);

}  // namespace tenuto::test
