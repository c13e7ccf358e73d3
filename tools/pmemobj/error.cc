#include "tools/pmemobj/error.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace TENUTO_NS::pmemobj {

namespace {
constexpr std::size_t kMessageBytes = 1024;
thread_local char message[kMessageBytes];
}  // namespace

int errno_of(Status s) {
  switch (s) {
    case Status::ok:
      return 0;
    case Status::not_found:
      return ENOENT;
    case Status::exists:
      return EEXIST;
    case Status::full:
    case Status::too_large:
      return ENOMEM;
    case Status::busy:
    case Status::conflict:
      return EAGAIN;
    case Status::permission:
      return EACCES;
    case Status::io:
    case Status::corrupt:
      return EIO;
    case Status::read_only:
      return EROFS;
    case Status::aborted:
      return ECANCELED;
    case Status::forked:
      return ENOTSUP;
    default:
      return EINVAL;
  }
}

int refuse(int error, const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::vsnprintf(message, sizeof message, format, values);
  va_end(values);
  errno = error;
  return error;
}

int refuse(Status s, const char* what, const Report& report) {
  const int error = errno_of(s);
  if (report.what.empty()) return refuse(error, "%s: %s", what, status_name(s));
  return refuse(error, "%s: %s", what, report.text().c_str());
}

int refuse(Status s, const char* what) {
  const char* const why =
      s == Status::forked ? "this process is a child of the one that opened the pool" : "";
  return refuse(errno_of(s), "%s: %s %s", what, status_name(s), why);
}

const char* last_message() { return message; }

void stop(const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::vsnprintf(message, sizeof message, format, values);
  va_end(values);
  std::fprintf(stderr, "libtenuto_pmemobj: %s\n", message);
  std::abort();
}

}  // namespace TENUTO_NS::pmemobj
