// Retries after conflict or expired: of transactions (transaction.cc), and of writes that are
// transactions inside (collection_write.cc, store.cc).
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "pm/not_cancelled.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

class Attempts {
 public:
  static constexpr unsigned kMax = 1000;

  explicit Attempts(unsigned max = kMax) : max_(max) {}

  // Whether to try again after this status. Waits before it returns true. The wait is random, so
  // that writers that collided part; its bound doubles each time, up to 1024 us.
  bool again_after(Status s) {
    const bool lost = s == Status::conflict || s == Status::expired;
    if (!lost || ++done_ >= max_) return false;
    wait();
    return true;
  }

 private:
  void wait() const {
    constexpr unsigned kDoublings = 10;
    thread_local std::minstd_rand rng(
        static_cast<unsigned>(std::hash<std::thread::id>{}(std::this_thread::get_id())));
    const unsigned us = static_cast<unsigned>(rng()) % (1u << std::min(done_, kDoublings));
    if (us == 0) {
      std::this_thread::yield();
    } else {
      const pm::NotCancelled whole;
      std::this_thread::sleep_for(std::chrono::microseconds(us));
    }
  }

  const unsigned max_;
  unsigned done_ = 0;
};

}  // namespace TENUTO_NS::store
