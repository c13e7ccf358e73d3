// See regular.h.
#include "file/regular.h"

#include <cerrno>

#include "pm/os.h"

namespace TENUTO_NS::pm {
namespace {

const char* other_kind(mode_t mode) {
  if (S_ISDIR(mode)) return "this is a directory, not a pool";
  if (S_ISFIFO(mode)) return "this is a pipe, not a pool";
  if (S_ISSOCK(mode)) return "this is a socket, not a pool";
  return S_ISREG(mode) ? nullptr : "this is a device, not a pool";
}

Status check_kind(const struct stat& st, const std::string& path, Report* report) {
  const char* const other = other_kind(st.st_mode);
  return other == nullptr ? Status::ok : fail(Status::not_a_pool, report, other, path);
}

}  // namespace

Status expect_regular(const std::string& path, Report* report) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? check_kind(st, path, report) : Status::ok;
}

Status look_at_regular(int fd, const std::string& path, struct stat& st, Report* report) {
  if (::fstat(fd, &st) == 0) return check_kind(st, path, report);
  return fail_errno(errno, "cannot look at the pool file (fstat)", path, report);
}

}  // namespace TENUTO_NS::pm
