// The system calls a pool file and its journal need, with errno turned into Status and words. Calls
// that a signal interrupted are made again, so often that only a stream of signals without end is
// an error.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tenuto/status.h"

namespace TENUTO_NS::pm {

inline constexpr unsigned kInterruptionsMax = 100'000;  // of one call

// `call` until it is not interrupted any more.
template <class F>
auto uninterrupted(const F& call) {
  auto rc = call();
  for (unsigned n = 0; rc < 0 && errno == EINTR && n < kInterruptionsMax; ++n) rc = call();
  return rc;
}

// The status that an errno means to a caller of open, write or allocate.
Status status_of_errno(int error);

// Fills the report with "what: strerror(error)" and returns status_of_errno(error).
Status fail_errno(int error, std::string_view what, std::string_view where, Report* report);

// Takes the open-file-description lock on the whole file; busy when somebody else has it.
Status lock_file(int fd, bool exclusive, std::string_view path, Report* report);

// Gives it up, also where a child inherited the descriptor.
void unlock_file(int fd);

// Closes those that are open, and says so: -1.
void close_all(std::initializer_list<int*> fds);

// Makes the file `to` bytes long with the space of [from, to) reserved, so that no store into the
// mapping can fail for want of space. full when the file system has no room.
Status reserve_space(int fd, std::uint64_t from, std::uint64_t to, std::string_view path,
                     Report* report);

// Writes all of it at `offset`; false, with errno, when that failed. What the system wrote a part
// of is gone on with from a multiple of `granule`: a write past the page cache must begin at one.
bool write_all(int fd, std::uint64_t offset, const void* data, std::size_t bytes,
               std::size_t granule = 1);
// As many bytes as were there: fewer where the file ends (errno is 0) or a read failed (errno).
std::size_t read_all(int fd, std::uint64_t offset, void* to, std::size_t bytes);
bool sync_data(int fd);   // fdatasync
bool sync_whole(int fd);  // fsync

bool is_in_memory(int fd);     // tmpfs or ramfs
bool grants_map_sync(int fd);  // a mapping whose stores need no sync but their lines' flush

std::string directory_of(std::string_view path);
// Where a path leads, links resolved; of a file that is not there, its folder's and its name.
std::string real_path(const std::string& path);

// --- descriptors and names -----------------------------------------------------------------------

// open(2), closed on exec, and never one of the three that printf and its like write to, whatever
// the program has closed.
int open_file(const std::string& path, int flags, unsigned mode = 0);
// What an open descriptor leads to, opened once more.
int reopen_file(int fd, int flags);

// A file of our own that has no name until it is whole, so that a crash leaves nothing behind; the
// name it gets never replaces anything. Where a file system has no such files it gets a hidden name
// of its own first (`hidden`), taken exclusively, and what is left over of such is removed
// (unfinished.h). To be locked at once.
int make_nameless(const std::string& path, unsigned mode, std::string& hidden);
bool give_name(int fd, std::string& hidden, const std::string& path);
// Whether that name, itself no link, is this file.
bool is_name_of(const std::string& path, int fd);
// Removes the name if it is this file's.
void remove_name(const std::string& path, int fd);
bool sync_directory(const std::string& path);  // the one that the file's name is in

std::uint64_t random_id();  // never 0

}  // namespace TENUTO_NS::pm
