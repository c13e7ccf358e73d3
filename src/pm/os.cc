#include "pm/os.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

#include "pm/plant.h"
#include "pm/size_signal.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

namespace {
constexpr unsigned kShortWritesMax = 16;  // in a row, without a granule of progress
}

Status status_of_errno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Status::not_found;
    case EEXIST:
      return Status::exists;
    case EACCES:
    case EPERM:
    case EROFS:
      return Status::permission;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Status::full;
    case EISDIR:
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
      return Status::invalid_argument;
    default:
      return Status::io;
  }
}

Status fail_errno(int error, std::string_view what, std::string_view where, Report* report) {
  const char* words = ::strerrordesc_np(error);
  return fail(status_of_errno(error), report,
              std::string(what) + ": " + (words != nullptr ? words : "unknown error"),
              std::string(where));
}

Status lock_file(int fd, bool exclusive, std::string_view path, Report* report) {
  struct flock lock {};
  lock.l_type = exclusive ? F_WRLCK : F_RDLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return Status::ok;
  if (errno == EAGAIN || errno == EACCES) {
    return fail(Status::busy, report,
                exclusive ? "the pool is open elsewhere; close it there first"
                          : "the pool is open for writing elsewhere; close it there first",
                std::string(path));
  }
  return fail_errno(errno, "cannot lock the pool file", path, report);
}

void unlock_file(int fd) {
  struct flock lock {};
  lock.l_type = F_UNLCK;
  lock.l_whence = SEEK_SET;
  static_cast<void>(::fcntl(fd, F_OFD_SETLK, &lock));
}

