// Allocations that fail, or end the process, on request. A program that links failing_memory.cc has
// its operator new. Without a plan it works as usual.
#pragma once

#include <cstdint>

namespace tenuto::test {

// The n-th allocation by the calling thread from now on (n >= 1) fails. 0: none fails.
void fail_allocation(long n);
// All allocations from the n-th on fail.
void fail_allocations_from(long n);
// Ends the plan. Returns whether an allocation failed.
bool failed_allocation();
// Allocations up to the one that fails. 0: it has failed, or there is no plan.
long allocations_left();

// The same for the allocations of all threads together.
void fail_allocation_anywhere(long n);
bool failed_allocation_anywhere();

// SIGKILL ends the process at the n-th allocation of all threads.
void kill_at_allocation(std::uint64_t n);

}  // namespace tenuto::test
