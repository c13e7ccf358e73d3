// The name of the build that a translation unit belongs to. Every namespace of the library lies in
// the inline namespace TENUTO_ABI, so that code compiled against the traced twin (which reports
// stores, flushes and fences to the crash explorer) cannot be linked with the plain library.
#pragma once

#ifdef TENUTO_TRACED
#define TENUTO_ABI v1_traced
#else
#define TENUTO_ABI v1
#endif
