// The namespace of the library. It has an inline namespace named after the build, plain or traced.
// The traced build reports stores, flushes and fences to the crash explorer. Code that is compiled
// against it must not be linked with the plain library; the names make such a link fail. One macro
// names both namespaces, so that tools that do not expand it read an ordinary namespace.
#pragma once

#ifdef TENUTO_TRACED
#define TENUTO_ABI v1_traced
#else
#define TENUTO_ABI v1
#endif
#define TENUTO_NS tenuto::inline TENUTO_ABI

// What the shared library exports. All else in it is hidden.
#define TENUTO_API __attribute__((visibility("default")))
