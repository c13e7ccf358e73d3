// What the threads of the library have from the process: its signals, which are not for them, and
// its priority.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "pm/os.h"
#include "pm/plant.h"
#include "support/journal_parts.h"
#include "tenuto/collection.h"

namespace tenuto::test {
namespace {

std::set<std::string> threads() {
  std::set<std::string> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    found.insert(task.path().string());
  }
  return found;
}

bool blocks(const std::string& thread, int signal) {
  std::ifstream status(thread + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigBlk:", 0) != 0) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
  }
  ADD_FAILURE() << thread;
  return false;
}

class Threads : public testing::Test {
 protected:
  void TearDown() override { unplant_all(); }

  // Of the threads that a journal, lifetimes and a pool of this size start: how many there are, and
  // how many take the signal.
  void count(int signal) {
    const std::set<std::string> before = threads();
    const JournalPaths paths("threads");
    StoreOptions journal = journalled(paths, 1);
    journal.pool.recovery_threads = 1;  // those of oneTBB are not the library's
    StoreOptions memory;
    memory.pool.size = 64u << 20;
    memory.pool.size_max = 1u << 30;
    memory.pool.recovery_threads = 1;
    const TempPath path("threads-memory");
    Result<Store> first = Store::open(paths.pool.str(), journal);
    Result<Store> second = Store::open(path.str(), memory);
    ASSERT_TRUE(first && second);
    ASSERT_TRUE(second->collection("c", {.expires = true}));
    all_ = take_ = 0;
    for (const std::string& t : threads()) {
      if (before.contains(t)) continue;
      // A thread begins with all signals blocked, until the C library gives it its own mask.
      ::alarm(60);
      while (blocks(t, SIGSEGV)) std::this_thread::yield();
      ::alarm(0);
      all_ += 1;
      take_ += blocks(t, signal) ? 0 : 1;
    }
    EXPECT_EQ(first->close(), Status::ok);
    EXPECT_EQ(second->close(), Status::ok);
  }

  int all_ = 0;
  int take_ = 0;
};

TEST_F(Threads, signals_of_the_program_are_not_for_them) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD}) {
    count(signal);
    EXPECT_EQ(all_, 4) << "two of the journal, of lifetimes, of large pages";
    EXPECT_EQ(take_, 0) << signal;
  }
  // The handler for pages that cannot be read (pm/bus_error.h) runs in any thread.
  count(SIGBUS);
  EXPECT_EQ(take_, all_);
}

TEST_F(Threads, threads_that_take_signals_are_found) {
  plant("pm_threads_take_signals");
  count(SIGTERM);
  EXPECT_EQ(take_, all_);
}

TEST_F(Threads, the_caller_has_its_signals_as_before) {
  sigset_t before;
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  count(SIGTERM);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int s = 1; s < 32; ++s) EXPECT_EQ(::sigismember(&before, s), ::sigismember(&after, s)) << s;
}

TEST_F(Threads, a_low_priority_is_not_raised) {
  for (const int has : {0, 10, 15}) {
    std::thread([&] {
      const auto me = static_cast<id_t>(::syscall(SYS_gettid));
      const int first = std::max(has, ::getpriority(PRIO_PROCESS, me));
      ASSERT_EQ(::setpriority(PRIO_PROCESS, me, first), 0);
      pm::lower_priority();
      EXPECT_EQ(::getpriority(PRIO_PROCESS, me), std::max(first, 10));
    }).join();
  }
}

}  // namespace
}  // namespace tenuto::test
