// What is done after a change can be lost no more, or while others wait for it, does not end with
// an exception of an allocation that failed: who calls this says what holds then.
#pragma once

#include <new>
#include <system_error>

#include "tenuto/abi.h"

namespace tenuto::inline TENUTO_ABI::pm {

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

// False: the system had no thread for f, or no memory for one.
template <class F>
bool had_thread(const F& f) {
#ifdef __cpp_exceptions
  try {
    return had_memory(f);
  } catch (const std::system_error&) {
    return false;
  }
#else
  f();
  return true;
#endif
}

}  // namespace tenuto::inline TENUTO_ABI::pm
