// Objects that lead to each other are moved by Pool::compact (tenuto/compact.h), under the crash
// explorer: after every crash the graph is whole, and nothing leaks.
#pragma once

#include "tenuto/crash.h"
#include "tenuto/pool_options.h"

namespace tenuto::test {

CrashResult explore_compacted_objects(const CrashOptions& options,
                                      Consistency consistency = Consistency::log);
CrashOptions compacted_objects_options();

}  // namespace tenuto::test
