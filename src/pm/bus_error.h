// Pages of a mapping that cannot be read or written: the file was cut short by another program, or
// the device failed. The processor says so by SIGBUS, which would end the process in the middle of
// whatever it did.
//
// The handler, for an address inside a registered mapping: notes the offset in the pool's health,
// which turns the pool read-only, then puts a page of zeros where the bad one was, and lets the
// instruction run again. In this order: whoever reads the zeros, in whatever thread, reads the note
// afterwards. So every operation asks the health once more before it says ok (one load), and what
// was computed from zeros is never told to anybody. Elsewhere: the handler that was there before.
//
// What is written to such a page afterwards stays in this process; the file is what it was, as
// after a crash. Nothing that was acknowledged before is lost but what the device lost.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenuto/status.h"

namespace TENUTO_NS::pm {

// What has become of an open pool. Written by the signal handler, too: lock-free.
struct PoolHealth {
  std::atomic<bool> read_only = false;        // writes are refused
  std::atomic<Status> poisoned = Status::ok;  // why, unless it was opened so
  std::atomic<std::uint64_t> bad_page = 0;    // offset of the first bad address + 1; 0: none
  std::atomic<std::uint64_t> bad_pages = 0;   // how many pages were replaced
};
static_assert(std::atomic<Status>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Both once for each mapping; the first installs the handler, for good.
void catch_bus_errors(const void* base, std::uint64_t bytes, PoolHealth& health);
void forget_bus_errors(const void* base);

}  // namespace TENUTO_NS::pm
