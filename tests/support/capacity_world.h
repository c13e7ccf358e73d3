// A thread frees many blocks and lives on, and another one closes the pool, under the crash
// explorer: for scripts at N and N + 1 of a fixed capacity.
#pragma once

#include <cstddef>

#include "tenuto/crash.h"

namespace tenuto::test {

enum class Frees { transaction, batch };

// What is named is allocated and nothing else; when the close has returned nothing is named.
CrashResult explore_frees(Frees how, std::size_t blocks, const CrashOptions& options);
CrashOptions capacity_options();

}  // namespace tenuto::test
