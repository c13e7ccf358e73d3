// System calls that fail on request, to test what the library does then. A program that links
// failing_calls.cc has these calls in place of libc's: open, fallocate, posix_fallocate, fdatasync,
// fsync, msync, pread, pwrite, fstat, fcntl (locks), linkat, and mmap of files. Without a plan they
// work as usual. fstatfs reports that no file is in memory, so the library makes the calls for real
// devices in /dev/shm, too.
#pragma once

#include <cstddef>
#include <string>

namespace tenuto::test {

// The n-th of these calls by the calling thread from now on (n >= 1) fails with this errno.
// `lasting`: all later calls of the same name fail, too, as on a full or broken device.
void fail_call(int n, int error, bool lasting);
// Ends the plan. Returns whether a call failed, and its name.
bool failed_call(std::string* name);

// The same for the calls of all threads together. `only`: only calls of this name count.
void fail_call_anywhere(int n, int error, bool lasting, const char* only = nullptr);
bool failed_call_anywhere(std::string* name);

// Given instead of an errno, for pwrite: it writes about half of the bytes.
inline constexpr int kHalfWrite = 100'000;
// For fallocate: it reserves half of the bytes, and then fails with ENOSPC.
inline constexpr int kHalfSpace = 100'010;
// For pwrite: it writes at most kShortWriteBytes.
inline constexpr int kShortWrite = 100'001;
inline constexpr std::size_t kShortWriteBytes = 5000;
// For any call: it does not return, as on a device that answers no more. Calls of all threads only.
inline constexpr int kStuckCall = 100'003;
// For any call: SIGKILL ends the process there.
inline constexpr int kKillProcess = 100'002;

}  // namespace tenuto::test
