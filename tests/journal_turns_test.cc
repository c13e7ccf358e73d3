// Which thread commits: no thread sleeps through the commit that served it, one thread leads at a
// time, and threads that sync in turn share commits. The commits here are counters and sleeps.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "journal/turns.h"

namespace tenuto::pm {
namespace {

// Uses turns as Journal does. Its commit only takes time.
class FakeJournal {
 public:
  explicit FakeJournal(std::chrono::microseconds commit_time) : commit_time_(commit_time) {}

  // Returns false if commits have failed.
  bool sync() {
    const std::uint64_t wanted = epoch_.load();
    turns_.arrive(wanted);
    while (durable_.load() < wanted) {
      const std::uint32_t round = turns_.round();
      if (failed_.load()) return false;
      if (durable_.load() >= wanted) break;
      if (!turns_.lead()) {
        turns_.wait(round, wanted);
        continue;
      }
      if (durable_.load() < wanted) commit();
      turns_.pass(durable_.load(), failed_.load());
    }
    return true;
  }

  void fail_at(std::uint64_t commit) { fails_at_ = commit; }
  std::uint64_t commits() const { return commits_; }
  bool two_led() const { return two_led_; }

 private:
  void commit() {
    if (leading_.fetch_add(1) != 0) two_led_ = true;
    turns_.gather(epoch_.load());
    const std::uint64_t e = epoch_.fetch_add(1);
    if (commit_time_.count() != 0) std::this_thread::sleep_for(commit_time_);
    commits_ += 1;
    if (commits_ == fails_at_) {
      failed_ = true;
    } else if (!failed_) {
      durable_ = e;
    }
    leading_.fetch_sub(1);
  }

  const std::chrono::microseconds commit_time_;
  CommitTurns turns_;
  std::atomic<std::uint64_t> epoch_ = 1;
  std::atomic<std::uint64_t> durable_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<int> leading_ = 0;
  std::atomic<bool> two_led_ = false;
  std::uint64_t commits_ = 0;  // only the leader uses it
  std::uint64_t fails_at_ = 0;
};

void run_threads(unsigned threads, const auto& body) {
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; ++t) running.emplace_back(body);
  for (std::thread& t : running) t.join();
}

TEST(JournalTurns, everybody_is_served_and_one_leads_at_a_time) {
  constexpr std::uint64_t kThreads = 8;
  constexpr std::uint64_t kSyncs = 3000;
  FakeJournal journal(std::chrono::microseconds(0));
  std::atomic<std::uint64_t> served = 0;
  run_threads(kThreads, [&] {
    for (std::uint64_t i = 0; i < kSyncs; ++i) served += journal.sync() ? 1 : 0;
  });
  EXPECT_EQ(served.load(), kThreads * kSyncs);
  EXPECT_LE(journal.commits(), kThreads * kSyncs);
  EXPECT_FALSE(journal.two_led());
}

TEST(JournalTurns, threads_that_sync_in_turn_share_commits) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kSyncs = 50;
  FakeJournal journal(std::chrono::microseconds(2000));
  run_threads(kThreads, [&] {
    for (std::uint64_t i = 0; i < kSyncs; ++i) EXPECT_TRUE(journal.sync());
  });
  // 1/4 if all threads stay together, 1/2 if two groups take turns.
  EXPECT_LE(journal.commits(), kThreads * kSyncs * 3 / 4);
  EXPECT_FALSE(journal.two_led());
}

TEST(JournalTurns, a_failure_reaches_those_who_wait) {
  FakeJournal journal(std::chrono::microseconds(500));
  journal.fail_at(20);
  std::atomic<unsigned> told = 0;
  run_threads(8, [&] {
    while (journal.sync()) {
    }
    told += 1;
  });
  EXPECT_EQ(told.load(), 8u);
  EXPECT_EQ(journal.commits(), 20u);
}

}  // namespace
}  // namespace tenuto::pm
