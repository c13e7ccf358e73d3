// Transactions of many threads: money moves between accounts under locks that the transactions
// hold, blocks are made and freed, some transactions roll back, and threads come and go. The sum
// never changes, and exactly the linked blocks are allocated. Run it under ThreadSanitizer (preset
// tsan).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "support/tx_parts.h"

namespace tenuto {
namespace {

using test::TempPath;
using test::TxParts;

constexpr std::size_t kAccounts = 32;

struct Account {
  std::uint64_t balance;
  Ptr<std::uint64_t> note;  // names a block that holds the account's balance of that time
};

std::uint64_t scaled(std::uint64_t n) {
  const char* scale = std::getenv("TENUTO_STRESS_SCALE");
  return scale == nullptr ? n
                          : static_cast<std::uint64_t>(static_cast<double>(n) * std::atof(scale));
}

class Bank {
 public:
  explicit Bank(TxParts& parts) : parts_(parts), account_(&parts.get_root<Account>(0)) {}

  Status transfer(std::size_t from, std::size_t to, std::mt19937_64& rng) {
    return parts_.run([&](Transaction& tx) {
      TENUTO_TRY(tx.lock(lock_[std::min(from, to)]));
      TENUTO_TRY(tx.lock(lock_[std::max(from, to)]));
      TENUTO_TRY(tx.add_later(account_[from]));
      TENUTO_TRY(tx.add_later(account_[to]));
      TENUTO_TRY(tx.ready());
      const std::uint64_t amount = rng() % 10;
      account_[from].balance -= amount;
      account_[to].balance += amount;
      if (rng() % 3 == 0) TENUTO_TRY(write_note(tx, account_[from], 8 + rng() % 200));
      if (rng() % 64 == 0) TENUTO_TRY(write_note(tx, account_[to], 20'000 + rng() % 50'000));
      return rng() % 5 == 0 ? Status::conflict : Status::ok;
    });
  }

  void check() {
    std::uint64_t sum = 0;
    std::size_t notes = 0;
    for (std::size_t i = 0; i < kAccounts; ++i) {
      sum += account_[i].balance;
      if (!account_[i].note) continue;
      notes += 1;
      const void* block = account_[i].note.get();
      EXPECT_NE(parts_.heap->usable_size(parts_.file->offset_of(block)), 0u) << i;
    }
    EXPECT_EQ(sum, kAccounts * 1000);
    EXPECT_EQ(parts_.allocated_blocks().size(), notes + 1);
    EXPECT_EQ(parts_.engine->validate(&parts_.report), Status::ok) << parts_.report.text();
    EXPECT_EQ(parts_.heap->validate(&parts_.report), Status::ok) << parts_.report.text();
  }

 private:
  static Status write_note(Transaction& tx, Account& account, std::uint64_t bytes) {
    if (account.note) TENUTO_TRY(tx.free(account.note.get()));
    const Result<void*> block = tx.alloc(bytes);
    if (!block) return block.error();
    account.note = static_cast<std::uint64_t*>(*block);
    *account.note = account.balance;
    return Status::ok;
  }

  TxParts& parts_;
  Account* account_;
  std::mutex lock_[kAccounts];
};

TEST(TxStress, threads_move_money_and_blocks) {
  TempPath path("txstress");
  TxParts parts;
  ASSERT_EQ(parts.create(path.str()), Status::ok) << parts.report.text();
  Account* accounts = &parts.make_root<Account>(0, kAccounts);
  for (std::size_t i = 0; i < kAccounts; ++i) accounts[i].balance = 1000;
  for (int round = 0; round < 4; ++round) {
    {
      Bank bank(parts);
      std::atomic<std::uint64_t> bad = 0;
      std::vector<std::thread> threads;
      for (std::uint64_t t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
          std::mt19937_64 rng(static_cast<std::uint64_t>(round) * 100 + t);
          for (std::uint64_t i = 0; i < scaled(10'000); ++i) {
            const std::size_t from = rng() % kAccounts;
            const std::size_t to = (from + 1 + rng() % (kAccounts - 1)) % kAccounts;
            const Status s = bank.transfer(from, to, rng);
            bad += s != Status::ok && s != Status::conflict;
          }
        });
      }
      threads.emplace_back([&] {  // takes over the lanes of ended threads
        for (int i = 0; i < 50; ++i) {
          parts.engine->reclaim(parts.engine->mine());
          EXPECT_LE(parts.engine->stats().log_frames, 1000u);
        }
      });
      for (auto& t : threads) t.join();
      EXPECT_EQ(bad.load(), 0u);
      const tx::EngineStats done = parts.engine->stats();
      EXPECT_EQ(done.committed + done.aborted, 6 * scaled(10'000));
      EXPECT_GT(done.aborted, scaled(10'000));
      bank.check();
    }
    if (round % 2 == 0) {
      parts.crash();
    } else {
      ASSERT_EQ(parts.close(), Status::ok);
    }
    ASSERT_EQ(parts.open(path.str()), Status::ok) << parts.report.text();
    EXPECT_EQ(parts.rolled_back, 0u);
    Bank(parts).check();
  }
}

TEST(TxStress, large_logs_of_several_threads_share_the_pool) {
  TempPath path("txstresslog");
  TxParts parts;
  ASSERT_EQ(parts.create(path.str()), Status::ok);
  constexpr std::size_t kWords = 20'000;
  auto* words = &parts.make_root<std::uint64_t>(0, 4 * kWords);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t round = 1; round <= 4; ++round) {
        const Status s = parts.run([&](Transaction& tx) {
          for (std::size_t i = t; i < 4 * kWords; i += 4 * 8) TENUTO_TRY(tx.add_later(words[i]));
          TENUTO_TRY(tx.ready());
          for (std::size_t i = t; i < 4 * kWords; i += 4 * 8) words[i] = round;
          return round == 3 ? Status::conflict : Status::ok;
        });
        EXPECT_EQ(s, round == 3 ? Status::conflict : Status::ok);
      }
    });
  }
  for (auto& t : threads) t.join();
  for (std::size_t i = 0; i < 4 * kWords; ++i) {
    ASSERT_EQ(words[i], i % 32 < 4 ? 4u : 0u) << i;
  }
  ASSERT_EQ(parts.engine->drain(), Status::ok);
  EXPECT_EQ(parts.engine->stats().log_frames, 0u);
}

}  // namespace
}  // namespace tenuto