void close_all(std::initializer_list<int*> fds) {
  const NotCancelled whole;
  for (int* fd : fds) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

Status reserve_space(int fd, std::uint64_t from, std::uint64_t to, std::string_view path,
                     Report* report) {
  const NoSizeSignal held;
  const auto at = static_cast<off_t>(from);
  const auto bytes = static_cast<off_t>(to - from);
  if (uninterrupted([&] { return ::fallocate(fd, 0, at, bytes); }) == 0) return Status::ok;
  // Without fallocate the blocks are written, which reserves them as well.
  const int error = errno == EOPNOTSUPP ? ::posix_fallocate(fd, at, bytes) : errno;
  if (error == 0) return Status::ok;
  return fail_errno(error, "cannot reserve " + std::to_string(to - from) + " bytes", path, report);
}

bool write_all(int fd, std::uint64_t offset, const void* data, std::size_t bytes,
               std::size_t granule) {
  const NoSizeSignal held;  // the file may be longer already than the process may make one
  const auto* from = static_cast<const std::byte*>(data);
  for (unsigned stuck = 0; bytes > 0;) {
    const ssize_t n =
        uninterrupted([&] { return ::pwrite(fd, from, bytes, static_cast<off_t>(offset)); });
    if (n < 0) return false;
    const auto got = static_cast<std::size_t>(n);
    const std::size_t done = got == bytes ? got : got - got % granule;
    stuck = done == 0 ? stuck + 1 : 0;
    if (stuck > kShortWritesMax) {
      errno = EIO;
      return false;
    }
    from += done;
    offset += done;
    bytes -= done;
  }
  return true;
}

std::size_t read_all(int fd, std::uint64_t offset, void* to, std::size_t bytes) {
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t n = uninterrupted([&] {
      return ::pread(fd, static_cast<std::byte*>(to) + got, bytes - got,
                     static_cast<off_t>(offset + got));
    });
    if (n < 0) return got;
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  if (got < bytes) errno = 0;
  return got;
}

bool sync_data(int fd) {
  return uninterrupted([&] { return ::fdatasync(fd); }) == 0;
}
bool sync_whole(int fd) {
  return uninterrupted([&] { return ::fsync(fd); }) == 0;
}

void* map_zeros(std::uint64_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  const bool eager = TENUTO_PLANT("pm_tables_locked_in_memory");
  const int first = eager ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* const p = ::mmap(nullptr, bytes, first, kFlags, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  if (eager) return p;
  static_cast<void>(::munlock(p, bytes));
  if (::mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0) return p;
  const int error = errno;
  ::munmap(p, bytes);
  errno = error;
  return nullptr;
}

bool is_in_memory(int fd) {
  struct statfs fs {};
  if (::fstatfs(fd, &fs) != 0) return false;
  return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

bool grants_map_sync(int fd) {
  void* p = ::mmap(nullptr, kFrameBytes, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
  if (p == MAP_FAILED) return false;
  ::munmap(p, kFrameBytes);
  return true;
}

#ifndef MADV_COLLAPSE  // headers before Linux 6.1
#define MADV_COLLAPSE 25
#endif

int make_large(void* at, std::size_t bytes) {
  return ::madvise(at, bytes, MADV_COLLAPSE) == 0 ? 0 : errno;
}

MappedBytes mapped_bytes(const void* at, std::size_t bytes) {
  const NotCancelled whole;
  MappedBytes found;
  const std::unique_ptr<FILE, decltype(&std::fclose)> maps(std::fopen("/proc/self/smaps", "re"),
                                                           &std::fclose);
  if (maps == nullptr) return found;
  const struct {
    const char* name;
    std::uint64_t* to;
  } properties[] = {{"Rss:", &found.in_memory},       {"ShmemPmdMapped:", &found.large},
                    {"FilePmdMapped:", &found.large}, {"Shared_Dirty:", &found.dirty},
                    {"Private_Dirty:", &found.dirty}, {"Anonymous:", &found.own}};
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  char line[256];
  bool inside = false;
  while (std::fgets(line, sizeof line, maps.get()) != nullptr) {
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
      inside = from >= begin && to <= begin + bytes;
      continue;
    }
    for (const auto& p : properties) {
      const std::size_t name = std::strlen(p.name);
      if (!inside || std::strncmp(line, p.name, name) != 0) continue;
      *p.to += std::strtoull(line + name, nullptr, 10) * 1024;
    }
  }
  return found;
}

namespace {

// What follows `mark` in the first line of the file that has it. Empty: there is none.
std::string line_after(const std::string& path, std::string_view mark) {
  const NotCancelled whole;
  const std::unique_ptr<FILE, decltype(&std::fclose)> file(std::fopen(path.c_str(), "re"),
                                                           &std::fclose);
  char line[4096];
  while (file != nullptr && std::fgets(line, sizeof line, file.get()) != nullptr) {
    const std::string_view text(line, std::strcspn(line, "\n"));
    const std::size_t at = text.find(mark);
    if (at != text.npos) return std::string(text.substr(at + mark.size()));
  }
  return {};
}

// `other` if the text is no number: "max" is no limit.
std::uint64_t number_or(std::uint64_t other, const std::string& text) {
  std::uint64_t n = 0;
  return std::sscanf(text.c_str(), "%" SCNu64, &n) == 1 ? n : other;
}

constexpr std::uint64_t kNone = ~std::uint64_t{0};

// The bytes on the line of /proc/meminfo that begins with `name`.
std::uint64_t meminfo(const std::string& root, std::string_view name) {
  const std::uint64_t kib = number_or(kNone, line_after(root + "/proc/meminfo", name));
  return kib == kNone ? kNone : kib * 1024;
}

// Of the process's own control group.
struct GroupMemory {
  std::uint64_t most = kNone;
  std::uint64_t used = 0;
};

GroupMemory group_memory(const std::string& root) {
  const std::string groups = root + "/proc/self/cgroup";
  const auto memory_of = [](const std::string& group, const char* most, const char* used) {
    return GroupMemory{number_or(kNone, line_after(group + most, "")),
                       number_or(0, line_after(group + used, ""))};
  };
  const std::string mounted = root + "/sys/fs/cgroup";
  GroupMemory found;
  if (const std::string name = line_after(groups, "0::"); !name.empty()) {
    found = memory_of(mounted + name, "/memory.max", "/memory.current");
  }
  if (found.most != kNone) return found;
  const std::string name = line_after(groups, ":memory:");
  if (name.empty()) return found;
  // In a container of version 1 the name is the host's, and the group is what is mounted.
  for (const std::string& group : {mounted + "/memory" + name, mounted + "/memory"}) {
    found = memory_of(group, "/memory.limit_in_bytes", "/memory.usage_in_bytes");
    if (found.most != kNone) return found;
  }
  return found;
}

}  // namespace

std::uint64_t memory_left(const std::string& root) {
  const GroupMemory group = group_memory(root);
  return std::min(meminfo(root, "MemAvailable:"), group.most - std::min(group.most, group.used));
}

std::uint64_t memory_limit(const std::string& root) {
  return std::min(meminfo(root, "MemTotal:"), group_memory(root).most);
}

std::uint64_t disk_reads() {
  struct rusage used {};
  return ::getrusage(RUSAGE_THREAD, &used) == 0 ? static_cast<std::uint64_t>(used.ru_inblock) : 0;
}

std::uint64_t page_faults() {
  struct rusage used {};
  return ::getrusage(RUSAGE_THREAD, &used) == 0 ? static_cast<std::uint64_t>(used.ru_minflt) : 0;
}

void lower_priority() {
  constexpr int kNice = 10;
  const auto me = static_cast<id_t>(::syscall(SYS_gettid));
  // If it cannot be known (-1), it counts as the usual one.
  if (::getpriority(PRIO_PROCESS, me) >= kNice) return;
  static_cast<void>(::setpriority(PRIO_PROCESS, me, kNice));
}

std::uint64_t random_id() {
  std::uint64_t id = 0;
  if (::syscall(SYS_getrandom, &id, sizeof id, 0) != sizeof id) {
    struct timespec now {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    id = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'007u +
         static_cast<std::uint64_t>(now.tv_nsec) * 6364136223846793005u +
         static_cast<std::uint64_t>(::getpid());
  }
  return id | 1;
}

}  // namespace TENUTO_NS::pm
