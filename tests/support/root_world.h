// A root object that grows three times, under the crash explorer: by hooks that move its pointers,
// make and free objects, and without a hook.
#pragma once

#include "tenuto/crash.h"

namespace tenuto::test {

CrashResult explore_root_growth(const CrashOptions& options);
CrashOptions root_growth_options();

}  // namespace tenuto::test
