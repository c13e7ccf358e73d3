// The threads of a life: the main one and others, which rest while they have nothing to do.
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

  // On that thread, and waits; thread 0 is the caller.
  void run(unsigned thread, const std::function<void()>& work);
  // At once, each on the thread of its number; waits for all. Empty work is none. With gusts that
  // stop a thread for up to so long (gusts.h).
  void run_all(const std::vector<std::function<void()>>& work, std::uint64_t gusts_us,
               std::uint64_t seed);
  // The thread ends; another one takes its number when there is work for it.
  void end(unsigned thread);
  // The threads stay as they are, resting, for good: the process is about to end.
  void abandon();

 private:
  struct Worker {
    std::mutex mu;
    std::condition_variable turn;
    std::function<void()> work;  // guarded by mu
    bool ends = false;           // "
    std::thread thread;
  };
  void start(unsigned thread, const std::function<void()>& work);
  void wait(unsigned thread);

  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace tenuto::life
