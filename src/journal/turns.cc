#include "journal/turns.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace TENUTO_NS::pm {

namespace {

constexpr std::uint64_t kGatherShare = 2;        // at most this part of a commit's time
constexpr std::uint64_t kGatherNsMax = 500'000;  // and at most this, on slow devices
constexpr std::uint64_t kSmoothing = 8;

std::uint64_t now_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(t.tv_nsec);
}

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           std::uint32_t bits) {
  static_assert(sizeof word == sizeof(std::uint32_t));
  ::syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, bits);
}

}  // namespace

// No wake-up is lost: a leader that saw no sleeper has already counted the round on. Then the
// kernel sees another number and does not put this thread to sleep.
void CommitTurns::wait(std::uint32_t round, std::uint64_t epoch) {
  sleeping_.fetch_add(1, std::memory_order_seq_cst);
  futex(round_, FUTEX_WAIT_BITSET, round, bit_of(epoch));
  sleeping_.fetch_sub(1, std::memory_order_relaxed);
}

void CommitTurns::gather(std::uint64_t epoch) {
  const std::uint64_t start = now_ns();
  const std::uint64_t until = start + std::min(commit_ns_ / kGatherShare, kGatherNsMax);
  begun_ns_ = start;
  while (arrived(epoch).load(std::memory_order_relaxed) < expected_ && begun_ns_ < until) {
    ::sched_yield();
    begun_ns_ = now_ns();
  }
}

void CommitTurns::pass(std::uint64_t durable, bool all) {
  const std::uint64_t took = now_ns() - begun_ns_;
  commit_ns_ = commit_ns_ - commit_ns_ / kSmoothing + took / kSmoothing;
  expected_ = arrived(durable).exchange(0, std::memory_order_relaxed) +
              arrived(durable + 1).load(std::memory_order_relaxed);
  // No thread sleeps for an epoch that was durable at the last pass.
  std::uint32_t served = 0;
  for (std::uint64_t e = passed_ + 1; e <= durable && served != ~0u; ++e) served |= bit_of(e);
  if (all) served = ~0u;
  passed_ = durable;
  led_.store(false, std::memory_order_release);
  round_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) == 0) return;
  if (!all) futex(round_, FUTEX_WAKE_BITSET, 1, bit_of(durable + 1));
  if (served != 0) futex(round_, FUTEX_WAKE_BITSET, INT_MAX, served);
}

}  // namespace TENUTO_NS::pm
