// Many threads use transactions, snapshots, batches and single puts at once. The store must look
// strictly serialisable, also when its process is killed again and again: the recorded history must
// show no anomaly (support/isolation.h). TENUTO_STRESS_SCALE multiplies the work, TENUTO_KILLS sets
// the number of kills, TENUTO_SEED repeats the choices.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/isolation_work.h"
#include "support/kv_fixture.h"
#include "support/seed.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

constexpr std::uint32_t kThreads = 3;

double scale() {
  static const char* const text = std::getenv("TENUTO_STRESS_SCALE");
  return text == nullptr ? 1 : std::atof(text);
}

class IsolationStress : public KvFixture {
 protected:
  void SetUp() override {
    seed_ = test_seed();
    options_.pool.size = 32u << 20;
  }

  // Runs threads on a store until each has done `steps` steps or its log is full. Ends the process
  // if a step fails in a way that it never should, because the process may be a child.
  static void work(Store& store, IsolationSize size, int steps, std::uint64_t seed,
                   std::atomic<std::uint64_t>& clock, std::atomic<std::uint64_t>& counter,
                   std::vector<TxnLog>& logs) {
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        IsolationWork w(store, size, t, logs[t], clock, counter, seed * 31 + t);
        for (int i = 0; i < steps && !w.full(); ++i) {
          const Status s = w.step();
          if (s == Status::ok) continue;
          std::fprintf(stderr, "thread %u, step %d: %s\n", t, i, status_name(s));
          std::_Exit(3);
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }

  void judge(const std::vector<std::vector<Txn>>& by_thread, IsolationSize size) {
    IsolationHistory history;
    std::size_t committed = 0;
    for (const std::vector<Txn>& txns : by_thread) {
      for (const Txn& t : txns) {
        committed += t.how == Txn::End::committed ? 1 : 0;
        history.add(t);
      }
    }
    IsolationWork::set_orders(by_thread, size, history);
    const IsolationFinding f = history.check();
    EXPECT_EQ(f.name(), "none") << f.text;
    EXPECT_GT(committed, history.size() / 4) << "hardly anything succeeds: this proves little";
    transactions_ += history.size();
    committed_ += committed;
  }

  // Runs all in one process.
  void run(IsolationSize size, int steps) {
    Store store = opened();
    std::atomic<std::uint64_t> clock{1}, counter{1};
    constexpr std::size_t kWords = 1u << 21;
    std::vector<std::vector<std::uint64_t>> memory(kThreads + 1,
                                                   std::vector<std::uint64_t>(kWords));
    std::vector<TxnLog> logs(memory.begin(), memory.end());
    work(store, size, steps, seed_, clock, counter, logs);
    IsolationWork last(store, size, kThreads, logs[kThreads], clock, counter, seed_);
    ASSERT_EQ(last.read_all(), Status::ok);
    std::vector<std::vector<Txn>> by_thread;
    for (std::uint32_t t = 0; t <= kThreads; ++t) by_thread.push_back(logs[t].read(t, 0));
    judge(by_thread, size);
    const StoreStats stats = store.stats();
    EXPECT_EQ(stats.snapshot_versions, 0u);
    EXPECT_EQ(stats.snapshots, 0u);
    expect_valid(store);
    std::printf("%zu transactions, %zu committed\n", transactions_, committed_);
  }

  std::uint64_t seed_ = 0;
  std::size_t transactions_ = 0, committed_ = 0;
};

TEST_F(IsolationStress, few_keys_in_one_leaf) {
  run({.lists = 3, .registers = 2, .own = 2, .fillers = 0}, static_cast<int>(3000 * scale()));
}
TEST_F(IsolationStress, keys_in_leaves_that_come_and_go) {
  run({}, static_cast<int>(3000 * scale()));
}
TEST_F(IsolationStress, many_keys_with_few_conflicts) {
  run({.lists = 40, .registers = 40, .own = 20, .fillers = 10, .appends_max = 20},
      static_cast<int>(2000 * scale()));
}

TEST_F(IsolationStress, keys_in_three_collections) {
  run({.lists = 4, .registers = 4, .own = 3, .fillers = 20, .collections = true},
      static_cast<int>(3000 * scale()));
}

// Memory that a process shares with its children.
class SharedWords {
 public:
  explicit SharedWords(std::size_t n) : n_(n) {
    void* p = ::mmap(nullptr, n * 8, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(p, MAP_FAILED);
    words_ = static_cast<std::uint64_t*>(p);
  }
  ~SharedWords() { ::munmap(words_, n_ * 8); }
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;
  std::span<std::uint64_t> part(std::size_t at, std::size_t n) { return {words_ + at, n}; }
  std::atomic<std::uint64_t>& atomic(std::size_t at) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(words_ + at);
  }

