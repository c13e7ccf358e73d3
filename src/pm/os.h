// The system calls a pool file needs, with errno turned into Status and words. Called by
// pool_file*.cc only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tenuto/status.h"

namespace tenuto::inline TENUTO_ABI::pm {

// The status that an errno means to a caller of open, write or allocate.
Status status_of_errno(int error);

// Fills the report with "what: strerror(error)" and returns status_of_errno(error).
Status fail_errno(int error, std::string_view what, std::string_view where, Report* report);

// Takes the open-file-description lock on the whole file; busy when somebody else has it.
Status lock_file(int fd, bool exclusive, std::string_view path, Report* report);

// Makes the file `to` bytes long with the space of [from, to) reserved, so that no store into the
// mapping can fail for want of space. full when the file system has no room.
Status reserve_space(int fd, std::uint64_t from, std::uint64_t to, std::string_view path,
                     Report* report);

bool is_in_memory(int fd);     // tmpfs or ramfs
bool grants_map_sync(int fd);  // a mapping whose stores need no sync but their lines' flush

std::string directory_of(std::string_view path);

}  // namespace tenuto::inline TENUTO_ABI::pm
