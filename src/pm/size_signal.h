// The kernel sends SIGXFSZ to the thread that makes a file larger than the process may
// (RLIMIT_FSIZE), and that ends the process by default. The call also fails with EFBIG, and a
// status is what the caller of the library wants: full, as of a full file system.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <ctime>

#include "pm/not_cancelled.h"
#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// The calling thread gets no such signal as long as this lives, and none for it later. Keeps errno.
// Where the process has no such limit it costs one call of the system.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    struct rlimit most {};
    limited_ = ::getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur != RLIM_INFINITY;
    if (!limited_) return;
    ::sigemptyset(&size_);
    ::sigaddset(&size_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &size_, &before_);
  }
  ~NoSizeSignal() {
    if (!limited_) return;
    const int error = errno;
    constexpr timespec kNow{};
    while (::sigtimedwait(&size_, nullptr, &kNow) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

 private:
  NotCancelled whole_;  // sigtimedwait is a cancellation point
  bool limited_;
  sigset_t size_;
  sigset_t before_;
};

}  // namespace TENUTO_NS::pm
