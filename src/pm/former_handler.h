// A signal handler of the library that passes on what is not its own to the handler that was there
// before (bus_error.cc, closed_pools.cc).
#pragma once

#include <csignal>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

class FormerHandler {
 public:
  using Handler = void (*)(int, siginfo_t*, void*);

  // Puts `handler` in the place of the program's. It stays, and has the mask and the nesting of the
  // former one. REQUIRES: called once.
  void replace(int number, Handler handler) {
    // The old handler is read first, so that it is known before the first signal.
    ::sigaction(number, nullptr, &former_);
    struct sigaction ours {};
    ours.sa_sigaction = handler;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | (former_.sa_flags & SA_NODEFER);
    ours.sa_mask = former_.sa_mask;
    ::sigaction(number, &ours, nullptr);
  }

  // For handlers. An access that no handler mends repeats when this returns, and ends the process
  // as by default.
  void call(int number, siginfo_t* info, void* context) const {
    const bool of_an_access = info->si_code > 0;  // not sent by kill or raise
    const bool once = (static_cast<unsigned>(former_.sa_flags) & SA_RESETHAND) != 0;
    const bool none = (former_.sa_flags & SA_SIGINFO) == 0 &&
                      (former_.sa_handler == SIG_DFL || former_.sa_handler == SIG_IGN);
    if (none && former_.sa_handler == SIG_IGN && !of_an_access) return;
    if (once || none) {
      struct sigaction otherwise {};
      otherwise.sa_handler = SIG_DFL;
      ::sigaction(number, &otherwise, nullptr);
    }
    if (none) {
      if (!of_an_access) static_cast<void>(::raise(number));
      return;
    }
    if ((former_.sa_flags & SA_SIGINFO) != 0) return former_.sa_sigaction(number, info, context);
    former_.sa_handler(number);
  }

 private:
  struct sigaction former_ {};  // constant once the handler is there
};

}  // namespace TENUTO_NS::pm
