// Assertions about our own code. TENUTO_ASSERT stays on in every build: a crash is something the
// store survives, a wrong write is not. TENUTO_DCHECK is for what is too costly for release.
#pragma once

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

[[noreturn]] void assert_failed(const char* what, const char* file, int line);

}  // namespace TENUTO_NS::pm

#define TENUTO_ASSERT(cond)                       \
  (static_cast<bool>(cond) ? static_cast<void>(0) \
                           : ::tenuto::pm::assert_failed(#cond, __FILE__, __LINE__))

#ifdef TENUTO_DEBUG_CHECKS
#define TENUTO_DCHECK(cond) TENUTO_ASSERT(cond)
#else
#define TENUTO_DCHECK(cond) static_cast<void>(0)
#endif
