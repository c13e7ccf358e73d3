// Damage of the medium as a workload: single bits of chosen lines are flipped, one after the other,
// and each image is opened by the explorer's worker. That must end in an error, or in the very
// contents that were there. Power cuts never show whether checksums are compared; this does. Used
// by planted_crash.cc.
#pragma once

#include "tenuto/crash.h"

namespace tenuto::test {

// Superblocks, the transaction line and the undo entries of a pool that a kill left behind in the
// middle of a transaction.
CrashResult explore_damaged_log(const CrashOptions& options);

// A leaf's low separator, in a store closed cleanly.
CrashResult explore_damaged_separator(const CrashOptions& options);

// A record. Lookups do not compare its checksum, but validate() does.
CrashResult explore_damaged_record(const CrashOptions& options);

}  // namespace tenuto::test
