// Parallel loops over independent parts, for opening a pool and for loading a collection.
#pragma once

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "pm/no_memory.h"
#include "pm/not_cancelled.h"
#include "pm/sanitizer.h"
#include "pm/thread.h"
#include "tenuto/abi.h"
#include "tenuto/persist.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

inline constexpr const char* kNoThreadHere =
    "the system has no thread to give: raise the process's limit of threads, or set "
    "recovery_threads to 1";

// ThreadSanitizer does not see how oneTBB's library orders what it does: whatever a task gets and
// leaves would be a race. In its build loops run on threads that it sees, and work() on the
// caller's alone. In the traced build the sanitizer's calls are the tracing's.
inline constexpr bool kThreadsChecked = TENUTO_TSAN && !kTraced;

// Calls work(true) in an arena of `threads` threads (0: one a core), for the oneTBB loops in it.
// With threads == 1: calls work(false) on the caller's thread. io: oneTBB needed a thread, and the
// system had none. Then work is incomplete, and the caller discards what it made.
template <class Work>
Status in_arena(unsigned threads, const Work& work) {
  if (threads == 1 || kThreadsChecked) return work(false);
  Status s = Status::ok;
  const bool had = started_threads([&] {
    // oneTBB may start threads, which work for the program later. It opens files at its first use.
    const MetadataClosed closed;
    const NotCancelled whole;
    tbb::task_arena arena(threads == 0 ? tbb::task_arena::automatic : static_cast<int>(threads));
    s = arena.execute([&] { return work(true); });
  });
  return had ? s : Status::io;
}

// Calls f(i) for each i < n, in any order, where parts mostly wait for a device. It uses more
// threads than cores, so that the device has several requests at a time, and fewer if the system
// has no more to give. With threads == 1 everything runs on the caller's thread. If an allocation
// fails in a part, this throws when all threads are done.
template <class F>
void waiting_each(std::size_t n, unsigned threads, const F& f) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> without_memory = false;
  const auto take = [&] {
    const MetadataOpen rights;
    const bool all = had_memory([&] {
      for (std::size_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) f(i);
    });
    if (all) return;
    without_memory.store(true);
    next.store(n);
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min<std::size_t>(n, threads); ++i) {
    // In its place at once: a thread that runs cannot be given up when the vector has no memory.
    const SignalsBlocked blocked;
    const MetadataClosed closed;
    if (!had_thread([&] { others.emplace_back(take); })) break;
  }
  take();
  for (std::thread& t : others) join(t);
  if (without_memory.load()) throw_bad_alloc();
}

// Calls f(i) for each i < n, in any order. io: the system had no thread, as in in_arena.
template <class F>
Status parallel_each(std::size_t n, unsigned threads, const F& f) {
  if (kThreadsChecked && n >= 2 && threads != 1) {
    waiting_each(n, threads == 0 ? std::thread::hardware_concurrency() : threads, f);
    return Status::ok;
  }
  return in_arena(n < 2 ? 1 : threads, [&](bool parallel) {
    if (parallel) {
      tbb::parallel_for(std::size_t{0}, n, [&f](std::size_t i) {
        const MetadataOpen rights;
        f(i);
      });
    } else {
      for (std::size_t i = 0; i < n; ++i) f(i);
    }
    return Status::ok;
  });
}

}  // namespace TENUTO_NS::pm
