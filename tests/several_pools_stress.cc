// Transactions over several pools by several threads, in a process that is killed again and again.
// Money moves between pools; after each kill none was made or lost, and two pools agree on what
// they sent each other. TENUTO_KILLS sets the number of kills, TENUTO_SEED the seed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "support/pool_parts.h"
#include "support/seed.h"
#include "tenuto/p.h"
#include "tenuto/pool.h"
#include "tenuto/tx.h"

namespace tenuto {
namespace {

constexpr std::size_t kPools = 3;
constexpr std::int64_t kStart = 1'000'000;

struct Bank {
  p<std::int64_t> balance;
  std::uint64_t sent[kPools];      // to each other bank
  std::uint64_t received[kPools];  // from each
  p<std::uint64_t*> receipt;       // a block of its own: the number of the last transfer
  p<std::uint64_t> transfers;
};

PoolOptions options_for(Medium medium) {
  PoolOptions o = test::PoolParts::small_options();
  o.medium = medium;
  o.durability = Durability::buffered;
  o.journal.sync_every_ms = 1;
  o.recovery_threads = 1;  // oneTBB is not built for ThreadSanitizer
  return o;
}

struct Banks {
  std::vector<Pool> pools;
  std::vector<Bank*> bank;
  std::array<std::mutex, kPools> mutex;

  Status open(const std::vector<std::string>& paths, const PoolOptions& options, Report& report) {
    Result<std::vector<Pool>> all = Pool::open_all(paths, options, &report);
    if (!all) return all.error();
    pools = std::move(*all);
    for (Pool& p : pools) {
      const Result<Bank*> root = p.root<Bank>("bank");
      if (!root) return root.error();
      bank.push_back(*root);
    }
    return Status::ok;
  }

  Status note(Transaction& tx, Bank& b, std::uint64_t& count) {
    const Result<std::uint64_t*> receipt = tx.make<std::uint64_t>(b.transfers + 1);
    if (!receipt) return receipt.error();
    if (b.receipt != nullptr) TENUTO_TRY(tx.free(b.receipt));
    b.receipt = *receipt;
    b.transfers = b.transfers + 1;
    TENUTO_TRY(tx.add(count));
    count += 1;
    return tx.status();
  }

  // One transfer. The locks are taken in the order of the banks.
  Status transfer(std::mt19937_64& rng) {
    const std::size_t from = rng() % kPools;
    const std::size_t to = (from + 1 + rng() % (kPools - 1)) % kPools;
    const std::size_t low = std::min(from, to), high = std::max(from, to);
    const bool turned = rng() % 2 == 0;
    Transaction first(pools[turned ? from : to]);
    Transaction second(pools[turned ? to : from], first);
    TENUTO_TRY(first.lock(mutex[low]));
    TENUTO_TRY(first.lock(mutex[high]));
    Transaction& giver = turned ? first : second;
    Transaction& taker = turned ? second : first;
    const auto amount = static_cast<std::int64_t>(rng() % 1000);
    bank[from]->balance = bank[from]->balance - amount;
    TENUTO_TRY(note(giver, *bank[from], bank[from]->sent[to]));
    if (rng() % 8 == 0) return Status::aborted;  // neither is committed
    bank[to]->balance = bank[to]->balance + amount;
    TENUTO_TRY(note(taker, *bank[to], bank[to]->received[from]));
    TENUTO_TRY(second.commit());
    return first.commit();
  }

