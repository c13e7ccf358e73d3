// System calls that fail on request, for tests of what the library does then. The program that
// links failing_calls.cc has these calls in place of libc's: open, fallocate, posix_fallocate,
// fdatasync, fsync, msync, pread, pwrite, fstat, fcntl (locks), linkat, and mmap of files. Without
// a plan they do what they always do. fstatfs says that no file lies in memory, so that calls for
// real devices are made in /dev/shm, too.
#pragma once

#include <cstddef>
#include <string>

namespace tenuto::test {

// The n-th of these calls that the calling thread makes from now on (from 1) fails with this errno.
// `lasting`: all later ones of the same name as well, as a full or broken device would.
void fail_call(int n, int error, bool lasting);
// Ends the plan. Whether a call failed, and its name.
bool failed_call(std::string* name);

// The same for the calls of all threads together; `only`: those of this name.
void fail_call_anywhere(int n, int error, bool lasting, const char* only = nullptr);
bool failed_call_anywhere(std::string* name);

// Instead of an errno, for pwrite: it writes half of what it was given; no more than so many bytes.
inline constexpr int kHalfWrite = 100'000;
// The same for fallocate: it reserves half of what it was asked for, and then says ENOSPC.
inline constexpr int kHalfSpace = 100'010;
inline constexpr int kShortWrite = 100'001;
inline constexpr std::size_t kShortWriteBytes = 5000;
// Instead of an errno: SIGKILL ends the process at that call.
inline constexpr int kKillProcess = 100'002;

}  // namespace tenuto::test
