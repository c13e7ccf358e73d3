// Assertions about the library's own code. TENUTO_ASSERT is on in every build: the store survives a
// crash, but not a wrong write. TENUTO_DCHECK is for checks that cost too much in a release.
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
