// See crash_kill_pool.h.
#include "crash_kill_pool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

namespace tenuto::tool {
namespace {

constexpr std::size_t kCopyBytes = 1u << 20;

struct Descriptor {
  int fd;
  explicit Descriptor(int n) : fd(n) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

// Keeps holes as holes.
bool copy_file(const std::string& from, const std::string& to) {
  const Descriptor in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  const Descriptor out(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  struct stat st {};
  if (in.fd < 0 || out.fd < 0 || ::fstat(in.fd, &st) != 0) return false;
  std::vector<char> buffer(kCopyBytes);
  off_t at = ::lseek(in.fd, 0, SEEK_DATA);
  while (at >= 0 && at < st.st_size) {
    const off_t hole = ::lseek(in.fd, at, SEEK_HOLE);
    while (at < hole) {
      const auto want = std::min<std::size_t>(buffer.size(), static_cast<std::size_t>(hole - at));
      const ssize_t n = ::pread(in.fd, buffer.data(), want, at);
      if (n <= 0 || ::pwrite(out.fd, buffer.data(), static_cast<std::size_t>(n), at) != n) {
        return false;
      }
      at += n;
    }
    at = ::lseek(in.fd, at, SEEK_DATA);
  }
  return ::ftruncate(out.fd, st.st_size) == 0;
}

bool write_text(const std::string& path, const std::string& text) {
  const Descriptor out(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  return out.fd >= 0 &&
         ::write(out.fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string journal_of(const std::string& pool) { return pool + ".journal"; }

// With its journal, if it has one. What is not there is not copied.
bool copy_pool(const std::string& from, const std::string& to) {
  if (!exists(from)) return true;
  if (exists(journal_of(from)) && !copy_file(journal_of(from), journal_of(to))) return false;
  return copy_file(from, to);
}

}  // namespace

KillFolder::~KillFolder() {
  if (path_.empty()) return;
  clear();
  ::rmdir(path_.c_str());
}

Error KillFolder::make(const std::string& directory) {
  std::string name = directory + "/tenuto-kill-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) return os_failed(errno, "cannot make a folder", directory);
  path_ = name;
  return no_error();
}

void KillFolder::clear() const {
  for (const std::string& path : {pool(), image()}) {
    ::unlink(path.c_str());
    ::unlink(journal_of(path).c_str());
  }
}

bool KillFolder::keep_image() const {
  // A kill during creation leaves no file, which is correct.
  return copy_pool(pool(), image());
}

std::string KillFolder::save(const std::string& findings, const KillFinding& finding,
                             std::uint64_t seed, const std::string& text) const {
  const std::string folder =
      fmt::format("{}/tenuto-kill-seed-{}-kill-{}", findings, seed, finding.kill);
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return {};
  bool saved = write_text(folder + "/finding.txt", text);
  saved = copy_pool(pool(), folder + "/pool.tnt") && saved;
  saved = copy_pool(image(), folder + "/pool-at-kill.tnt") && saved;
  return saved ? folder : std::string();
}

}  // namespace tenuto::tool
