// The addresses of a pool: reserved once for all that it may grow to.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "file/pool_file.h"
#include "pm/os.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

// Present in a process with ThreadSanitizer, which ends one that maps more than some 1.5 TiB.
// NOLINTNEXTLINE(bugprone-reserved-identifier): the runtime's own name
extern "C" void __tsan_init() __attribute__((weak));

namespace {

// Whether the process may have so many addresses twice, because tables and other pools need some,
// and the system promises the memory that the heap's tables would have at most (it does not where
// overcommit is forbidden). The tables take 1/160 of the pool's bytes.
bool may_reserve(std::uint64_t bytes) {
  const auto maps = [](std::uint64_t n, int prot) {
    void* p = ::mmap(nullptr, n, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p != MAP_FAILED && ::munmap(p, n) == 0;
  };
  return maps(2 * bytes, PROT_NONE) && maps(bytes / 128, PROT_READ | PROT_WRITE);
}

std::uint64_t automatic_size_max(std::uint64_t least) {
  std::uint64_t most = &__tsan_init != nullptr ? kAutomaticSizeMax / 16 : kAutomaticSizeMax;
  while (most > least && !may_reserve(most)) most /= 2;
  return most;
}

}  // namespace

Status PoolFile::reserve_addresses(std::uint64_t size_max, std::uint64_t least, Report* report) {
  if (size_max == 0) size_max = automatic_size_max(least);
  bytes_max_ = round_up(std::max(size_max, least), kHugeBytes);
  reserved_bytes_ = bytes_max_ + kMapAlignBytes;
  void* p = ::mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
  if (p == MAP_FAILED) {
    return fail_errno(errno,
                      "cannot reserve " + std::to_string(reserved_bytes_) +
                          " bytes of address space; lower size_max",
                      path_, report);
  }
  reserved_ = static_cast<std::byte*>(p);
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  base_ = reserved_ + (round_up(at, kMapAlignBytes) - at);
  return Status::ok;
}

}  // namespace TENUTO_NS::pm
