// Descriptors, and files that have no name until they are whole; see os.h.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

#include "pm/os.h"
#include "pm/plant.h"
#include "pm/unfinished.h"

namespace TENUTO_NS::pm {

std::string directory_of(std::string_view path) {
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

std::string real_path(const std::string& path) {
  const auto resolved = [](const std::string& p) {
    const std::unique_ptr<char, decltype(&std::free)> r(::realpath(p.c_str(), nullptr), &std::free);
    return std::string(r != nullptr ? r.get() : "");
  };
  if (TENUTO_PLANT("journal_path_not_resolved")) return path;
  if (std::string whole = resolved(path); !whole.empty()) return whole;
  const auto slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string folder = resolved(directory_of(path));
  if (folder.empty()) return path;
  return folder == "/" ? folder + name : folder + "/" + name;
}

namespace {

constexpr int kFirstOfOurs = STDERR_FILENO + 1;

std::string by_descriptor(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

bool same_file(int fd, int other) {
  struct stat a {};
  struct stat b {};
  return ::fstat(fd, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

int above_standard(int fd) {
  if (fd < 0 || fd >= kFirstOfOurs || TENUTO_PLANT("pm_low_descriptor_kept")) return fd;
  const int higher = ::fcntl(fd, F_DUPFD_CLOEXEC, kFirstOfOurs);
  const int error = errno;
  ::close(fd);
  errno = error;
  return higher;
}

}  // namespace

int open_file(const std::string& path, int flags, unsigned mode) {
  const NotCancelled whole;
  return above_standard(::open(path.c_str(), flags | O_CLOEXEC, mode));
}

int reopen_file(int fd, const std::string& path, int flags) {
  int again = open_file(by_descriptor(fd), flags);
  if (again >= 0 || errno != ENOENT) return again;
  again = open_file(path, flags | O_NONBLOCK);
  if (again < 0 || same_file(fd, again)) return again;
  close_all({&again});
  errno = ESTALE;
  return -1;
}

int make_nameless(const std::string& path, unsigned mode, std::string& hidden) {
  hidden.clear();
  int fd = -1;
  errno = EOPNOTSUPP;
  if (::access("/proc/self/fd", F_OK) == 0 && !TENUTO_PLANT("pm_no_nameless_files")) {
    fd = open_file(directory_of(path), O_TMPFILE | O_RDWR, mode);
  } else {
    errno = EOPNOTSUPP;
  }
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
    remove_unfinished(path);
    hidden = unfinished_name(path);
    fd = open_file(hidden, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR, mode);
    if (fd < 0) hidden.clear();
  }
  // The mode as asked, without the umask. It fails on a file system that has no modes.
  if (fd >= 0) static_cast<void>(::fchmod(fd, mode));
  return fd;
}

bool give_name(int fd, std::string& hidden, const std::string& path) {
  if (hidden.empty()) {
    return ::linkat(AT_FDCWD, by_descriptor(fd).c_str(), AT_FDCWD, path.c_str(),
                    AT_SYMLINK_FOLLOW) == 0;
  }
  if (::renameat2(AT_FDCWD, hidden.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
    // Another maker of `path` removed this file, which looked left over.
    if (errno == ENOENT && ::access(path.c_str(), F_OK) == 0) errno = EEXIST;
    return false;
  }
  hidden.clear();
  return true;
}

bool is_name_of(const std::string& path, int fd) {
  struct stat named {};
  struct stat open {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(fd, &open) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

void remove_name(const std::string& path, int fd) {
  if (is_name_of(path, fd)) ::unlink(path.c_str());
}

bool give_lasting_name(int fd, std::string& hidden, const std::string& path) {
  int dir = open_file(directory_of(path), O_RDONLY | O_DIRECTORY);
  if (dir < 0) return false;
  const bool named = give_name(fd, hidden, path);
  const bool lasts = named && sync_whole(dir);
  const int error = errno;
  if (named && !lasts && !TENUTO_PLANT("pm_name_kept_that_may_not_last")) remove_name(path, fd);
  close_all({&dir});
  errno = error;
  return lasts;
}

}  // namespace TENUTO_NS::pm
