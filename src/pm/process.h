// Which process a pool belongs to. A child of fork inherits the mappings, the descriptors and the
// objects of its parent's pools, and none of its threads: whatever it did to them would be done to
// the parent's pool, or wait for a thread that is not there. So a pool remembers the process that
// opened it, and every call asks whether it still is in that process (forked() of PoolFile): in a
// child nothing is done to the pool, Status::forked is said, and what the parent's objects hold is
// left as it lies. A child may open the pool anew once its parent has closed it.
//
// How a child is known: the process's number stands on a page that the kernel empties in every
// child that has memory of its own (MADV_WIPEONFORK), however it was made: fork, or clone as a bare
// system call. Numbers are counted and never used again among a process and its ancestors, which
// process ids may be.
//
// What needs pthread_atfork, hence fork of the C library, which a bare clone is not: descriptors of
// the parent's pools are closed in the child, so that the lock of a pool does not outlive the
// parent there; shared mappings become read-only, so that a store of the child through a pointer of
// the program ends the child and does not change the parent's pool; and the locks of the library
// that no pool owns are held over the fork, so that the child finds them free, and what they guard
// whole. exec, vfork and posix_spawn need none of this: descriptors are O_CLOEXEC, and no code of
// ours runs.
//
// A fork may come while other threads open and close pools. So whatever a child has to let go of is
// changed under one of those locks (OfProcess::change): a descriptor is opened together with the
// member that names it, and closed together with it. Until the handler has run, and in a bare clone
// as long as it lives, the child has the parent's descriptors, and with them its locks: a parent
// that closes a pool unlocks it, and does not leave that to the last descriptor. Only a parent that
// is killed cannot: for the moment until its child's handler has run the pool is busy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

struct alignas(kFrameBytes) ProcessPage {
  std::atomic<std::uint64_t> number = 0;  // 0: not given yet
};
extern constinit ProcessPage process_page;

// The calling process's number, given now if it has none. Never 0.
std::uint64_t this_process();
// Whether `number` was given to this process. Cost: one load.
inline bool is_this_process(std::uint64_t number) {
  return process_page.number.load(std::memory_order_relaxed) == number;
}

void let_go_in_child();

// Something that a child must let go of. Made and destroyed by any thread. Its class is final,
// joins at the end of its constructor and parts when nothing is left to let go of: what is still
// being made, or destroyed, has no let_go to be called.
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
  // No fork comes in between: what let_go goes by is changed so. f is short.
  template <class F>
  static void change(const F& f);

 private:
  friend void let_go_in_child();
  // Called once in a child, which has a single thread, by fork: takes no lock and frees nothing.
  virtual void let_go() = 0;

  const std::uint64_t process_;
  // Guarded by process_locks.owned.
  bool joined_ = false;
  OfProcess* next_ = nullptr;
  OfProcess** before_ = nullptr;  // what points to this
  bool gone_ = false;
};

// To be called in a child of fork, once for the process: as OfProcess::let_go. REQUIRES: there are
// fewer than eight of them.
void call_in_child(void (*f)());

// What a child may neither use nor destroy, for it would meet locks that nobody holds any more:
// kept, so that nobody takes it for lost. REQUIRES: a child.
void abandon(void* object);

// The locks that no pool owns, in the order in which they are taken. All are held over a fork.
struct ProcessLocks {
  std::mutex readers;   // store/tree/epoch.cc
  std::mutex open;      // lane.cc
  std::mutex regions;   // media.cc
  std::mutex models;    // media.cc
  std::mutex mappings;  // bus_error.cc
  std::mutex owned;     // process.cc
};
extern constinit ProcessLocks process_locks;

template <class F>
void OfProcess::change(const F& f) {
  const std::lock_guard lock(process_locks.owned);
  f();
}

}  // namespace TENUTO_NS::pm
