// pthread_cancel. Calls of the library are no cancellation points: a call ends as if nothing had
// happened, and the thread ends at the next cancellation point of the program.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <string>

#include "pm/os.h"
#include "pm/plant.h"
#include "support/journal_parts.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

constexpr unsigned kAlarmSeconds = 60;  // a thread that waits forever is a failure

using Work = std::function<void()>;

void* call(void* f) {
  (*static_cast<Work*>(f))();
  ::pthread_testcancel();
  return nullptr;
}

// What a thread that does this returns.
void* end_of(Work f) {
  pthread_t thread{};
  void* end = nullptr;
  EXPECT_EQ(::pthread_create(&thread, nullptr, call, &f), 0);
  EXPECT_EQ(::pthread_join(thread, &end), 0);
  return end;
}

class Cancel : public testing::Test {
 protected:
  void SetUp() override { ::alarm(kAlarmSeconds); }
  void TearDown() override {
    unplant_all();
    ::alarm(0);
  }

  JournalPaths paths_{"cancel"};
  TempPath copy_{"cancel-copy"};
};

// A request that waits for its thread ends it at the first cancellation point.
TEST_F(Cancel, no_call_of_a_store_is_a_cancellation_point) {
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    SCOPED_TRACE(medium_name(medium));
    StoreOptions options = journalled(paths_, 1);
    options.pool.medium = medium;
    options.pool.size_max = 256u << 20;
    options.pool.recovery_threads = 2;
    Status last = Status::closed;
    int steps = 0;
    const auto step = [&](Status s) {
      last = s;
      steps += s == Status::ok ? 1 : 0;
      return s == Status::ok;
    };
    const Work life = [&] {
      ::pthread_cancel(::pthread_self());
      for (const bool again : {false, true}) {
        Result<Store> s = Store::open(paths_.pool.str(), options);
        if (!step(s.error())) return;
        for (int i = 0; i < 40; ++i) {  // the pool grows
          const Durability d = i % 8 == 0 ? Durability::sync : Durability::buffered;
          if (!step(s->put(std::to_string(i), std::string(500'000, 'v'), {.durability = d})))
            return;
        }
        const auto tx = [](StoreTransaction& t) { return t.put("t", "t"); };
        if (!step(s->run(tx)) || !step(s->snapshot().error())) return;
        if (!step(s->pool().run([](Transaction&) { return Status::ok; }))) return;
        if (!step(s->backup(copy_.str())) || ::unlink(copy_.str().c_str()) != 0) return;
        if (again && !step(s->erase_range("1", "3").error())) return;
        if (!step(s->compact().error()) || !step(s->sync()) || !step(s->validate())) return;
        if (!step(s->pool().find_garbage({.threads = 2}).error())) return;
        if (!step(s->pool().compact({.threads = 2}).error())) return;
        static_cast<void>(s->stats());
        if (!step(s->close())) return;
      }
    };
    EXPECT_EQ(end_of(life), PTHREAD_CANCELED);
    EXPECT_EQ(last, Status::ok) << "after " << steps << " steps";
    EXPECT_EQ(steps, 103);
    ::unlink(paths_.pool.str().c_str());
    ::unlink(paths_.journal.str().c_str());
  }
}

// The requests above do end a thread where one can end.
TEST_F(Cancel, a_call_that_is_a_cancellation_point_is_found) {
  const int file = pm::open_file(paths_.pool.str(), O_RDWR | O_CREAT, 0600);
  plant("pm_calls_are_cancelled");
  bool returned = false;
  const Work sync = [&] {
    ::pthread_cancel(::pthread_self());
    static_cast<void>(pm::sync_data(file));
    returned = true;
  };
  EXPECT_EQ(end_of(sync), PTHREAD_CANCELED);
  EXPECT_FALSE(returned);
  ::close(file);
}

// One thread at a time commits for all. If it were cancelled, the others would wait forever.
TEST_F(Cancel, threads_that_commit_together_do_not_wait_for_one_that_ended) {
  Result<Store> s = Store::open(paths_.pool.str(), journalled(paths_));
  ASSERT_TRUE(s);
  std::array<std::atomic<int>, 4> acknowledged{};
  for (int round = 0; round < 8; ++round) {
    std::array<Work, 4> work;
    std::array<pthread_t, 4> threads{};
    for (unsigned i = 0; i < 4; ++i) {
      work[i] = [&, i] {
        for (;;) {
          const std::string key = std::to_string(i) + "-" + std::to_string(acknowledged[i]);
          if (s->put(key, "v") != Status::ok) return;
          acknowledged[i] += 1;
          ::pthread_testcancel();
        }
      };
      ASSERT_EQ(::pthread_create(&threads[i], nullptr, call, &work[i]), 0);
    }
    ::usleep(2000);
    for (const pthread_t t : threads) ::pthread_cancel(t);
    for (const pthread_t t : threads) {
      void* end = nullptr;
      ASSERT_EQ(::pthread_join(t, &end), 0);
      EXPECT_EQ(end, PTHREAD_CANCELED);
    }
    EXPECT_EQ(s->put("main", "v"), Status::ok);
  }
  int all = 1;
  for (const std::atomic<int>& n : acknowledged) all += n;
  EXPECT_EQ(s->stats().records, static_cast<std::uint64_t>(all));
  EXPECT_EQ(s->validate(), Status::ok);
  EXPECT_EQ(s->close(), Status::ok);
}

}  // namespace
}  // namespace tenuto::test