  void run(std::uint64_t seed, std::uint64_t transfers) {
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 2; ++t) {
      threads.emplace_back([this, seed, t, transfers] {
        std::mt19937_64 rng(seed * 2 + t);
        for (std::uint64_t i = 0; i < transfers; ++i) {
          const Status s = transfer(rng);
          if (s != Status::ok && s != Status::aborted) std::_Exit(static_cast<int>(s));
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }

  void check() {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < kPools; ++i) {
      sum += bank[i]->balance;
      std::uint64_t transfers = 0;
      for (std::size_t k = 0; k < kPools; ++k) {
        EXPECT_EQ(bank[i]->sent[k], bank[k]->received[i]) << i << " to " << k;
        transfers += bank[i]->sent[k] + bank[i]->received[k];
      }
      EXPECT_EQ(bank[i]->transfers, transfers);
      EXPECT_EQ(transfers == 0 ? 0 : *bank[i]->receipt, transfers);
      Report report;
      EXPECT_EQ(pools[i].validate(&report), Status::ok) << report.text();
      EXPECT_EQ(pools[i].stats().objects, transfers == 0 ? 1u : 2u) << "a block leaked";
    }
    EXPECT_EQ(sum, kStart * static_cast<std::int64_t>(kPools));
  }
};

class SeveralPoolsStress : public ::testing::TestWithParam<Medium> {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < kPools; ++i) {
      files_.push_back(std::make_unique<test::TempPath>("bank" + std::to_string(i)));
      journals_.push_back(
          std::make_unique<test::TempPath>("bank" + std::to_string(i) + ".journal"));
      paths_.push_back(files_.back()->str());
      Result<Pool> pool = Pool::create(paths_.back(), options_);
      ASSERT_TRUE(pool);
      ASSERT_EQ(pool->run([&](Transaction&) {
        (*pool->root<Bank>("bank"))->balance = kStart;
        return Status::ok;
      }),
                Status::ok);
      ASSERT_EQ(pool->close(), Status::ok);
    }
  }
  // A child works on the banks until it is killed. Returns how many pools an open in their order
  // would have found in doubt.
  int kill_once(std::mt19937_64& rng) {
    const std::uint64_t seed = rng();
    const ::pid_t child = ::fork();
    if (child == 0) {
      Banks banks;
      Report report;
      const Status s = banks.open(paths_, options_, report);
      if (s != Status::ok) std::_Exit(static_cast<int>(s));
      banks.run(seed, ~0ull);
    }
    const std::uint64_t slower = test::kSanitized ? 8 : 1;
    ::usleep(static_cast<::useconds_t>((2'000 + rng() % 30'000) * slower));
    ::kill(child, SIGKILL);
    int how = 0;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    EXPECT_TRUE(WIFSIGNALED(how)) << "it ended by itself: " << WEXITSTATUS(how);
    int in_doubt = 0;
    for (std::size_t i = 0; i < kPools; ++i) {
      const Result<Pool> alone = Pool::open(paths_[i], options_);
      if (alone) continue;
      EXPECT_EQ(alone.error(), Status::in_doubt);
      in_doubt += 1;
    }
    return in_doubt;
  }

  PoolOptions options_ = options_for(GetParam());
  std::vector<std::unique_ptr<test::TempPath>> files_, journals_;
  std::vector<std::string> paths_;
};

TEST_P(SeveralPoolsStress, no_kill_makes_or_loses_money) {
  std::mt19937_64 rng(test::test_seed());
  const std::uint64_t kills = test::fewer_if_sanitized(test::from_env("TENUTO_KILLS", 60), 4);
  int in_doubt = 0;
  std::uint64_t transfers = 0;
  for (std::uint64_t k = 0; k < kills && !HasFailure(); ++k) {
    in_doubt += kill_once(rng);
    Banks banks;
    Report report;
    ASSERT_EQ(banks.open(paths_, options_, report), Status::ok) << report.text();
    banks.check();
    transfers = banks.bank[0]->transfers + banks.bank[1]->transfers;
    for (Pool& p : banks.pools) ASSERT_EQ(p.close(), Status::ok);
  }
  std::printf("%llu kills, %d opens in doubt, %llu transfers\n",
              static_cast<unsigned long long>(kills), in_doubt,
              static_cast<unsigned long long>(transfers));
  EXPECT_GT(transfers, kills);
  if (GetParam() == Medium::journal) {
    EXPECT_GT(in_doubt, 0);
  }
}

TEST_P(SeveralPoolsStress, threads_may_lead_in_any_order) {
  Banks banks;
  Report report;
  ASSERT_EQ(banks.open(paths_, options_, report), Status::ok) << report.text();
  banks.run(test::test_seed(), GetParam() == Medium::journal ? 20 : 2'000);
  banks.check();
  for (Pool& p : banks.pools) ASSERT_EQ(p.close(), Status::ok);
}

INSTANTIATE_TEST_SUITE_P(on, SeveralPoolsStress,
                         testing::Values(Medium::cache, Medium::line, Medium::journal),
                         [](const auto& test) { return std::string(medium_name(test.param)); });

}  // namespace
}  // namespace tenuto
