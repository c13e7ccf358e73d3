// Pool files alone under the crash explorer: their states (clean, running) and their growth,
// checked for the least that a layer above relies on. pm_crash.cc and planted_crash.cc use it.
#pragma once

#include "tenuto/crash.h"

namespace tenuto::test {

CrashOptions pm_crash_options();

// Two words: the second gets the first one's value later, and a clean close promises that it has.
// After a crash recovery makes them equal. The pool is opened and closed so often that each
// superblock copy has every state.
CrashResult explore_pool_states(const CrashOptions& options);

// Appends a zone. After a crash the zone is formatted, or missing, and the pool can grow again.
CrashResult explore_pool_growth(const CrashOptions& options);

// The pool's times move forward. A crash never takes back a time that was returned.
CrashResult explore_pool_times(const CrashOptions& options);

}  // namespace tenuto::test
