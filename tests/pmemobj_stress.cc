// Threads of the drop-in for libpmemobj, and processes of it that are killed.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pm/sanitizer.h"
#include "support/pmemobj_parts.h"
#include "support/seed.h"

namespace tenuto::test {
namespace {

// Each thread moves amounts between objects of its own and others'; what is in all of them
// together never changes. Some objects are replaced, so that each transaction may allocate and
// free.
struct Account {
  std::uint64_t amount;
  std::uint64_t copy;   // the same, in another part of the object
  std::uint64_t turns;  // transfers from it that were committed
  std::uint64_t room[13];
};
constexpr std::size_t kAccounts = 32;
constexpr std::uint64_t kEach = 1'000;
struct Bank {
  PMEMoid account[kAccounts];
  PMEMmutex lock[kAccounts];
};

Account& at(const Bank& b, std::size_t i) {
  return *static_cast<Account*>(pmemobj_direct(b.account[i]));
}

bool found_bank(PMEMobjpool* pop, Bank& b) {
  return in_tx(pop, [&] {
           if (pmemobj_tx_add_range_direct(b.account, sizeof b.account) != 0) return false;
           for (PMEMoid& oid : b.account) {
             oid = pmemobj_tx_zalloc(sizeof(Account), 1);
             auto& a = *static_cast<Account*>(pmemobj_direct(oid));
             a.amount = a.copy = kEach;
           }
           return true;
         }) == 0;
}

// Moves an amount from x to y, and replaces x if `replaces`. False: a call failed.
bool transfer(PMEMobjpool* pop, Bank& b, std::size_t x, std::size_t y, std::uint64_t amount,
              bool replaces, bool aborts) {
  PMEMmutex* const low = &b.lock[std::min(x, y)];
  PMEMmutex* const high = &b.lock[std::max(x, y)];
  if (pmemobj_tx_begin(pop, nullptr, TX_PARAM_MUTEX, low, TX_PARAM_MUTEX, high, TX_PARAM_NONE) !=
      0) {
    static_cast<void>(pmemobj_tx_end());
    return false;
  }
  Account& from = at(b, x);
  Account& to = at(b, y);
  pmemobj_tx_add_range_direct(&from, sizeof from);
  pmemobj_tx_add_range_direct(&to.amount, 16);
  amount = std::min(amount, from.amount);
  from.turns += 1;
  from.amount = from.copy = from.amount - amount;
  to.amount = to.copy = to.amount + amount;
  if (replaces) {
    pmemobj_tx_add_range_direct(&b.account[x], sizeof(PMEMoid));
    const PMEMoid old = b.account[x];
    const PMEMoid fresh = pmemobj_tx_zalloc(sizeof(Account), 1);
    *static_cast<Account*>(pmemobj_direct(fresh)) = from;
    b.account[x] = fresh;
    pmemobj_tx_free(old);
  }
  if (aborts) {
    pmemobj_tx_abort(ECANCELED);
  } else {
    pmemobj_tx_commit();
  }
  return pmemobj_tx_end() == (aborts ? ECANCELED : 0);
}

// `turns`: so many transfers were committed, or more.
void expect_whole(PMEMobjpool* pop, const Bank& b, std::uint64_t turns) {
  std::uint64_t sum = 0, kept = 0;
  for (std::size_t i = 0; i < kAccounts; ++i) {
    EXPECT_EQ(at(b, i).amount, at(b, i).copy);
    sum += at(b, i).amount;
    kept += at(b, i).turns;
  }
  EXPECT_EQ(sum, kAccounts * kEach);
  EXPECT_GE(kept, turns);
  std::size_t objects = 0;
  for (PMEMoid o = pmemobj_first(pop); !OID_IS_NULL(o); o = pmemobj_next(o)) objects += 1;
  EXPECT_EQ(objects, kAccounts);
}

void work(PMEMobjpool* pop, Bank& b, std::uint64_t seed, std::uint64_t turns,
          std::atomic<std::uint64_t>& done) {
  std::mt19937_64 random(seed);
  for (std::uint64_t i = 0; i < turns; ++i) {
    const std::size_t x = random() % kAccounts;
    const std::size_t y = (x + 1 + random() % (kAccounts - 1)) % kAccounts;
    const bool aborts = random() % 8 == 0;
    const bool ok = transfer(pop, b, x, y, random() % 100, random() % 4 == 0, aborts);
    if (!ok) std::abort();
    if (!aborts) done.fetch_add(1);
    if (random() % 16 == 0) {  // beside the bank
      PMEMoid oid;
      if (pmemobj_zalloc(pop, &oid, 1 + random() % 300, 2) == 0) pmemobj_free(&oid);
    }
  }
}

class PmemobjStress : public PmemobjTest {};

TEST_F(PmemobjStress, threads_move_amounts) {
  Bank& b = root<Bank>();
  ASSERT_TRUE(found_bank(pop_, b));
  const std::uint64_t seed = test_seed();
  std::atomic<std::uint64_t> done = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { work(pop_, b, seed + t, fewer_if_sanitized(20'000, 10), done); });
  }
  for (std::thread& t : threads) t.join();
  expect_whole(pop_, b, done);
}

class PmemobjKilled : public PmemobjTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    ::setenv("TENUTO_PMEMOBJ_MEDIUM", GetParam(), 1);
    PmemobjTest::SetUp();
  }
  void TearDown() override {
    PmemobjTest::TearDown();
    ::unlink((path_ + ".journal").c_str());
    ::unsetenv("TENUTO_PMEMOBJ_MEDIUM");
  }
};

TEST_P(PmemobjKilled, processes_that_are_killed_lose_nothing) {
#if TENUTO_TSAN
  // A replay has the threads of oneTBB, which is not built for ThreadSanitizer.
  if (std::string(GetParam()) == "journal") GTEST_SKIP();
#endif
  ASSERT_TRUE(found_bank(pop_, root<Bank>()));
  pmemobj_close(pop_);
  pop_ = nullptr;
  std::mt19937_64 random(test_seed());
  void* const shared =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& done = *new (shared) std::atomic<std::uint64_t>(0);
  for (int life = 0; life < 20; ++life) {
    const std::uint64_t seed = random();
    const pid_t child = ::fork();
    if (child == 0) {
      PMEMobjpool* const pop = pmemobj_open(path(), kLayout);
      if (pop == nullptr) ::_exit(1);
      auto& b = *static_cast<Bank*>(pmemobj_direct(pmemobj_root(pop, sizeof(Bank))));
      std::thread other([&] { work(pop, b, seed + 1, ~0ull, done); });
      work(pop, b, seed, ~0ull, done);
    }
    const std::uint64_t until = done.load() + 100 + random() % 3'000;
    int status = 0;
    while (done.load() < until && ::waitpid(child, &status, WNOHANG) == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    ::kill(child, SIGKILL);
    ASSERT_TRUE(::waitpid(child, &status, 0) < 0 || WIFSIGNALED(status)) << life;
    pop_ = pmemobj_open(path(), kLayout);
    ASSERT_NE(pop_, nullptr) << pmemobj_errormsg();
    // An object beside the bank may be between its allocation and its free.
    std::size_t beside = 0;
    for (PMEMoid o = pmemobj_first(pop_), next; !OID_IS_NULL(o); o = next) {
      next = pmemobj_next(o);
      if (pmemobj_type_num(o) != 2) continue;
      pmemobj_free(&o);
      beside += 1;
    }
    EXPECT_LE(beside, 2u);
    expect_whole(pop_, root<Bank>(), done);
    pmemobj_close(pop_);
    pop_ = nullptr;
  }
  ::munmap(shared, 4096);
}

INSTANTIATE_TEST_SUITE_P(media, PmemobjKilled, testing::Values("cache", "line", "journal"),
                         [](const auto& medium) { return std::string(medium.param); });

}  // namespace
}  // namespace tenuto::test
