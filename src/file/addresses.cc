// The addresses of a pool: reserved once for all that it may grow to. Those of a watched pool stay
// reserved after its close (pm/closed_pools.h).
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "file/pool_file.h"
#include "pm/closed_pools.h"
#include "pm/os.h"
#include "tenuto/persist.h"
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
  const auto gives_back = [](void* p, std::uint64_t n) {
    return p != nullptr && p != MAP_FAILED && ::munmap(p, n) == 0;
  };
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  return gives_back(::mmap(nullptr, 2 * bytes, PROT_NONE, kFlags, -1, 0), 2 * bytes) &&
         gives_back(map_zeros(bytes / 128), bytes / 128);
}

std::uint64_t automatic_size_max(std::uint64_t least) {
  std::uint64_t most = &__tsan_init != nullptr ? kAutomaticSizeMax / 16 : kAutomaticSizeMax;
  while (most > least && !may_reserve(most)) most /= 2;
  return most;
}

// What a watched pool leaves free on both sides. A number that looks like a Ptr into another pool
// is larger than this, and few are (tx/watch_pools.cc).
constexpr std::uint64_t kWatchedApart = 1ull << 40;

void* reserve(std::uint64_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* p = ::mmap(nullptr, bytes, PROT_NONE, kFlags, -1, 0);
  if (p == MAP_FAILED && release_closed_pools()) {
    p = ::mmap(nullptr, bytes, PROT_NONE, kFlags, -1, 0);
  }
  return p;
}

}  // namespace

Status PoolFile::reserve_addresses(std::uint64_t size_max, std::uint64_t least, Report* report) {
  if (size_max == 0) size_max = automatic_size_max(least);
  bytes_max_ = round_up(std::max(size_max, least), kHugeBytes);
  std::uint64_t apart = watched_ ? kWatchedApart : 0;
  reserved_bytes_ = bytes_max_ + kMapAlignBytes + 2 * apart;
  void* p = reserve(reserved_bytes_);
  if (p == MAP_FAILED && watched_) {
    reserved_bytes_ -= 2 * std::exchange(apart, 0);
    p = reserve(reserved_bytes_);
  }
  if (p == MAP_FAILED) {
    return fail_errno(errno,
                      "cannot reserve " + std::to_string(reserved_bytes_) +
                          " bytes of address space; lower size_max",
                      path_, report);
  }
  reserved_ = static_cast<std::byte*>(p);
  const auto at = reinterpret_cast<std::uintptr_t>(p) + apart;
  base_ = reserved_ + apart + (round_up(at, kMapAlignBytes) - at);
  return Status::ok;
}

// As the watch of stores (tx/watch.h): not in the traced build, and not with ThreadSanitizer.
bool PoolFile::watches(const PoolOptions& options) {
  return options.on_mistake != nullptr && !kTraced && &__tsan_init == nullptr;
}

void PoolFile::give_back_addresses() {
  const std::uint64_t bytes = round_up(this->bytes(), kFrameBytes);
  const bool kept = watched_ && used_ && !forked() && keep_closed_pool(base_, bytes, path_);
  if (!kept) {
    ::munmap(reserved_, reserved_bytes_);
    return;
  }
  std::byte* const end = base_ + bytes;
  std::byte* const reserved_end = reserved_ + reserved_bytes_;
  if (base_ != reserved_) ::munmap(reserved_, static_cast<std::size_t>(base_ - reserved_));
  if (end != reserved_end) ::munmap(end, static_cast<std::size_t>(reserved_end - end));
}

}  // namespace TENUTO_NS::pm
