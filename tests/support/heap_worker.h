// A second thread for the scripts of crash tests.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tenuto::test {

// A thread that runs one function at a time for its caller, and stays alive in between.
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

}  // namespace tenuto::test
