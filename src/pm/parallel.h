// Loops over independent parts, for what opens a pool and what loads a collection.
#pragma once

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "pm/no_memory.h"
#include "tenuto/abi.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

inline constexpr const char* kNoThreadHere =
    "the system has no thread to give: raise the process's limit of threads, or set "
    "recovery_threads to 1";

// work(parallel) with an arena of so many threads (0: as many as cores) for oneTBB's loops in it;
// 1: work(false) on the caller's thread. io: oneTBB wanted a thread, and the system had none. Then
// work did not come to its end, and what it made is to be thrown away.
template <class Work>
Status in_arena(unsigned threads, const Work& work) {
  if (threads == 1) return work(false);
  Status s = Status::ok;
  const bool had = started_threads([&] {
    tbb::task_arena arena(threads == 0 ? tbb::task_arena::automatic : static_cast<int>(threads));
    s = arena.execute([&] { return work(true); });
  });
  return had ? s : Status::io;
}

// f(i) for each i below n; in no order. io: as above.
template <class F>
Status parallel_each(std::size_t n, unsigned threads, const F& f) {
  return in_arena(n < 2 ? 1 : threads, [&](bool parallel) {
    if (parallel) {
      tbb::parallel_for(std::size_t{0}, n, f);
    } else {
      for (std::size_t i = 0; i < n; ++i) f(i);
    }
    return Status::ok;
  });
}

// The same for parts that wait for a device more than they work: more threads than cores, so that
// it has several requests at a time. 1: on the caller's thread. Fewer where the system has no more
// to give. An allocation that fails in a part fails here, when all threads are done.
template <class F>
void waiting_each(std::size_t n, unsigned threads, const F& f) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> without_memory = false;
  const auto take = [&] {
    const bool all = had_memory([&] {
      for (std::size_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) f(i);
    });
    if (all) return;
    without_memory.store(true);
    next.store(n);
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min<std::size_t>(n, threads); ++i) {
    if (!had_thread([&] { others.emplace_back(take); })) break;
  }
  take();
  for (std::thread& t : others) t.join();
  if (without_memory.load()) throw_bad_alloc();
}

}  // namespace TENUTO_NS::pm