 private:
  std::size_t n_;
  std::uint64_t* words_;
};

// One pool lives several times, and each life is killed at a random point. What each life
// acknowledged survives, and all lives together are one serialisable history.
TEST_F(IsolationStress, killed_processes_leave_a_serialisable_history) {
  const char* const given = std::getenv("TENUTO_KILLS");
  const int kills = given == nullptr ? 24 : std::atoi(given);
  constexpr int kLives = 6;
  constexpr std::size_t kWords = 1u << 18;
  options_.pool.recovery_threads = 1;  // ThreadSanitizer needs a process without threads for a fork
  IsolationSize size{.lists = 5, .registers = 4, .own = 3, .fillers = 20};
  std::mt19937_64 rng(seed_);
  for (int pool = 0; pool < (kills + kLives - 1) / kLives; ++pool) {
    ::unlink(path_.str().c_str());
    SharedWords shared(8 + kLives * kThreads * kWords + kWords);
    std::atomic<std::uint64_t>&clock = shared.atomic(0), &counter = shared.atomic(1),
    &ready = shared.atomic(2);
    clock = counter = 1;
    std::vector<std::vector<Txn>> by_thread(kThreads + 1);
    size.collections = pool % 2 == 1;
    { const Store made = opened(); }
    for (int life = 0; life < kLives; ++life) {
      ready = 0;
      std::vector<TxnLog> logs;
      for (std::uint32_t t = 0; t < kThreads; ++t) {
        const auto at = static_cast<std::size_t>(life) * kThreads + t;
        logs.emplace_back(shared.part(8 + at * kWords, kWords));
      }
      const std::uint64_t seed = rng();
      const ::pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        Result<Store> store = open();
        if (!store) std::_Exit(4);
        ready = 1;
        for (;;) work(*store, size, 1000, seed, clock, counter, logs);
      }
      while (ready == 0 && ::waitpid(child, nullptr, WNOHANG) == 0) ::usleep(200);
      ::usleep(static_cast<::useconds_t>(rng() % 30'000));
      ::kill(child, SIGKILL);
      int status = 0;
      ::waitpid(child, &status, 0);
      ASSERT_TRUE(WIFSIGNALED(status)) << "exit " << WEXITSTATUS(status);
      const std::uint64_t crash = clock.fetch_add(1);
      for (std::uint32_t t = 0; t < kThreads; ++t) {
        for (Txn& txn : logs[t].read(t, crash)) by_thread[t].push_back(std::move(txn));
      }
    }
    Store store = opened();
    EXPECT_FALSE(store.pool().info().was_clean);
    TxnLog log(shared.part(8 + kLives * kThreads * kWords, kWords));
    IsolationWork last(store, size, kThreads, log, clock, counter, seed_);
    ASSERT_EQ(last.read_all(), Status::ok);
    by_thread[kThreads] = log.read(kThreads, 0);
    expect_valid(store);
    ASSERT_NO_FATAL_FAILURE(judge(by_thread, size));
    ASSERT_FALSE(HasFailure());
  }
  std::printf("%d kills, %zu transactions, %zu committed\n", kills, transactions_, committed_);
}

}  // namespace
}  // namespace tenuto::test
