// The handler reads the table without a lock. An entry counts only if its base is the same before
// and after, as in media.cc. To replace a page it calls mmap as a direct system call, so that no
// wrapper of a sanitizer or another library runs. It calls sigaction and raise only for a signal
// that neither the library nor an earlier handler handles.
#include "pm/bus_error.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <csignal>

#include <array>
#include <cerrno>
#include <mutex>

#include "pm/assert.h"
#include "pm/former_handler.h"
#include "pm/media.h"
#include "pm/process.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

namespace {

constexpr std::size_t kMappingsMax = kRegionsMax;  // each is a region, too

struct Mapping {
  std::atomic<std::uintptr_t> base = 0;  // 0: free
  std::atomic<std::uintptr_t> end = 0;
  std::atomic<PoolHealth*> health = nullptr;
};

constinit std::array<Mapping, kMappingsMax> mappings;
constinit std::mutex& mappings_mu = process_locks.mappings;
constinit FormerHandler former_sigbus;

void note(PoolHealth& health, std::uint64_t offset) {
  std::uint64_t none = 0;
  health.bad_page.compare_exchange_strong(none, offset + 1);
  Status sound = Status::ok;
  health.poisoned.compare_exchange_strong(sound, Status::io);
  health.read_only.store(true);
  health.bad_pages.fetch_add(1);
}

bool replace_page(std::uintptr_t address) {
  for (Mapping& m : mappings) {
    const std::uintptr_t base = m.base.load();
    if (base == 0 || address < base || address >= m.end.load()) continue;
    PoolHealth* health = m.health.load();
    if (health == nullptr || m.base.load() != base) continue;
    note(*health, address - base);
    const std::uintptr_t page = round_down(address, kFrameBytes);
    const long p = ::syscall(SYS_mmap, page, kFrameBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return p == static_cast<long>(page);
  }
  return false;
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const bool of_an_access = info->si_code > 0;  // not sent by kill or raise
  if (of_an_access && replace_page(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    errno = error;
    return;
  }
  former_sigbus.call(number, info, context);
}

}  // namespace

void catch_bus_errors(const void* base, std::uint64_t bytes, PoolHealth& health) {
  const std::lock_guard lock(mappings_mu);
  static const bool installed = (former_sigbus.replace(SIGBUS, on_bus_error), true);
  static_cast<void>(installed);
  std::size_t i = 0;
  while (i < kMappingsMax && mappings[i].base.load() != 0) ++i;
  TENUTO_ASSERT(i < kMappingsMax);
  const auto at = reinterpret_cast<std::uintptr_t>(base);
  mappings[i].health.store(&health);
  mappings[i].end.store(at + bytes);
  mappings[i].base.store(at);
}

void forget_bus_errors(const void* base) {
  const std::lock_guard lock(mappings_mu);
  for (Mapping& m : mappings) {
    if (m.base.load() != reinterpret_cast<std::uintptr_t>(base)) continue;
    m.base.store(0);
    m.health.store(nullptr);
  }
}

}  // namespace TENUTO_NS::pm
