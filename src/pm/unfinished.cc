#include "pm/unfinished.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string_view>

#include "pm/crc32c.h"
#include "pm/not_cancelled.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace TENUTO_NS::pm {

namespace {

constexpr std::string_view kMark = ".creating-";
constexpr std::size_t kDigits = 8;

std::string base_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string digits(std::uint32_t n) {
  char text[kDigits + 1];
  std::snprintf(text, sizeof text, "%08x", n);
  return text;
}

// `name`, "-" and the checksum of `name`.
std::string with_checksum(const std::string& name) {
  return name + "-" + digits(static_cast<std::uint32_t>(crc32c(name.data(), name.size())));
}

bool is_unfinished(const std::string& name, const std::string& base) {
  const std::string begin = base + std::string(kMark);
  if (!name.starts_with(begin) || name.size() != begin.size() + 2 * kDigits + 1) return false;
  return with_checksum(name.substr(0, begin.size() + kDigits)) == name;
}

}  // namespace

std::string unfinished_name(const std::string& path) {
  const std::string base = base_of(path);
  const auto id = static_cast<std::uint32_t>(random_id() >> 8);
  return path + with_checksum(base + std::string(kMark) + digits(id)).substr(base.size());
}

void remove_unfinished(const std::string& path) {
  if (TENUTO_PLANT("pm_unfinished_files_stay")) return;
  const NotCancelled whole;
  const std::string base = base_of(path);
  const std::string folder = directory_of(path);
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), ::closedir);
  if (dir == nullptr) return;  // the caller's open reports why
  while (const dirent* entry = ::readdir(dir.get())) {
    if (!is_unfinished(entry->d_name, base)) continue;
    const std::string found = folder + "/" + entry->d_name;
    const int fd = open_file(found, O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    struct stat st {};
    const bool ours = ::fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == ::geteuid() &&
                      st.st_nlink == 1;
    if (ours && lock_file(fd, true, found, nullptr) == Status::ok) remove_name(found, fd);
    ::close(fd);
  }
}

}  // namespace TENUTO_NS::pm
