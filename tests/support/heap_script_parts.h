// What the scripts of a heap world have in common.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "support/heap_scripts.h"

namespace tenuto::test {

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

// heap_morph_scripts.cc
void add_morph_scripts(std::vector<HeapScript>& scripts);

}  // namespace tenuto::test
