// Child processes of a benchmark: what is measured in one has its own memory, threads and crashes.
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

// Runs `body` in a child process that dies with this one; returns its id, -1 on failure. The
// child's exit code is body's result.
pid_t start_child(const std::function<int()>& body);
// How the child ended: 0 well; else a text in `why`. Interrupted or longer than `seconds_max`:
// kills it.
bool wait_child(pid_t child, unsigned seconds_max, std::string& why);
// Sleeps that a signal or the child's end cuts short. False when the child has ended.
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
