// Decides which thread makes the journal's next commit, and which threads wait for it.
//
// A mutex would not do. A thread that unlocks it takes it again before the others have woken up,
// and threads whose writes are already durable wait behind the commit of another thread. Here a
// commit first wakes the next leader, then exactly the threads that it served. None of them takes a
// lock to go on.
//
//   arrive -> durable? done : lead? gather, commit, pass : wait     until durable
//   pass      no leader | round + 1 | wake one of epoch e + 1, then all up to e
//
// A leader first waits for threads that are about to arrive (gather): as many as the last commit
// served and left waiting, for at most a part of what a commit takes. So threads that sync in turn
// stay in one group, and do not form two groups that take turns. A single thread waits for no
// other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

class CommitTurns {
 public:
  // Counts a thread that will wait for this epoch, the one that is open now.
  void arrive(std::uint64_t epoch) { arrived(epoch).fetch_add(1, std::memory_order_relaxed); }

  // For wait(). The caller reads it before it checks what is durable.
  std::uint32_t round() const { return round_.load(std::memory_order_seq_cst); }
  // True: the caller leads until it calls pass, and sees what the leader before wrote.
  bool lead() { return !led_.exchange(true, std::memory_order_acquire); }
  // Sleeps until a commit that serves the epoch ends, or the caller may lead. May wake for no
  // reason.
  void wait(std::uint32_t round, std::uint64_t epoch);

  // For the leader. gather: called before the cut of the epoch. pass: all epochs <= durable are
  // durable; all: wakes all threads, because commits have failed.
  void gather(std::uint64_t epoch);
  void pass(std::uint64_t durable, bool all);

 private:
  // At least the epochs that threads may wait for: the one being written and the open one.
  static constexpr std::size_t kEpochs = 4;
  std::atomic<std::uint32_t>& arrived(std::uint64_t epoch) { return arrived_[epoch % kEpochs]; }
  static std::uint32_t bit_of(std::uint64_t epoch) { return 1u << (epoch % 32); }

  alignas(kLineBytes) std::atomic<bool> led_ = false;
  std::atomic<std::uint32_t> round_ = 0;     // counts commits; the futex
  std::atomic<std::uint32_t> sleeping_ = 0;  // in wait()
  // How many threads arrived for an epoch. A hint: a late one may count for a later epoch.
  alignas(kLineBytes) std::array<std::atomic<std::uint32_t>, kEpochs> arrived_{};
  // Only the leader uses these; led_ hands them on.
  std::uint32_t expected_ = 0;   // in the next group
  std::uint64_t passed_ = 0;     // durable at the last pass
  std::uint64_t commit_ns_ = 0;  // what the last commits took, smoothed
  std::uint64_t begun_ns_ = 0;   // start of this commit's cut
};

}  // namespace TENUTO_NS::pm
