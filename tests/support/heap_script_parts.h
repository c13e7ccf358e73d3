// What the scripts of heap_scripts.cc and heap_log_scripts.cc share.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "support/heap_scripts.h"

namespace tenuto::test {

// Scripts of extents and of the bookkeeping log.
std::vector<HeapScript> heap_log_scripts();

// A second thread that does what it is told and lives on between.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) {}
  ~Worker() {
    run(nullptr);
    thread_.join();
  }
  void run(std::function<void()> job) {
    std::unique_lock lock(mu_);
    job_ = std::move(job);
    end_ = job_ == nullptr;
    busy_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !busy_; });
  }

 private:
  void work() {
    std::unique_lock lock(mu_);
    for (;;) {
      changed_.wait(lock, [this] { return busy_; });
      if (!end_) job_();
      busy_ = false;
      changed_.notify_all();
      if (end_) return;
    }
  }
  std::mutex mu_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool busy_ = false, end_ = false;
  std::thread thread_;
};

// Frees whatever waits: a pool of fixed size has no room for this, and looks everywhere.
inline void scavenge(HeapSession& s) {
  const std::uint64_t bytes = s.pool().file->bytes() - (1u << 20);
  EXPECT_EQ(s.pool().heap->reserve(bytes, heap::Kind::logged).error(), Status::full);
}

}  // namespace tenuto::test
