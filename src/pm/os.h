// The system calls that a pool file and its journal need, with errno turned into a Status and
// words. An interrupted call (EINTR) is repeated up to kInterruptionsMax times, so that only an
// endless stream of signals is an error. None is a cancellation point.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "pm/not_cancelled.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

inline constexpr unsigned kInterruptionsMax = 100'000;  // of one call

// Repeats `call` until it is not interrupted.
template <class F>
auto uninterrupted(const F& call) {
  const NotCancelled whole;
  auto rc = call();
  for (unsigned n = 0; rc < 0 && errno == EINTR && n < kInterruptionsMax; ++n) rc = call();
  return rc;
}

// The Status for the errno of an open, a write or an allocation.
Status status_of_errno(int error);

// Fills the report with "what: strerror(error)" and returns status_of_errno(error).
Status fail_errno(int error, std::string_view what, std::string_view where, Report* report);

// Takes the open-file-description lock on the whole file. busy: another open has it.
Status lock_file(int fd, bool exclusive, std::string_view path, Report* report);

// Releases the lock, even if a child inherited the descriptor.
void unlock_file(int fd);

// Closes those that are open, and sets all to -1.
void close_all(std::initializer_list<int*> fds);

// Reserves the space of [from, to), so that no store into the mapping can fail for want of space. A
// shorter file becomes `to` bytes long. full: the file system has no room, or the process may make
// no larger file (without its signal SIGXFSZ).
Status reserve_space(int fd, std::uint64_t from, std::uint64_t to, std::string_view path,
                     Report* report);

// Writes all bytes at `offset`. False, with errno, on failure. After a short write it continues at
// a multiple of `granule`, because a write past the page cache must begin at one. EIO: repeated
// short writes made no progress.
bool write_all(int fd, std::uint64_t offset, const void* data, std::size_t bytes,
               std::size_t granule = 1);
// Returns the bytes read: fewer where the file ends (errno is 0) or a read failed (errno).
std::size_t read_all(int fd, std::uint64_t offset, void* to, std::size_t bytes);
bool sync_data(int fd);   // fdatasync
bool sync_whole(int fd);  // fsync

// Private pages of zeros, which take memory when they are touched: also where the program locks
// what it maps (mlockall), which would fill all of them at once. Null, with errno: the system
// refuses.
void* map_zeros(std::uint64_t bytes);

bool is_in_memory(int fd);     // tmpfs or ramfs
bool grants_map_sync(int fd);  // MAP_SYNC: a flushed line needs no sync of the file

// Asks the kernel to put the file's pages behind [at, at + bytes) into large ones, now
// (MADV_COLLAPSE). Pages that are missing between others come back. Returns 0 or errno; whatever it
// is, the contents are the same. REQUIRES: a shared mapping; whole huge frames.
int make_large(void* at, std::size_t bytes);
// What this process has of a range of a mapped file. All 0 if that cannot be known.
struct MappedBytes {
  std::uint64_t in_memory = 0;  // in its page tables
  std::uint64_t large = 0;      // of these in large pages
  std::uint64_t dirty = 0;      // of these not yet written to the file, private ones too
  std::uint64_t own = 0;        // of these private copies, which never are
};
// Cost: the kernel looks at the page tables of the whole process (/proc/self/smaps).
MappedBytes mapped_bytes(const void* at, std::size_t bytes);
// How much memory the system says can still be had: what is available, and what the limit of the
// process's own control group (version 1 or 2) leaves. Limits of groups above it are not looked at.
// What cannot be known is no limit. `root` is where /proc and /sys are, for tests.
std::uint64_t memory_left(const std::string& root = "");
// The bytes that the process may use at most: of the machine, or of its control group.
std::uint64_t memory_limit(const std::string& root = "");
// What the calling thread has read from disks, in blocks. 0: the kernel does not count it.
std::uint64_t disk_reads();
// How often the calling thread has met a page that its process had not mapped.
std::uint64_t page_faults();
// The calling thread yields to others that want to run. It never gets a higher priority than it
// had.
void lower_priority();

std::string directory_of(std::string_view path);
// The path with its links resolved. For a file that does not exist: its resolved folder and its
// name.
std::string real_path(const std::string& path);

// --- descriptors and names -----------------------------------------------------------------------

// open(2) with O_CLOEXEC. The descriptor is always 3 or higher, even if the program closed the
// standard ones. So nothing that prints to those writes into a pool.
int open_file(const std::string& path, int flags, unsigned mode = 0);
// Opens the file of an open descriptor once more. Without /proc by `path`, which may be its
// hidden name, if that still leads to the file (ESTALE: it does not).
int reopen_file(int fd, const std::string& path, int flags);

// Makes a file that has no name until it is whole, so that a crash leaves nothing behind. give_name
// never replaces another file. On a file system without nameless files it gets a hidden name first
// (`hidden`), taken exclusively. Hidden files that a killed process left are removed then
// (unfinished.h). The caller locks the file at once.
int make_nameless(const std::string& path, unsigned mode, std::string& hidden);
bool give_name(int fd, std::string& hidden, const std::string& path);
// Whether that name is this file's, and not a link to it.
bool is_name_of(const std::string& path, int fd);
// Removes the name if it is this file's.
void remove_name(const std::string& path, int fd);
// give_name, and the name survives a power cut. On failure the file has no name: errno says why.
bool give_lasting_name(int fd, std::string& hidden, const std::string& path);

std::uint64_t random_id();  // never 0

}  // namespace TENUTO_NS::pm
