// One thread frees many blocks and stays alive, and another thread closes the pool, under the crash
// explorer: scripts for N and N + 1 of a fixed capacity.
#pragma once

#include <cstddef>

#include "tenuto/crash.h"

namespace tenuto::test {

enum class Frees { transaction, batch };

// Checks that exactly the blocks that words name are allocated. Once the close has returned, no
// word names one.
CrashResult explore_frees(Frees how, std::size_t blocks, const CrashOptions& options);
CrashOptions capacity_options();

}  // namespace tenuto::test
