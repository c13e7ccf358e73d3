#include "pm/metadata_key.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>

#include "pm/plant.h"
#include "pm/process.h"

namespace TENUTO_NS::pm {

namespace {

int the_key = 0;  // guarded by process_locks.metadata_key; constant while metadata_bits is not 0

constexpr std::uint32_t kNoAccess = 1, kNoWrite = 2;  // PKEY_DISABLE_ACCESS, PKEY_DISABLE_WRITE

#if defined(__x86_64__)

// As bytes: the names of these instructions need a compiler switch.
std::uint32_t rights() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile(".byte 0x0f, 0x01, 0xee" : "=a"(low), "=d"(high) : "c"(0) : "memory");  // rdpkru
  return low;
}

// No access moves over it, in the compiler or in the processor.
void set_rights(std::uint32_t to) {
  asm volatile(".byte 0x0f, 0x01, 0xef" : : "a"(to), "c"(0), "d"(0) : "memory");  // wrpkru
}

bool machine_has_keys() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kEnabledBySystem = 1u << 4;  // OSPKE
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c & kEnabledBySystem) != 0;
}

#else

std::uint32_t rights() { return 0; }
void set_rights(std::uint32_t) {}
bool machine_has_keys() { return false; }

#endif

int change_key(void* at, std::uint64_t bytes, int key) {
  return ::syscall(SYS_pkey_mprotect, at, bytes, PROT_READ | PROT_WRITE, key) == 0 ? 0 : errno;
}

}  // namespace

bool has_keys() { return machine_has_keys(); }

Status take_metadata_key(Report* report) {
  const std::lock_guard lock(process_locks.metadata_key);
  if (metadata_bits.load(std::memory_order_relaxed) != 0) return Status::ok;
  if (kTraced) {
    return fail(Status::invalid_argument, report,
                "the traced library protects no metadata: open the pool without protect_metadata");
  }
  if (!machine_has_keys()) {
    return fail(Status::invalid_argument, report,
                "this processor or its kernel has no protection keys (pku in /proc/cpuinfo), so "
                "metadata cannot be protected: open the pool without protect_metadata");
  }
  const long key = ::syscall(SYS_pkey_alloc, 0, kNoWrite);
  if (key < 0 && errno == ENOSPC) {
    return fail(Status::full, report,
                "all 15 protection keys of this process are in use, so metadata cannot be "
                "protected: free one, or open the pool without protect_metadata");
  }
  if (key < 0) {
    return fail(Status::invalid_argument, report,
                std::string("the kernel gives no protection key (pkey_alloc: ") +
                    std::strerror(errno) + "): open the pool without protect_metadata");
  }
  the_key = static_cast<int>(key);
  metadata_bits.store((kNoAccess | kNoWrite) << (2 * key));
  return Status::ok;
}

int put_under_key(void* at, std::uint64_t bytes) { return change_key(at, bytes, the_key); }
int take_from_under_key(void* at, std::uint64_t bytes) { return change_key(at, bytes, 0); }

namespace {
thread_local std::uint64_t openings = 0;
}  // namespace
std::uint64_t metadata_openings() { return openings; }

bool open_metadata() {
  const std::uint32_t bits = metadata_bits.load(std::memory_order_relaxed);
  const std::uint32_t now = rights();
  if ((now & bits) == 0) return false;
  set_rights(now & ~bits);
#ifdef TENUTO_DEBUG_CHECKS
  openings += 1;
#endif
  return true;
}

// Other keys are the program's: it may have changed their rights meanwhile.
bool close_metadata() {
  const std::uint32_t bits = metadata_bits.load(std::memory_order_relaxed);
  const std::uint32_t now = rights();
  if ((now & bits) != 0 || TENUTO_PLANT("pm_metadata_left_open")) return false;
  const std::uint32_t read_only = bits & (bits << 1);  // the upper one of the two
  set_rights(now | (TENUTO_PLANT("pm_metadata_unreadable_outside") ? bits : read_only));
  return true;
}

}  // namespace TENUTO_NS::pm
