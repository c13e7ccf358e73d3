// The processor's counters; see hardware.h.
#include "bench/support/hardware.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace bench {
namespace {

struct Counter {
  const char* name;
  std::uint32_t type;
  std::uint64_t config;
};

constexpr std::uint64_t cache_event(std::uint64_t cache, std::uint64_t op, std::uint64_t result) {
  return cache | op << 8 | result << 16;
}

constexpr Counter kWanted[] = {
    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    {"cache misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    {"TLB misses", PERF_TYPE_HW_CACHE,
     cache_event(PERF_COUNT_HW_CACHE_DTLB, PERF_COUNT_HW_CACHE_OP_READ,
                 PERF_COUNT_HW_CACHE_RESULT_MISS)},
};

// Returns -1 and sets errno if there is no such counter.
int open_counter(const Counter& counter) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = counter.type;
  attr.config = counter.config;
  attr.inherit = 1;  // also counts threads that start later
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return static_cast<int>(::syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

double read_counter(int fd) {
  struct {
    std::uint64_t value, enabled, running;
  } seen{};
  if (fd < 0 || ::read(fd, &seen, sizeof seen) != sizeof seen || seen.running == 0) return -1;
  return static_cast<double>(seen.value) * static_cast<double>(seen.enabled) /
         static_cast<double>(seen.running);
}

}  // namespace

HardwareMeter::HardwareMeter() {
  for (std::size_t i = 0; i < kCounters; ++i) fd_[i] = open_counter(kWanted[i]);
}

HardwareMeter::~HardwareMeter() {
  for (const int fd : fd_) {
    if (fd >= 0) ::close(fd);
  }
}

HardwareUse HardwareMeter::since_start() const {
  static_assert(std::size(kWanted) == kCounters);
  return {read_counter(fd_[0]), read_counter(fd_[1]), read_counter(fd_[2]), read_counter(fd_[3])};
}

std::string HardwareMeter::why() {
  std::string text;
  for (const Counter& counter : kWanted) {
    const int fd = open_counter(counter);
    if (fd >= 0) {
      ::close(fd);
      continue;
    }
    text += text.empty() ? "" : "; ";
    text += std::string(counter.name) + ": " + std::strerror(errno);
  }
  return text;
}

}  // namespace bench
