// The handler reads the table without a lock. An entry counts only if its base is the same before
// and after, as in media.cc. The handler calls what may be called in one, and backtrace, which
// keep_closed_pool has loaded before. A fault of this kind is the program's own load or store, so
// the thread is not inside an allocator or a loader.
#include "pm/closed_pools.h"

#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>
#include <csignal>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>

#include "pm/former_handler.h"
#include "pm/process.h"

namespace TENUTO_NS::pm {

namespace {

constexpr int kCallsShown = 32;

struct ClosedPool {
  std::atomic<std::uintptr_t> base = 0;  // 0: free
  std::atomic<std::uintptr_t> end = 0;
  // Guarded by process_locks.mappings, and by the base for the handler.
  std::uint64_t order = 0;
  std::array<char, 240> path = {};  // of a longer one the end
  std::array<char, 32> when = {};
};

constinit std::array<ClosedPool, kClosedPoolsKept> closed_pools;
constinit std::uint64_t last_order = 0;
constinit std::mutex& closed_mu = process_locks.mappings;
constinit FormerHandler former_segv;

// Text in a buffer of its own, since a handler may not allocate.
class FaultText {
 public:
  FaultText& operator<<(const char* text) {
    while (*text != '\0' && used_ < text_.size()) text_[used_++] = *text++;
    return *this;
  }
  FaultText& operator<<(std::uint64_t number) {
    std::array<char, 21> digits{};
    char* at = digits.data() + digits.size() - 1;
    do {
      *--at = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return *this << at;
  }
  std::string_view text() const { return {text_.data(), used_}; }

 private:
  std::array<char, 640> text_;
  std::size_t used_ = 0;
};

// False: no closed pool was there.
bool find_closed(std::uintptr_t address, FaultText& line) {
  for (const ClosedPool& pool : closed_pools) {
    const std::uintptr_t base = pool.base.load();
    if (base == 0 || address < base || address >= pool.end.load()) continue;
    FaultText found;
    found << "the closed pool " << pool.path.data() << " (offset " << address - base
          << ", closed at " << pool.when.data() << ")";
    if (pool.base.load() != base) continue;
    line = found;
    return true;
  }
  return false;
}

void tell_of_fault(const FaultText& where) {
  FaultText line;
  line << "tenuto: a pointer into a pool was followed after the pool had been closed: get it anew "
          "from Pool::root after the next open, and close a pool only when no thread uses it [";
  for (const std::string_view text : {line.text(), where.text(), std::string_view("]\n")}) {
    static_cast<void>(::write(STDERR_FILENO, text.data(), text.size()));
  }
  std::array<void*, kCallsShown> calls{};
  const int count = ::backtrace(calls.data(), kCallsShown);
  ::backtrace_symbols_fd(calls.data(), count, STDERR_FILENO);
}

void on_fault(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const bool of_an_access = info->si_code > 0;  // not sent by kill or raise
  FaultText where;
  if (of_an_access && find_closed(reinterpret_cast<std::uintptr_t>(info->si_addr), where))
    tell_of_fault(where);
  errno = error;
  former_segv.call(number, info, context);
}

void catch_faults() {
  std::array<void*, 1> call{};
  static_cast<void>(::backtrace(call.data(), 1));  // loads what it needs
  former_segv.replace(SIGSEGV, on_fault);
}

// REQUIRES: closed_mu.
void give_back_closed(ClosedPool& pool) {
  const std::uintptr_t base = pool.base.exchange(0);
  ::munmap(reinterpret_cast<void*>(base), pool.end.load() - base);
}

// A free entry, after the oldest pools are released that are too many. REQUIRES: closed_mu.
ClosedPool& make_room_for(std::uint64_t bytes) {
  for (;;) {
    ClosedPool* free = nullptr;
    ClosedPool* oldest = nullptr;
    std::uint64_t kept = bytes;
    for (ClosedPool& pool : closed_pools) {
      if (pool.base.load() == 0) {
        free = &pool;
        continue;
      }
      kept += pool.end.load() - pool.base.load();
      if (oldest == nullptr || pool.order < oldest->order) oldest = &pool;
    }
    if (free != nullptr && (kept <= kClosedBytesKept || oldest == nullptr)) return *free;
    give_back_closed(*oldest);
  }
}

}  // namespace

bool keep_closed_pool(void* begin, std::uint64_t bytes, std::string_view path) noexcept {
  void* const p = ::mmap(begin, bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (p == MAP_FAILED) return false;
  const std::lock_guard lock(closed_mu);
  static const bool installed = (catch_faults(), true);
  static_cast<void>(installed);
  ClosedPool& pool = make_room_for(bytes);
  if (path.size() >= pool.path.size()) path.remove_prefix(path.size() - pool.path.size() + 1);
  pool.path = {};
  path.copy(pool.path.data(), path.size());
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  ::gmtime_r(&now, &day);
  std::strftime(pool.when.data(), pool.when.size(), "%Y-%m-%d %H:%M:%S UTC", &day);
  pool.order = ++last_order;
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  pool.end.store(at + bytes);
  pool.base.store(at);
  return true;
}

bool release_closed_pools() noexcept {
  const std::lock_guard lock(closed_mu);
  bool any = false;
  for (ClosedPool& pool : closed_pools) {
    if (pool.base.load() == 0) continue;
    give_back_closed(pool);
    any = true;
  }
  return any;
}

std::string closed_pool_at(const void* p) {
  FaultText line;
  const bool found = find_closed(reinterpret_cast<std::uintptr_t>(p), line);
  return found ? std::string(line.text()) : std::string();
}

}  // namespace TENUTO_NS::pm
