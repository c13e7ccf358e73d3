// Allocations that fail, or end the process, on request: the program that links failing_memory.cc
// has its operator new. Without a plan it does what it always does.
#pragma once

#include <cstdint>

namespace tenuto::test {

// The n-th allocation that the calling thread makes from now on (from 1) fails; 0: none does.
void fail_allocation(long n);
// All of them from the n-th on.
void fail_allocations_from(long n);
// Ends the plan. Whether an allocation failed.
bool failed_allocation();
// How many are left to the one that fails; 0: it did, or none is to.
long allocations_left();

// The same for the allocations of all threads together.
void fail_allocation_anywhere(long n);
bool failed_allocation_anywhere();

// SIGKILL ends the process at the n-th allocation of all threads.
void kill_at_allocation(std::uint64_t n);

}  // namespace tenuto::test
