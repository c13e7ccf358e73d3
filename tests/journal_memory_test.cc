// Medium journal without memory for a line image or for a commit: the pool turns read-only and
// returns io, no thread waits for ever, and what was synced is there. Also a processor that loads
// lines word by word.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "pm/plant.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

constexpr unsigned kAlarmSeconds = 60;

StoreOptions options() {
  StoreOptions o;
  o.pool.size = 8u << 20;
  o.pool.size_max = 64u << 20;
  o.pool.recovery_threads = 1;
  o.pool.medium = Medium::journal;
  o.pool.journal.bytes = 4u << 20;
  o.pool.journal.sync_every_ms = 5;
  return o;
}

#ifdef TENUTO_DEBUG_CHECKS

// Uses the store in a child with an alarm, because mistakes here hang. Returns 0, or how the child
// ended.
int use_without_memory(const std::string& path, const char* plant) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(plant == std::string("journal_slot_stays_announced_without_memory") ? 5
                                                                                : kAlarmSeconds);
    Result<Store> s = Store::open(path, options());
    if (!s) std::_Exit(2);
    if (s->put("synced", "value") != Status::ok) std::_Exit(3);
    tenuto::plant("journal_no_memory_for_images");
    tenuto::plant(plant);
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        Status last = Status::ok;
        for (int i = 0; i < 100'000 && last == Status::ok; ++i) {
          last = s->put("key" + std::to_string(t * 100'000 + i), std::string(20'000, 'x'),
                        {Durability::buffered});
        }
        if (last != Status::io) std::_Exit(4);
      });
    }
    for (std::thread& t : threads) t.join();
    Report report;
    if (s->sync() != Status::io) std::_Exit(5);
    if (s->pool().health(&report) != Status::io) std::_Exit(6);
    if (report.text().find("no memory") == std::string::npos) std::_Exit(7);
    static_cast<void>(s->close());
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(journal_memory_test, without_memory_the_pool_turns_read_only_and_nobody_waits) {
  for (const char* where : {"journal_no_memory_for_images", "journal_no_memory_in_a_commit"}) {
    const TempPath path("journal-memory");
    EXPECT_EQ(use_without_memory(path.str(), where), 0) << where;
    Result<Store> s = Store::open(path.str(), options());
    ASSERT_TRUE(s) << where;
    EXPECT_EQ(s->contains("synced"), Status::ok);
    EXPECT_EQ(s->validate(), Status::ok);
  }
}

TEST(journal_memory_test, a_slot_that_stays_announced_is_found) {
  const TempPath path("journal-memory-planted");
  const int end = use_without_memory(path.str(), "journal_slot_stays_announced_without_memory");
  EXPECT_EQ(end, 1000 + SIGALRM);
}

// Threads that split, grow and erase on a processor that loads lines word by word. The process ends
// without a close.
TEST(journal_memory_test, a_processor_without_whole_loads_loses_nothing_either) {
  const TempPath path("journal-processor");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(kAlarmSeconds);
    tenuto::plant("journal_processor_without_whole_loads");
    Result<Store> s = Store::open(path.str(), options());
    if (!s) std::_Exit(2);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 3000; ++i) {
          const std::string k = "key" + std::to_string(3 * i + t);
          if (s->put(k, k, {Durability::buffered}) != Status::ok) std::_Exit(3);
          if (i % 3 == 1 && s->erase(k) != Status::ok) std::_Exit(4);
        }
      });
    }
    for (std::thread& t : threads) t.join();
    if (s->sync() != Status::ok) std::_Exit(5);
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ASSERT_EQ(status, 0);
  Report report;
  Result<Store> s = Store::open(path.str(), options(), &report);
  ASSERT_TRUE(s) << report.text();
  EXPECT_EQ(s->validate(&report), Status::ok) << report.text();
  for (int n = 0; n < 9000; ++n) {
    const Status expected = n / 3 % 3 == 1 ? Status::not_found : Status::ok;
    EXPECT_EQ(s->contains("key" + std::to_string(n)), expected) << n;
  }
}

#endif

}  // namespace
}  // namespace tenuto::test
