// Runs calls in which every allocation fails once, one after the other. The program links
// failing_memory.cc. In calls that take long some later allocations are skipped.
// TENUTO_EVERY_ALLOCATION=1 fails all of them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include "support/failing_memory.h"

namespace tenuto::test {

// Runs `call` with its first allocation failing, then its second, and so on, until none fails. Runs
// `before` before and `after` after each. `call` may throw std::bad_alloc. A call that hangs ends
// the test program. Returns how many allocations failed.
inline int fail_each_allocation(const std::function<void()>& before,
                                const std::function<void()>& call,
                                const std::function<void()>& after, bool takes_long = false) {
  constexpr unsigned kHangs = 30;  // seconds
  int failed = 0;
  if (std::getenv("TENUTO_EVERY_ALLOCATION") != nullptr) takes_long = false;
  for (long n = 1; !testing::Test::HasFailure(); n += takes_long ? 1 + n / 24 : 1) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    before();
    ::alarm(kHangs);
    fail_allocation(n);
    try {
      call();
    } catch (const std::bad_alloc&) {
    }
    const bool met = failed_allocation();
    after();
    ::alarm(0);
    if (!met) break;
    failed += 1;
  }
  EXPECT_GT(failed, 0);
  return failed;
}

}  // namespace tenuto::test
