// Pages of 2 MiB for a pool in memory (file/large.cc). A thread asks the kernel to join the pages
// of each huge frame, the newest ones first: a zone that was just added will be written to next.
// FrameSource owns this.
//
// It is a hint. The contents stay the same, nothing durable depends on it, and what the kernel
// refuses stays as it is. What it meets:
//   - Memory that was given back. A join would fill the holes, and the pool would grow again
//   without
//     need. So a huge frame with holes is left out (Holes::join), until they have been filled.
//   - Accesses to the huge frame wait in the kernel while it is joined, about a millisecond.
//   - fork. Each step holds process_locks.steps, so a fork waits for the step and no child is made
//     in the middle of one.
//   - close and trim wait for one step. No other call waits for a step.
//   - A full file system: a join needs no space there. No memory, or memory in pieces: the kernel
//     refuses, and is asked again later, kTriesMax times.
//   - A kernel, or a file system, that cannot do it: after kRefusalsMax the thread ends.
//   - No thread to be had: pages stay small.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "file/pool_file.h"
#include "heap/holes.h"
#include "pm/zero_pages.h"

namespace TENUTO_NS::heap {

class LargePages {
 public:
  // In a smaller pool the processor's translations reach about as far with small pages.
  static constexpr std::uint64_t kPoolBytesLeast = 32u << 20;

  LargePages(pm::PoolFile& file, Holes& holes);
  ~LargePages() { stop(); }
  LargePages(const LargePages&) = delete;
  LargePages& operator=(const LargePages&) = delete;

  // Any thread. All throw nothing.
  void start();  // the thread may run from now on
  void look();   // the pool has grown, or holes were filled
  void stop();   // waits for the thread; final

 private:
  void start_thread();
  void run();
  bool pass();
  bool step(std::uint64_t huge);

  pm::PoolFile& file_;
  Holes& holes_;
  // Only the thread uses these.
  const pm::ZeroPages tries_pages_;
  std::uint8_t* const tries_;  // refused joins of each huge frame
  unsigned refusals_ = 0;      // that will not change, since the last join
  bool later_ = false;         // a huge frame is left that may be joined later

  std::mutex mu_;
  std::condition_variable wake_;
  // Guarded by mu_.
  bool started_ = false;
  bool stopping_ = false;
  bool wanted_ = false;
  std::thread thread_;
};

}  // namespace TENUTO_NS::heap
