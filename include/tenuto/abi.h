// The namespace of the library, with the name of the build that a translation unit belongs to.
// Every namespace of the library lies in an inline namespace of that name, so that code compiled
// against the traced build (which reports stores, flushes and fences to the crash explorer) cannot
// be linked with the plain library. One macro for both, so that tools which do not expand it read
// an ordinary namespace.
#pragma once

#ifdef TENUTO_TRACED
#define TENUTO_ABI v1_traced
#else
#define TENUTO_ABI v1
#endif
#define TENUTO_NS tenuto::inline TENUTO_ABI
