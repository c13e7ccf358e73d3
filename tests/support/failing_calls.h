// System calls that fail on request, for tests of what the library does then. The program that
// links failing_calls.cc has these calls in place of libc's: open, fallocate, posix_fallocate,
// fdatasync, fsync, msync, pread, fstat, fcntl (locks), linkat, and mmap of files. Without a plan
// they do what they always do. fstatfs says that no file lies in memory, so that calls for real
// devices are made in /dev/shm, too.
#pragma once

#include <string>

namespace tenuto::test {

// The n-th of these calls that the calling thread makes from now on (from 1) fails with this errno.
// `lasting`: all later ones of the same name as well, as a full or broken device would.
void fail_call(int n, int error, bool lasting);
// Ends the plan. Whether a call failed, and its name.
bool failed_call(std::string* name);

}  // namespace tenuto::test
