#include "support/failing_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <mutex>

namespace {

struct Plan {
  int left = 0;  // calls up to the one that fails; 0: no plan
  int error = 0;
  bool lasting = false;
  const char* only = nullptr;  // only calls of this name count; null: all
  const char* failed = nullptr;
};
thread_local Plan plan;
std::mutex anywhere_mu;
Plan anywhere;  // for all threads; guarded by anywhere_mu
// Whether `anywhere` has a plan. If not, no thread takes the lock: a forked child finds it free,
// and sanitizers may make calls before it is constructed.
std::atomic<bool> anywhere_armed = false;

bool fails(Plan& p, const char* name) {
  if (p.only != nullptr && std::strcmp(p.only, name) != 0) return false;
  const bool again = p.failed != nullptr && p.lasting && std::strcmp(p.failed, name) == 0;
  if (!again && (p.left == 0 || --p.left != 0)) return false;
  if (p.error == tenuto::test::kKillProcess) ::kill(::getpid(), SIGKILL);
  p.failed = name;
  errno = p.error;
  return true;
}

bool fails(const char* name) {
  bool now = false;
  if (anywhere_armed.load(std::memory_order_acquire)) {
    const std::lock_guard lock(anywhere_mu);
    now = fails(anywhere, name);
  }
  while (now && errno == tenuto::test::kStuckCall) ::pause();
  return now || fails(plan, name);
}

bool take(Plan& p, std::string* name) {
  const char* failed = p.failed;
  p = {};
  if (failed != nullptr && name != nullptr) *name = failed;
  return failed != nullptr;
}

}  // namespace

namespace tenuto::test {

void fail_call(int n, int error, bool lasting) { plan = {n, error, lasting, nullptr, nullptr}; }
bool failed_call(std::string* name) { return take(plan, name); }

void fail_call_anywhere(int n, int error, bool lasting, const char* only) {
  const std::lock_guard lock(anywhere_mu);
  anywhere = {n, error, lasting, only, nullptr};
  anywhere_armed.store(n != 0, std::memory_order_release);
}
bool failed_call_anywhere(std::string* name) {
  const std::lock_guard lock(anywhere_mu);
  anywhere_armed.store(false, std::memory_order_release);
  return take(anywhere, name);
}

}  // namespace tenuto::test

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (fails("open")) return -1;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
int fallocate(int fd, int mode, off_t at, off_t bytes) {
  if (fails("fallocate")) {
    if (errno != tenuto::test::kHalfSpace) return -1;
    ::syscall(SYS_fallocate, fd, mode, at, bytes / 2);
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fallocate, fd, mode, at, bytes));
}
int posix_fallocate(int fd, off_t at, off_t bytes) {
  if (fails("posix_fallocate")) return errno;
  return ::syscall(SYS_fallocate, fd, 0, at, bytes) == 0 ? 0 : errno;
}
int fdatasync(int fd) {
  return fails("fdatasync") ? -1 : static_cast<int>(::syscall(SYS_fdatasync, fd));
}
int fsync(int fd) { return fails("fsync") ? -1 : static_cast<int>(::syscall(SYS_fsync, fd)); }
int msync(void* p, size_t bytes, int flags) {
  return fails("msync") ? -1 : static_cast<int>(::syscall(SYS_msync, p, bytes, flags));
}
ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
  if (fails("pwrite")) {
    if (errno == tenuto::test::kHalfWrite) {
      bytes = bytes / 2 + 1;
    } else if (errno == tenuto::test::kShortWrite) {
      bytes = std::min(bytes, tenuto::test::kShortWriteBytes);
    } else {
      return -1;
    }
  }
  return ::syscall(SYS_pwrite64, fd, from, bytes, at);
}
ssize_t pwrite64(int fd, const void* from, size_t bytes, off_t at) {
  return pwrite(fd, from, bytes, at);
}
ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  return fails("pread") ? -1 : ::syscall(SYS_pread64, fd, to, bytes, at);
}
int fstat(int fd, struct stat* st) noexcept {
  return fails("fstat") ? -1 : static_cast<int>(::syscall(SYS_fstat, fd, st));
}
int fstatfs(int fd, struct statfs* fs) noexcept {
  const auto rc = static_cast<int>(::syscall(SYS_fstatfs, fd, fs));
  fs->f_type = 0xef53;  // ext4
  return rc;
}
int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  if (command == F_OFD_SETLK && fails("fcntl")) return -1;
  return static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
}
int linkat(int from_fd, const char* from, int to_fd, const char* to, int flags) noexcept {
  if (fails("linkat")) return -1;
  return static_cast<int>(::syscall(SYS_linkat, from_fd, from, to_fd, to, flags));
}
void* mmap(void* at, size_t bytes, int prot, int flags, int fd, off_t offset) noexcept {
  if (fd >= 0 && fails("mmap")) return MAP_FAILED;
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, prot, flags, fd, offset));
}

}  // extern "C"
