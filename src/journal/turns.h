// Who makes the journal's next commit, and who waits for it.
//
// A mutex will not do: whoever unlocks it takes it again before the others have woken up, and those
// whose writes are durable already wait behind a commit of somebody else's. Here a commit wakes the
// next leader first, then exactly those it served, and none of them takes a lock to go on.
//
//   arrive -> durable? done : lead? gather, commit, pass : wait     until durable
//   pass      no leader | round + 1 | wake one of epoch e + 1, then all up to e
//
// A leader waits a moment for threads that are about to come (gather): as many as the last commit
// served and left waiting, for at most a part of what a commit takes. So threads that sync in turn
// stay together in one group, instead of in two that take turns. One thread alone waits for nobody.
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
  // A thread will wait for this epoch: the one that is open now.
  void arrive(std::uint64_t epoch) { arrived(epoch).fetch_add(1, std::memory_order_relaxed); }

  // To be read before the caller looks at what is durable, for wait().
  std::uint32_t round() const { return round_.load(std::memory_order_seq_cst); }
  // True: the caller leads until it calls pass. What the leader before wrote is visible.
  bool lead() { return !led_.exchange(true, std::memory_order_acquire); }
  // Sleeps until a commit that serves the epoch ends, or the caller may lead; or wakes for nothing.
  void wait(std::uint32_t round, std::uint64_t epoch);

  // The leader's. gather: before the cut of the epoch. pass: all epochs up to this are durable;
  // all: everybody is to look, for commits have failed.
  void gather(std::uint64_t epoch);
  void pass(std::uint64_t durable, bool all);

 private:
  // Epochs that somebody may wait for: the one being written and the one that is open.
  static constexpr std::size_t kEpochs = 4;
  std::atomic<std::uint32_t>& arrived(std::uint64_t epoch) { return arrived_[epoch % kEpochs]; }
  static std::uint32_t bit_of(std::uint64_t epoch) { return 1u << (epoch % 32); }

  alignas(kLineBytes) std::atomic<bool> led_ = false;
  std::atomic<std::uint32_t> round_ = 0;     // counts commits; the futex
  std::atomic<std::uint32_t> sleeping_ = 0;  // in wait()
  // How many threads arrived for an epoch. A hint: one that comes late may count for a later epoch.
  alignas(kLineBytes) std::array<std::atomic<std::uint32_t>, kEpochs> arrived_{};
  // The leader's alone, handed on by led_.
  std::uint32_t expected_ = 0;   // in the next group
  std::uint64_t passed_ = 0;     // durable at the last pass
  std::uint64_t commit_ns_ = 0;  // what the last ones took, smoothed
  std::uint64_t begun_ns_ = 0;   // the cut of this one
};

}  // namespace TENUTO_NS::pm
