// Counts what goes to the device; see io_meter.h. A program's own definition of a libc function
// takes precedence over libc's, for the program and every shared library in it. Each definition
// makes the system call itself. The fortified forms of open (__open_2) and stdio bypass this file,
// but neither is used for synced files. bench/README.md describes how the counts were compared with
// strace.
#include "bench/support/io_meter.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <fstream>
#include <utility>

namespace bench {
namespace {

constexpr std::size_t kFilesMax = 1u << 16;  // higher descriptors are ignored
constexpr std::uint8_t kIsSynced = 1;        // O_DSYNC or O_SYNC
constexpr std::uint8_t kSyncAfter = 2;       // JournalWrites::fdatasync

constinit std::array<std::atomic<std::uint8_t>, kFilesMax> g_files{};
constinit std::atomic<std::uint64_t> g_syncs = 0;
constinit std::atomic<std::uint64_t> g_synced_maps = 0;
constinit std::atomic<std::uint64_t> g_synced_writes = 0;
constinit std::atomic<JournalWrites> g_journal_writes = JournalWrites::direct;

void count(std::atomic<std::uint64_t>& n) { n.fetch_add(1, std::memory_order_relaxed); }

std::atomic<std::uint8_t>* entry_of(int fd) {
  return fd >= 0 && static_cast<std::size_t>(fd) < kFilesMax ? &g_files[static_cast<unsigned>(fd)]
                                                             : nullptr;
}

template <class... Args>
int call_int(long number, Args... args) {
  return static_cast<int>(::syscall(number, args...));
}

int open_counted(int at, const char* path, int flags, mode_t mode) {
  std::uint8_t note = 0;
  const JournalWrites how = g_journal_writes.load(std::memory_order_relaxed);
  if (how != JournalWrites::direct && (flags & O_DSYNC) != 0 &&
      std::string_view(path).ends_with(".journal")) {
    flags &= ~O_DIRECT;
    if (how == JournalWrites::fdatasync) {
      flags &= ~O_DSYNC;
      note |= kSyncAfter;
    }
  }
  if ((flags & O_DSYNC) != 0) note |= kIsSynced;  // O_SYNC includes it
  const int fd = call_int(SYS_openat, at, path, flags, mode);
  if (std::atomic<std::uint8_t>* e = entry_of(fd)) e->store(note, std::memory_order_relaxed);
  return fd;
}

int sync_counted(long number, int fd) {
  count(g_syncs);
  return call_int(number, fd);
}

// Counts a write and makes it durable if asked to.
ssize_t written(int fd, ssize_t n) {
  const std::atomic<std::uint8_t>* e = entry_of(fd);
  if (e == nullptr || n <= 0) return n;
  const std::uint8_t note = e->load(std::memory_order_relaxed);
  if ((note & kIsSynced) != 0) count(g_synced_writes);
  if ((note & kSyncAfter) != 0 && sync_counted(SYS_fdatasync, fd) != 0) return -1;
  return n;
}

bool takes_mode(int flags) { return (flags & (O_CREAT | O_TMPFILE)) != 0; }

}  // namespace

IoCalls io_calls() {
  return {g_syncs.load(std::memory_order_relaxed), g_synced_maps.load(std::memory_order_relaxed),
          g_synced_writes.load(std::memory_order_relaxed)};
}

std::uint64_t storage_bytes() {
  std::ifstream in("/proc/self/io");
  std::string name;
  for (std::uint64_t n = 0; in >> name >> n;) {
    if (name == "write_bytes:") return n;
  }
  return 0;
}

std::optional<DeviceCounts> device_counts(const std::string& dir) {
  struct stat st {};
  if (::stat(dir.c_str(), &st) != 0) return std::nullopt;
  std::ifstream in("/sys/dev/block/" + std::to_string(major(st.st_dev)) + ":" +
                   std::to_string(minor(st.st_dev)) + "/stat");
  constexpr int kSectorsWritten = 6;
  constexpr int kFlushes = 15;
  DeviceCounts counts;
  std::uint64_t n = 0;
  for (int field = 0; in >> n; ++field) {
    if (field == kSectorsWritten) counts.bytes = n * 512;
    if (field == kFlushes) {
      counts.flushes = n;
      return counts;
    }
  }
  return std::nullopt;
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

IoMeter::IoMeter(std::string dir)
    : dir_(std::move(dir)),
      cpu_seconds_(bench::cpu_seconds()),
      storage_bytes_(bench::storage_bytes()),
      sync_calls_(io_calls().total()),
      device_(device_counts(dir_)) {}

IoUse IoMeter::since_start() const {
  IoUse use;
  use.cpu_seconds = bench::cpu_seconds() - cpu_seconds_;
  use.storage_bytes = static_cast<double>(bench::storage_bytes() - storage_bytes_);
  use.sync_calls = static_cast<double>(io_calls().total() - sync_calls_);
  const std::optional<DeviceCounts> now = device_counts(dir_);
  if (device_ && now) {
    use.device_flushes = static_cast<double>(now->flushes - device_->flushes);
    use.device_bytes = static_cast<double>(now->bytes - device_->bytes);
  }
  return use;
}

std::optional<JournalWrites> journal_writes_of(std::string_view name) {
  if (name == "direct") return JournalWrites::direct;
  if (name == "dsync") return JournalWrites::dsync;
  if (name == "fdatasync") return JournalWrites::fdatasync;
  return std::nullopt;
}

void set_journal_writes(JournalWrites how) {
  g_journal_writes.store(how, std::memory_order_relaxed);
}

}  // namespace bench

// --- libc's names --------------------------------------------------------------------------------

using bench::call_int;
using bench::open_counted;
using bench::written;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = bench::takes_mode(flags) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_counted(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = bench::takes_mode(flags) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_counted(AT_FDCWD, path, flags, mode);
}
int openat(int at, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = bench::takes_mode(flags) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_counted(at, path, flags, mode);
}
int openat64(int at, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = bench::takes_mode(flags) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_counted(at, path, flags, mode);
}

int fsync(int fd) { return bench::sync_counted(SYS_fsync, fd); }
int fdatasync(int fd) { return bench::sync_counted(SYS_fdatasync, fd); }
int syncfs(int fd) noexcept { return bench::sync_counted(SYS_syncfs, fd); }
int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags) {
  if ((flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0) bench::count(bench::g_syncs);
  return call_int(SYS_sync_file_range, fd, offset, bytes, flags);
}
int msync(void* at, size_t bytes, int flags) {
  if ((flags & MS_SYNC) != 0) bench::count(bench::g_synced_maps);
  return call_int(SYS_msync, at, bytes, flags);
}

ssize_t write(int fd, const void* data, size_t bytes) {
  return written(fd, ::syscall(SYS_write, fd, data, bytes));
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) {
  return written(fd, ::syscall(SYS_pwrite64, fd, data, bytes, at));
}
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t at) {
  return written(fd, ::syscall(SYS_pwrite64, fd, data, bytes, at));
}
ssize_t writev(int fd, const iovec* parts, int count) {
  return written(fd, ::syscall(SYS_writev, fd, parts, count));
}
ssize_t pwritev(int fd, const iovec* parts, int count, off_t at) {
  return written(fd, ::syscall(SYS_pwritev, fd, parts, count, at, 0));
}
ssize_t pwritev64(int fd, const iovec* parts, int count, off64_t at) {
  return written(fd, ::syscall(SYS_pwritev, fd, parts, count, at, 0));
}

}  // extern "C"
