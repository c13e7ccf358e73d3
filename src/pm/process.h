// Which process a pool belongs to. A child of fork inherits the mappings, descriptors and objects
// of its parent's pools, but none of its threads. What the child did with a pool would happen to
// the parent's pool, or would wait for a thread that does not exist. So a pool remembers the
// process that opened it, and every call compares it with the calling process (PoolFile::forked()).
// In a child a call does nothing to the pool and returns Status::forked; the parent's objects stay
// as they are. A child may open the pool anew once its parent has closed it.
//
// How a child is recognised: a process has a number, on a page that the kernel empties
// (MADV_WIPEONFORK) in every child with memory of its own, made by fork or by a bare clone system
// call. Numbers are counted up, and never repeat among a process and its ancestors. Process ids may
// repeat.
//
// The pthread_atfork handlers do three more things. They need fork of the C library; a bare clone
// does not run them.
//   - The child closes the descriptors of the parent's pools, so that a pool's lock does not
//     outlive the parent there.
//   - The child makes shared mappings read-only. A store of the child through a pointer of the
//     program then ends the child, and does not change the parent's pool.
//   - The locks of the library that no pool owns are held over the fork. So the child finds them
//     free, and what they guard is whole.
// exec, vfork and posix_spawn need none of this: descriptors are O_CLOEXEC, and no code of the
// library runs.
//
// A fork may come while other threads open and close pools. So everything that a child must release
// is changed under one of those locks (OfProcess::change): a descriptor is opened and closed in one
// step with the member that holds it. Until the child's handler has run, and in a bare clone until
// it ends, the child has the parent's descriptors and with them its locks. Therefore a parent that
// closes a pool unlocks it explicitly, and does not rely on the last descriptor. A parent that is
// killed cannot do so: the pool is busy until the handler of its child has run.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

struct alignas(kFrameBytes) ProcessPage {
  std::atomic<std::uint64_t> number = 0;  // 0: none yet
};
extern constinit ProcessPage process_page;

// The number of the calling process, assigned now if it has none. Never 0.
std::uint64_t this_process();
// Whether `number` is this process's. Cost: one load.
inline bool is_this_process(std::uint64_t number) {
  return process_page.number.load(std::memory_order_relaxed) == number;
}

void let_go_in_child();

// Something that a child must release. Any thread makes and destroys it. The derived class is
// final. Its constructor ends with join(), and it calls part() when nothing is left to release. So
// an object that is still being made or destroyed, on which let_go() must not be called, is not in
// the list.
class OfProcess {
 public:
  OfProcess() : process_(this_process()) {}
  OfProcess(const OfProcess&) = delete;
  OfProcess& operator=(const OfProcess&) = delete;
  // In a child of the process that made it.
  bool forked() const { return !is_this_process(process_); }

 protected:
  ~OfProcess();
  void join();
  void part();
  // Runs f with no fork in between. Everything that let_go() depends on is changed this way. f is
  // short.
  template <class F>
  static void change(const F& f);

 private:
  friend void let_go_in_child();
  // Releases it. fork calls this once in a child, which has a single thread. It takes no lock and
  // frees nothing.
  virtual void let_go() = 0;

  const std::uint64_t process_;
  // Guarded by process_locks.owned.
  bool joined_ = false;
  OfProcess* next_ = nullptr;
  OfProcess** before_ = nullptr;  // what points to this
  bool gone_ = false;
};

// Registers f for the process: fork calls it in each child, under the rules of OfProcess::let_go.
// REQUIRES: fewer than eight are registered.
void call_in_child(void (*f)());

// Keeps an object that nobody may destroy: a child, because its locks may never be released there;
// a process in which another thread works on it. It stays referenced, so that no leak checker
// reports it.
void abandon(void* object);

// The locks that no pool owns, in the order in which they are taken. All of them are held over a
// fork.
struct ProcessLocks {
  std::mutex engines;       // tx/open_engines.cc
  std::mutex steps;         // heap/large_pages.cc
  std::mutex readers;       // store/tree/epoch.cc
  std::mutex open;          // lane.cc
  std::mutex regions;       // media.cc
  std::mutex models;        // media.cc
  std::mutex mappings;      // bus_error.cc
  std::mutex owned;         // process.cc
  std::mutex metadata_key;  // metadata_key.cc
};
extern constinit ProcessLocks process_locks;

template <class F>
void OfProcess::change(const F& f) {
  const std::lock_guard lock(process_locks.owned);
  f();
}

}  // namespace TENUTO_NS::pm
