// Child processes of a benchmark. What is measured in one has its own memory and threads, and
// crashes alone.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <type_traits>

namespace bench {

// Runs `body` in a child process that dies with this one. Returns its id, or -1 on failure. The
// child's exit code is body's result.
pid_t start_child(const std::function<int()>& body);
// Waits for the child. Returns true if it exited with code 0; otherwise `why` has the reason. Kills
// it after `seconds_max`, or when this process is interrupted.
bool wait_child(pid_t child, unsigned seconds_max, std::string& why);
// Sleeps until the time is over, a signal arrives or the child ends. Returns false if the child
// ended.
bool child_runs_for(pid_t child, unsigned milliseconds);

// A T that a child writes and its parent reads.
template <class T>
class Shared {
 public:
  static_assert(std::is_trivially_destructible_v<T>);
  Shared()
      : at_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED) {
      std::perror("mmap");
      std::exit(1);
    }
    reset();
  }
  ~Shared() { ::munmap(at_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T& operator*() { return *value_; }
  T* operator->() { return value_; }
  void reset() { value_ = new (at_) T; }

 private:
  void* at_;
  T* value_ = nullptr;
};

}  // namespace bench
