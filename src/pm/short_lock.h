// A mutex for short critical sections. Who finds it taken tries again for about a microsecond
// before it sleeps (glibc's adaptive mutex): the kernel takes longer than that to put a thread to
// sleep and to wake it. Else as std::mutex, but it cannot be waited on by a
// std::condition_variable.
#pragma once

#include <pthread.h>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

class ShortLock {
 public:
  ShortLock() = default;
  ~ShortLock() { ::pthread_mutex_destroy(&mutex_); }
  ShortLock(const ShortLock&) = delete;
  ShortLock& operator=(const ShortLock&) = delete;

  void lock() { ::pthread_mutex_lock(&mutex_); }
  void unlock() { ::pthread_mutex_unlock(&mutex_); }
  bool try_lock() { return ::pthread_mutex_trylock(&mutex_) == 0; }

 private:
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
};

}  // namespace TENUTO_NS::pm
