// Turns a failed allocation, or a thread that cannot be started, into a result instead of an
// exception. A failed allocation must not throw in code that runs when a change is already final,
// or that other threads wait for. A thread that cannot be started must not throw anywhere. Each
// caller says what holds after the failure.
#pragma once

#include <new>
#include <stdexcept>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// Throws what a failed allocation throws. Does nothing in a build without exceptions.
inline void throw_bad_alloc() {
#ifdef __cpp_exceptions
  throw std::bad_alloc();
#endif
}

// False: an allocation in f failed.
template <class F>
bool had_memory(const F& f) {
#ifdef __cpp_exceptions
  try {
    f();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
#else
  f();
  return true;
#endif
}

inline constexpr const char* kNoThread =
    "the system has no thread to give: raise the process's limit of threads";

// False: f needed a thread, and the system had none. The exception of a failed allocation passes
// through.
template <class F>
bool started_threads(const F& f) {
#ifdef __cpp_exceptions
  try {
    f();
    return true;
  } catch (const std::runtime_error&) {  // std::system_error is one, and so is what oneTBB throws
    return false;
  }
#else
  f();
  return true;
#endif
}

// False: the system had no thread for f, or no memory for one.
template <class F>
bool had_thread(const F& f) {
  bool had = false;
  return had_memory([&] { had = started_threads(f); }) && had;
}

}  // namespace TENUTO_NS::pm
