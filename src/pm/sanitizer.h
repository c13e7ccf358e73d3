// Which sanitizer the compiler was asked for: gcc defines a macro of its own, clang 14 answers a
// question. The traced build is one with -fsanitize=thread (trace.h).
#pragma once

#if defined(__has_feature)  // clang
#define TENUTO_ASAN __has_feature(address_sanitizer)
#define TENUTO_TSAN __has_feature(thread_sanitizer)
#else
#ifdef __SANITIZE_ADDRESS__
#define TENUTO_ASAN 1
#else
#define TENUTO_ASAN 0
#endif
#ifdef __SANITIZE_THREAD__
#define TENUTO_TSAN 1
#else
#define TENUTO_TSAN 0
#endif
#endif
