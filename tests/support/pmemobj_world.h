// The drop-in for libpmemobj under the crash explorer: objects, transactions, actions, lists and
// the root object, step by step. After each crash a pool is as before the step or as after it.
#pragma once

#include "tenuto/crash.h"

namespace tenuto::test {

CrashResult explore_pmemobj(const CrashOptions& options);
CrashOptions pmemobj_options();

}  // namespace tenuto::test
