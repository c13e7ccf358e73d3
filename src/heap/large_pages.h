// What a pool in memory has prepared for it by a thread: pages of 2 MiB (file/large.cc), and space
// for the next growth (file/ahead.cc). FrameSource owns this.
//
// Large pages. The thread asks the kernel to join the pages of each huge frame, the newest ones
// first: a zone that was just added will be written to next.
// Space. When less than half of a growth is free, the next growth is reserved and joined, huge
// frame by huge frame. So no call waits for that, and no join of it stops an access. A small pool
// has nothing prepared until it has grown once.
//
// Both are hints. The contents stay the same, nothing durable depends on them, and what the system
// refuses stays as it is. What they meet:
//   - Memory that was given back. A join would fill the holes, and the pool would grow again
//     without need. So a huge frame with holes is left out (Holes::join), until they have been
//     filled.
//     Where memory comes and goes, each join would be split again. So a huge frame that was punched
//     has a rest before it is joined.
//   - Accesses to the huge frame wait in the kernel while it is joined, for milliseconds. So after
//     each join the thread sleeps nine times as long as that took.
//   - fork. Each step holds process_locks.steps, so a fork waits for the step and no child is made
//     in the middle of one.
//   - close and trim wait for one step, and with decay_ms 0 calls that free extents. No other call
//     waits for a step.
//   - A full file system: a join needs no space there, and space is prepared only while there is
//     plenty. Who needs it takes back what is prepared.
//   - No memory, or memory in pieces: the kernel refuses a join, and is asked again later,
//     kTriesMax times. A kernel that cannot do it is asked kRefusalsMax times.
//   - A kill: the next open gives back what was prepared (start).
//   - No thread to be had: nothing is prepared.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "file/pool_file.h"
#include "frame/frames.h"
#include "heap/holes.h"
#include "pm/zero_pages.h"

namespace TENUTO_NS::heap {

class LargePages {
 public:
  // In a smaller pool the processor's translations reach about as far with small pages, so its huge
  // frames are not joined.
  static constexpr std::uint64_t kPoolBytesLeast = 32u << 20;

  LargePages(pm::PoolFile& file, Holes& holes, const frame::Frames& frames);
  ~LargePages() { stop(); }
  LargePages(const LargePages&) = delete;
  LargePages& operator=(const LargePages&) = delete;

  // For tests, before start.
  void set_rest_ms(std::int64_t ms) { rest_ms_ = ms; }
  // Any thread. All throw nothing.
  void start();  // the thread may run from now on
  void look();   // a huge frame has no holes any more
  void grown();  // the pool has a new zone
  void stop();   // waits for the thread, and gives back what is prepared; final
  // NUMA: no space is prepared for the next growth. Before start.
  void prepare_nothing() { prepares_ = false; }
  // Frames were taken. Cost: one atomic addition.
  void took(std::uint64_t frames) {
    const auto n = static_cast<std::int64_t>(frames);
    const std::int64_t had = until_look_.fetch_sub(n, std::memory_order_relaxed);
    if (had > 0 && had <= n) look_for_space();
  }

 private:
  void look_for_space();
  void start_thread();
  void run();
  bool stopping();
  void prepare();
  bool join_all();
  bool step(std::uint64_t huge);
  bool rested(std::uint64_t huge);
  Status prepare_step(std::uint64_t ready);

  pm::PoolFile& file_;
  Holes& holes_;
  const frame::Frames& frames_;
  // When so many frames more are taken, it is time to look whether space is to be prepared.
  std::atomic<std::int64_t> until_look_;
  std::atomic<bool> due_ = false;    // it is time
  std::atomic<bool> grows_ = false;  // the pool has grown since it was opened
  // Only the thread uses these.
  bool prepares_ = true;
  const pm::ZeroPages tries_pages_;
  std::uint8_t* const tries_;  // refused joins of each huge frame
  const pm::ZeroPages rests_pages_;
  std::int64_t* const rests_;  // of each huge frame, until then (milliseconds)
  std::int64_t rest_ms_ = 1000;
  unsigned refusals_ = 0;  // that will not change, since the last join
  bool later_ = false;     // something is left that may be possible later

  std::mutex mu_;
  std::condition_variable wake_;
  // Guarded by mu_.
  bool started_ = false;
  bool stopping_ = false;
  bool wanted_ = false;
  std::thread thread_;
};

}  // namespace TENUTO_NS::heap
