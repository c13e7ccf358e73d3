// Runs threads one at a time, with every switch chosen by a seed. So a crash test with threads
// reaches unlikely interleavings and can repeat them. Used through CrashContext::interleave. A
// switch is possible at each event where it makes a difference: stores to the watched pool, atomic
// operations, flushes, fences, mutexes (trace_tsan.cc).
//
// Threads may wait for each other with mutexes and with loops on atomics. A thread that blocks in
// anything else is passed over after a while (kPatienceNs); such a run may not repeat.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "crash/explore_states.h"
#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

class Interleaver {
 public:
  // A switch happens at one of `switch_every` events on average; 0 lets the seed choose.
  Interleaver(std::uint64_t seed, std::uint32_t switch_every);

  // Returns when all bodies have returned and their threads have ended.
  void run(const std::vector<std::function<void()>>& bodies);

  // Whether the calling thread belongs to an interleaver.
  static bool managed();
  // A point where another thread may run.
  static void point() {
    if (own_slot != nullptr) [[unlikely]]
      step(false);
  }
  // With `paused`, point() and blocked() do nothing in the calling thread. Returns the old setting.
  static bool pause(bool paused) {
    return own_slot != nullptr && std::exchange(own_slot->inside, paused);
  }
  // The calling thread cannot continue before another thread does. Runs another, if there is one.
  static void blocked() { step(true); }

 private:
  struct Slot {
    Interleaver* owner;
    std::size_t index;
    sem_t wake;
    pthread_t thread{};
    const std::function<void()>* body = nullptr;
    bool inside = false;  // inside a point, or paused
    std::atomic<bool> ended = false;
    bool joined = false;
  };
  static void step(bool must_switch);
  void hand_over(Slot& from);
  static void* play(void* slot);
  void give(std::size_t to);
  void wait(Slot& mine);
  bool choose_next(std::size_t besides, std::size_t& chosen);

  // The calling thread's slot; null in threads that run freely.
  static constinit thread_local Slot* own_slot;

  ExploreRng rng_;
  std::uint32_t switch_every_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<std::size_t> token_ = 0;
  std::atomic<std::uint64_t> steps_ = 0;
  sem_t ended_;
};

}  // namespace TENUTO_NS::pm
