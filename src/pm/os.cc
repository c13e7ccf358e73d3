#include "pm/os.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tenuto/units.h"

namespace tenuto::inline TENUTO_ABI::pm {

namespace {
constexpr unsigned kShortWritesMax = 16;  // in a row that got no granule further
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

Status reserve_space(int fd, std::uint64_t from, std::uint64_t to, std::string_view path,
                     Report* report) {
  const auto at = static_cast<off_t>(from);
  const auto bytes = static_cast<off_t>(to - from);
  if (uninterrupted([&] { return ::fallocate(fd, 0, at, bytes); }) == 0) return Status::ok;
  // A file system without fallocate gets the blocks written, which reserves them as surely.
  const int error = errno == EOPNOTSUPP ? ::posix_fallocate(fd, at, bytes) : errno;
  if (error == 0) return Status::ok;
  return fail_errno(error, "cannot reserve " + std::to_string(to - from) + " bytes for the pool",
                    path, report);
}

bool write_all(int fd, std::uint64_t offset, const void* data, std::size_t bytes,
               std::size_t granule) {
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

std::string directory_of(std::string_view path) {
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

}  // namespace tenuto::inline TENUTO_ABI::pm
