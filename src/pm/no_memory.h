// What is done after a change can be lost no more, or while others wait for it, does not end with
// an exception of an allocation that failed, and nothing does with that of a thread that could not
// be started: who calls these says what holds then.
#pragma once

#include <new>
#include <stdexcept>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// As an allocation that fails does; nothing in a build without exceptions.
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

// False: f wanted a thread, and the system had none. An allocation that failed passes through.
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
