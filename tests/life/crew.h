// The threads of a life: the main thread, and others that rest while they have no work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tenuto::life {

class Crew {
 public:
  explicit Crew(unsigned threads) : workers_(threads) {}
  ~Crew();

  // Runs work on that thread, and waits for it. Thread 0 is the caller.
  void run(unsigned thread, const std::function<void()>& work);
  // Runs each work at once, on the thread of its index, and waits for all. An empty function is no
  // work. `gusts_us`: gusts stop threads for up to so long (gusts.h).
  void run_all(const std::vector<std::function<void()>>& work, std::uint64_t gusts_us,
               std::uint64_t seed);
  // Ends the thread. A new thread takes its number when there is work for it.
  void end(unsigned thread);
  // Leaves the threads resting for good, because the process is about to end.
  void abandon();

 private:
  struct Worker {
    std::mutex mu;
    std::condition_variable turn;
    std::function<void()> work;  // guarded by mu
    bool ends = false;           // guarded by mu
    std::thread thread;
  };
  void start(unsigned thread, const std::function<void()>& work);
  void wait(unsigned thread);

  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace tenuto::life
