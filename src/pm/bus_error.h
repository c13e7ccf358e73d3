// Handles pages of a mapping that cannot be read or written: another program cut the file short, or
// the device failed. The kernel then sends SIGBUS, which would end the process in the middle of an
// operation.
//
// For an address inside a registered mapping the handler does three things, in this order:
//   1. It notes the offset in the pool's health, which turns the pool read-only.
//   2. It maps a page of zeros in place of the bad one.
//   3. It returns, so that the instruction runs again.
// Because of this order, a thread that reads the zeros sees the note afterwards. Every operation
// checks the health once more before it returns ok (one load). So no operation returns a result
// that was computed from zeros. Signals for other addresses go to the handler that was there
// before.
//
// What is written to such a page afterwards stays in this process. The file keeps what it had, as
// after a crash. Of what was acknowledged before, only what the device lost is lost.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenuto/status.h"

namespace TENUTO_NS::pm {

// The state of an open pool. The signal handler writes it too, so every member is lock-free.
struct PoolHealth {
  std::atomic<bool> read_only = false;        // writes are refused
  std::atomic<Status> poisoned = Status::ok;  // the reason; ok: none, or opened to read
  std::atomic<std::uint64_t> bad_page = 0;    // offset of the first bad address + 1; 0: none
  std::atomic<std::uint64_t> bad_pages = 0;   // how many pages were replaced
};
static_assert(std::atomic<Status>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Call each once for each mapping. The first call installs the handler, which then stays.
void catch_bus_errors(const void* base, std::uint64_t bytes, PoolHealth& health);
void forget_bus_errors(const void* base);

}  // namespace TENUTO_NS::pm
