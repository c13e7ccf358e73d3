// Loops over independent parts, for what opens a pool. Called by journal_replay.cc and
// journal_lines.cc.
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

namespace tenuto::inline TENUTO_ABI::pm {

// f(i) for each i below n, on so many cores (0: all; 1: on the caller's thread).
template <class F>
void parallel_each(std::size_t n, unsigned threads, const F& f) {
  if (threads == 1 || n < 2) {
    for (std::size_t i = 0; i < n; ++i) f(i);
    return;
  }
  tbb::task_arena arena(threads == 0 ? tbb::task_arena::automatic : static_cast<int>(threads));
  arena.execute([&] { tbb::parallel_for(std::size_t{0}, n, f); });
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

}  // namespace tenuto::inline TENUTO_ABI::pm
