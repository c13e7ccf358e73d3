// Damage of the medium as a workload: bits of chosen lines are flipped, one after the other, and a
// worker of the explorer opens each image. The result must be an error, or the right contents.
// Power cuts never show whether checksums are compared, but this does. planted_crash.cc uses it.
#pragma once

#include "tenuto/crash.h"

namespace tenuto::test {

// Superblocks, the transaction line and undo entries, after a kill in the middle of a transaction.
CrashResult explore_damaged_log(const CrashOptions& options);

// A leaf's low separator, in a cleanly closed store.
CrashResult explore_damaged_separator(const CrashOptions& options);

// A record. Lookups do not compare its checksum, but validate() does.
CrashResult explore_damaged_record(const CrashOptions& options);

}  // namespace tenuto::test
