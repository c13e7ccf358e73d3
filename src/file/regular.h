// A pool is a regular file. This says what else stands in its place.
#pragma once

#include <sys/stat.h>

#include <string>

#include "tenuto/status.h"

namespace TENUTO_NS::pm {

// not_a_pool: there is a directory, a pipe, a device or a socket. Ask before the open, which might
// wait for a pipe, or make a device do something. If there is nothing, the open says so.
Status expect_regular(const std::string& path, Report* report);
// The same for what was opened. Fills `st`.
Status look_at_regular(int fd, const std::string& path, struct stat& st, Report* report);

}  // namespace TENUTO_NS::pm
