// Buffered output and atomic files. See output.h.
#include "output.h"

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <random>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tenuto::tool {
namespace {

constexpr std::size_t kBufferBytes = 256u << 10;

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string by_descriptor(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// The new bytes are in a nameless file until they are complete and durable, so a killed process
// leaves nothing. Where nameless files are not supported, they are in a temporary file.
class AtomicFile final : public Output {
 public:
  AtomicFile(int fd, std::string temporary, std::string path)
      : Output(fd, path), temporary_(std::move(temporary)), path_(std::move(path)) {}
  ~AtomicFile() override {
    close(fd_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }

  Error finish() override {
    TENUTO_TOOL_TRY(flush());
    if (fsync(fd_) != 0) return os_failed(errno, "cannot write to the device", path_);
    if (temporary_.empty()) {
      // Only rename replaces an existing file, and it needs a name.
      const std::string name = temporary_name(path_);
      if (linkat(AT_FDCWD, by_descriptor(fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) !=
          0) {
        return os_failed(errno, "cannot give the finished file a name", path_);
      }
      temporary_ = name;
    }
    TENUTO_TOOL_TRY(rename_durably(temporary_, path_));
    temporary_.clear();
    return no_error();
  }

 private:
  std::string temporary_;  // empty: the file is nameless, or has its final name
  std::string path_;
};

class SpecialFile final : public Output {
 public:
  using Output::Output;
  ~SpecialFile() override { close(fd_); }
};

}  // namespace

Output::Output(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

void Output::write(std::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes.size() >= kBufferBytes) {
    drain(buffer_);
    buffer_.clear();
    drain(bytes);
    return;
  }
  buffer_ += bytes;
  if (buffer_.size() >= kBufferBytes) {
    drain(buffer_);
    buffer_.clear();
  }
}

void Output::drain(std::string_view bytes) {
  while (!bytes.empty() && error_number_ == 0) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR) {
      error_number_ = errno;
    }
  }
}

Error Output::flush() {
  drain(buffer_);
  buffer_.clear();
  if (error_number_ != 0) return os_failed(error_number_, "cannot write", name_);
  return no_error();
}

Error Output::finish() { return flush(); }

namespace {
// Never returns a standard descriptor: messages go there, even if it was closed.
int open_output(const std::string& path, int flags, mode_t mode = 0) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return higher;
}

int open_nameless(const std::string& path) {
  if (access("/proc/self/fd", F_OK) != 0) return -1;
  return open_output(folder_of(path), O_WRONLY | O_TMPFILE, 0666);
}
}  // namespace

Error open_file_output(const std::string& path, std::unique_ptr<Output>& out) {
  struct stat old {};
  const bool is_there = stat(path.c_str(), &old) == 0;
  if (is_there && S_ISDIR(old.st_mode)) return os_failed(EISDIR, "cannot write the file", path);
  if (is_there && !S_ISREG(old.st_mode)) {
    const int fd = open_output(path, O_WRONLY);
    if (fd < 0) return os_failed(errno, "cannot open for writing", path);
    out = std::make_unique<SpecialFile>(fd, path);
    return no_error();
  }
  std::string target = path;
  if (is_there) {
    // A symbolic link still points to the file; only the contents change.
    char resolved[PATH_MAX];
    if (realpath(path.c_str(), resolved) != nullptr) target = resolved;
    if (access(target.c_str(), W_OK) != 0) return os_failed(errno, "cannot write the file", path);
  }
  std::string temporary;
  int fd = open_nameless(target);
  if (fd < 0) temporary = temporary_name(target);
  if (fd < 0) fd = open_output(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (fd < 0) return os_failed(errno, "cannot create the file", path);
  out = std::make_unique<AtomicFile>(fd, std::move(temporary), std::move(target));
  if (is_there && fchmod(fd, old.st_mode & 0777) != 0) {
    return os_failed(errno, "cannot keep the mode of the file", path);
  }
  return no_error();
}

Error write_to_device(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return os_failed(errno, "cannot open the file", path);
  const int error_number = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (error_number == 0) return no_error();
  return os_failed(error_number, "cannot write the file to the device", path);
}

Error rename_durably(const std::string& from, const std::string& path) {
  if (rename(from.c_str(), path.c_str()) != 0) {
    return os_failed(errno, "cannot rename the finished file to its name", path);
  }
  const int folder = open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return os_failed(errno, "cannot open the folder", folder_of(path));
  const int error_number = fsync(folder) == 0 ? 0 : errno;
  close(folder);
  // Some file systems cannot sync a folder. The rename cannot be made more durable there.
  if (error_number != 0 && error_number != EINVAL) {
    return os_failed(error_number, "cannot write the folder to the device", folder_of(path));
  }
  return no_error();
}

namespace {
// What fits into a name beside the rest of a temporary one.
std::string shown_part(const std::string& base) { return base.substr(0, NAME_MAX - 22); }
// Includes a checksum of the name, so that no other file has such a name by chance.
std::string with_checksum(const std::string& base, std::uint32_t id) {
  std::uint32_t sum = 2166136261u ^ id;
  for (const char c : base) sum = (sum ^ static_cast<unsigned char>(c)) * 16777619u;
  return fmt::format(".{}.{:08x}{:08x}.new", shown_part(base), id, sum);
}
std::size_t base_at(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? 0 : slash + 1;
}
}  // namespace

std::string temporary_name(const std::string& path) {
  std::random_device random;
  return path.substr(0, base_at(path)) + with_checksum(path.substr(base_at(path)), random());
}

bool is_temporary_name(const std::string& name, const std::string& path) {
  const std::string base = path.substr(base_at(path));
  const std::size_t shown = shown_part(base).size();
  const std::size_t id_at = shown + 2;
  if (name.size() < id_at + 8 || name.compare(1, shown, base, 0, shown) != 0) return false;
  std::uint32_t id = 0;
  const char* first = name.data() + id_at;
  if (std::from_chars(first, first + 8, id, 16).ptr != first + 8) return false;
  return with_checksum(base, id) == name;
}

}  // namespace tenuto::tool
