// Starts the threads of the library (those of oneTBB are its own). They block the signals of the
// program: a program that blocks a signal, to wait for it or to read it from a descriptor, must not
// find that a thread it does not know took it, and ended the process. Signals that an instruction
// causes stay as they are: SIGBUS has a handler here (bus_error.h).
#pragma once

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <initializer_list>
#include <thread>
#include <utility>

#include "pm/metadata_key.h"
#include "pm/not_cancelled.h"
#include "pm/plant.h"
#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// Of the calling thread, as long as this lives. A thread starts with the mask of the one that
// starts it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    ::sigfillset(&blocked);
    for (const int s : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) ::sigdelset(&blocked, s);
    if (TENUTO_PLANT("pm_threads_take_signals")) ::sigemptyset(&blocked);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Throws what std::thread throws (no_memory.h).
template <class F>
std::thread new_thread(F f) {
  const SignalsBlocked blocked;
  const MetadataClosed closed;  // the thread calls functions of the program, too
  return std::thread(std::move(f));
}

// Waits for the end of a thread.
inline void join(std::thread& t) {
  const NotCancelled whole;
  t.join();
}

// Of the machine, at least 1.
// Read once in a process: the system reads a file for it.
inline unsigned cores() {
  static const unsigned n = std::max(1u, std::thread::hardware_concurrency());
  return n;
}

}  // namespace TENUTO_NS::pm
