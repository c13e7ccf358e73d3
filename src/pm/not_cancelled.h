// Calls of the library are no cancellation points. A thread that pthread_cancel ended in a system
// call, or while it waits for another thread, would end in the middle of a change: others would
// wait forever for what it leads, and a handle would not know what was done. So it ends at the next
// cancellation point of the program.
#pragma once

#include <pthread.h>

#include "pm/plant.h"
#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// The calling thread is not cancelled as long as this lives. It is around each call of the C
// library that is a cancellation point (pthreads(7)), also those that functions of the standard
// library make: waits on a condition variable, joins, sleeps, files. Costs nanoseconds.
class NotCancelled {
 public:
  NotCancelled() {
    if (!TENUTO_PLANT("pm_calls_are_cancelled")) {
      ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
    }
  }
  ~NotCancelled() { ::pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace TENUTO_NS::pm
