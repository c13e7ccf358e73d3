// Transactions through their interface: nesting, aborts, callbacks, locks, ranges, limits.
// tx_alloc_test.cc tests blocks, tx_recover_test.cc damage and kills, tx_cost_test.cc costs.
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "support/tx_parts.h"

namespace tenuto {
namespace {

using test::TempPath;
using test::TxParts;

struct Account {
  std::uint64_t balance;
  std::uint64_t changes;
};

class TxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(parts_.create(path_.str()), Status::ok) << parts_.report.text();
    account_ = &parts_.make_root<Account>(0, 1024);
  }
  Transaction begin() { return Transaction(parts_.engine->mine()); }
  static Status set(Transaction& tx, std::uint64_t& word, std::uint64_t value) {
    TENUTO_TRY(tx.add(word));
    word = value;
    return Status::ok;
  }

  TempPath path_{"tx"};
  TxParts parts_;
  Account* account_ = nullptr;
};

TEST_F(TxTest, commit_keeps_and_abort_restores) {
  ASSERT_EQ(parts_.run([&](Transaction& tx) { return set(tx, account_->balance, 7); }), Status::ok);
  EXPECT_EQ(account_->balance, 7u);
  EXPECT_EQ(parts_.run([&](Transaction& tx) {
    TENUTO_TRY(set(tx, account_->balance, 8));
    return Status::conflict;
  }),
            Status::conflict);
  EXPECT_EQ(account_->balance, 7u);
  EXPECT_EQ(parts_.engine->stats().committed, 1u);
  EXPECT_EQ(parts_.engine->stats().aborted, 1u);
}

TEST_F(TxTest, overwritten_bytes_come_back_only_if_they_were_added) {
  account_[0].balance = account_[1].balance = 1;
  {
    Transaction tx = begin();
    EXPECT_EQ(tx.overwrite(&path_, 8), Status::invalid_argument);
    ASSERT_EQ(tx.add(account_[0]), Status::ok);
    ASSERT_EQ(tx.overwrite(account_, 2 * sizeof(Account)), Status::ok);
    ASSERT_EQ(tx.add(account_[1]), Status::ok) << "too late";
    account_[0].balance = account_[1].balance = 2;
  }
  EXPECT_EQ(account_[0].balance, 1u);
  EXPECT_EQ(account_[1].balance, 2u);
  Transaction tx = begin();
  ASSERT_EQ(tx.overwrite(&account_[2], sizeof(Account)), Status::ok);
  account_[2].changes = 3;
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(account_[2].changes, 3u);
  EXPECT_EQ(tx.overwrite(account_, 8), Status::closed);
}

TEST_F(TxTest, a_transaction_left_without_commit_is_rolled_back) {
  {
    Transaction tx = begin();
    ASSERT_EQ(set(tx, account_->balance, 5), Status::ok);
  }
  EXPECT_EQ(account_->balance, 0u);
}

TEST_F(TxTest, an_exception_passing_through_rolls_back) {
  EXPECT_THROW(static_cast<void>(parts_.run([&](Transaction& tx) -> Status {
                 TENUTO_TRY(set(tx, account_->balance, 5));
                 throw std::runtime_error("user code");
               })),
               std::runtime_error);
  EXPECT_EQ(account_->balance, 0u);
  EXPECT_EQ(parts_.run([&](Transaction& tx) { return set(tx, account_->balance, 6); }), Status::ok);
}

TEST_F(TxTest, inner_transactions_join_the_outer_and_end_with_it) {
  Transaction outer = begin();
  ASSERT_EQ(set(outer, account_[0].balance, 1), Status::ok);
  {
    Transaction inner = begin();
    ASSERT_EQ(set(inner, account_[1].balance, 2), Status::ok);
    EXPECT_EQ(inner.commit(), Status::ok);
    EXPECT_EQ(inner.commit(), Status::closed);
    EXPECT_EQ(inner.add(account_[2]), Status::closed);
  }
  EXPECT_EQ(parts_.engine->stats().committed, 0u) << "nothing is durable before the outer";
  outer.abort();
  EXPECT_EQ(account_[0].balance, 0u);
  EXPECT_EQ(account_[1].balance, 0u);
}

TEST_F(TxTest, abort_at_any_depth_rolls_back_everything_at_once) {
  Transaction outer = begin();
  ASSERT_EQ(set(outer, account_[0].balance, 1), Status::ok);
  {
    Transaction middle = begin();
    {
      Transaction inner = begin();
      ASSERT_EQ(set(inner, account_[1].balance, 2), Status::ok);
      inner.abort();
      EXPECT_EQ(inner.status(), Status::aborted);
    }
    EXPECT_EQ(account_[0].balance, 0u);
    EXPECT_EQ(account_[1].balance, 0u);
    EXPECT_EQ(middle.add(account_[0]), Status::aborted);
    EXPECT_EQ(middle.alloc(64).error(), Status::aborted);
    EXPECT_EQ(middle.free(account_), Status::aborted);
    EXPECT_EQ(middle.commit(), Status::aborted);
  }
  {
    Transaction late = begin();
    EXPECT_EQ(late.status(), Status::aborted) << "joins a transaction that is no more";
    EXPECT_EQ(late.commit(), Status::aborted);
  }
  EXPECT_EQ(outer.ready(), Status::aborted);
  EXPECT_EQ(outer.commit(), Status::aborted);
  EXPECT_EQ(parts_.run([&](Transaction& tx) { return set(tx, account_->balance, 9); }), Status::ok);
  EXPECT_EQ(account_->balance, 9u);
}

TEST_F(TxTest, callbacks_run_once_after_the_outermost_end) {
  std::string calls;
  const auto note = [&](const char* what) { return [&calls, what] { calls += what; }; };
  {
    Transaction outer = begin();
    ASSERT_EQ(outer.on_commit(note("c1 ")), Status::ok);
    ASSERT_EQ(outer.on_abort(note("a1 ")), Status::ok);
    {
      Transaction inner = begin();
      ASSERT_EQ(inner.on_commit(note("c2 ")), Status::ok);
      ASSERT_EQ(inner.commit(), Status::ok);
    }
    EXPECT_EQ(calls, "");
    ASSERT_EQ(outer.commit(), Status::ok);
  }
  EXPECT_EQ(calls, "c1 c2 ");
  calls.clear();
  {
    Transaction outer = begin();
    ASSERT_EQ(outer.on_commit(note("c ")), Status::ok);
    ASSERT_EQ(outer.on_abort(note("a ")), Status::ok);
    {
      Transaction inner = begin();
      inner.abort();
    }
    EXPECT_EQ(calls, "") << "the outer is still there";
    EXPECT_EQ(outer.on_commit(note("late ")), Status::aborted);
  }
  EXPECT_EQ(calls, "a ");
}

TEST_F(TxTest, a_callback_cannot_begin_a_transaction) {
  Status inside = Status::ok;
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    return tx.on_commit([&] {
      Transaction again = begin();
      inside = again.status();
    });
  }),
            Status::ok);
  EXPECT_EQ(inside, Status::invalid_argument);
}

TEST_F(TxTest, locks_are_held_to_the_outermost_end) {
  std::mutex m;
  const auto is_held = [&] {
    bool held = false;
    std::thread([&] {
      held = !m.try_lock();
      if (!held) m.unlock();
    }).join();
    return held;
  };
  {
    Transaction outer = begin();
    {
      Transaction inner = begin();
      ASSERT_EQ(inner.lock(m), Status::ok);
      ASSERT_EQ(inner.lock(m), Status::ok) << "it has it already";
      ASSERT_EQ(inner.commit(), Status::ok);
    }
    EXPECT_TRUE(is_held());
    ASSERT_EQ(outer.on_commit([&] { EXPECT_TRUE(is_held()); }), Status::ok);
    ASSERT_EQ(outer.commit(), Status::ok);
  }
  EXPECT_FALSE(is_held());
  Transaction outer = begin();
  {
    Transaction inner = begin();
    ASSERT_EQ(inner.lock(m), Status::ok);
    inner.abort();
  }
  EXPECT_TRUE(is_held());
  outer.abort();
  EXPECT_FALSE(is_held());
}

TEST_F(TxTest, ranges_outside_the_pool_are_refused_and_change_nothing) {
  Transaction tx = begin();
  const std::uint64_t on_stack = 1;
  EXPECT_EQ(tx.add(on_stack), Status::invalid_argument);
  EXPECT_EQ(tx.add(nullptr, 8), Status::invalid_argument);
  const std::byte* base = parts_.file->base();
  const std::uint64_t end = parts_.file->bytes();
  EXPECT_EQ(tx.add(base + end - 8, 16), Status::invalid_argument) << "across the end";
  EXPECT_EQ(tx.add(base + end - 8, ~std::size_t{0}), Status::invalid_argument);
  EXPECT_EQ(tx.add(base, 64), Status::invalid_argument) << "the superblock";
  EXPECT_EQ(tx.add(base + pm::kLanesOffset, 64), Status::invalid_argument) << "a lane";
  EXPECT_EQ(tx.add(base + pm::kLanesOffset - 8, 16), Status::invalid_argument);
  EXPECT_EQ(tx.add(parts_.root(3)), Status::ok) << "a root word";
  EXPECT_EQ(tx.add(base + end - 8, 8), Status::ok);
  EXPECT_EQ(tx.add(account_, 0), Status::ok);
  EXPECT_EQ(set(tx, account_->balance, 3), Status::ok);
  EXPECT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(account_->balance, 3u);
}

TEST_F(TxTest, overlapping_adds_are_logged_once_and_restored_as_they_were) {
  auto* bytes = reinterpret_cast<unsigned char*>(account_);
  for (int i = 0; i < 300; ++i) bytes[i] = static_cast<unsigned char>(i);
  Transaction tx = begin();
  ASSERT_EQ(tx.add(bytes + 101, 3), Status::ok);
  bytes[102] = 0;
  ASSERT_EQ(tx.add(bytes + 90, 40), Status::ok);
  for (int i = 90; i < 130; ++i) bytes[i] = 0;
  ASSERT_EQ(tx.add(bytes + 10, 250), Status::ok);
  for (int i = 10; i < 260; ++i) bytes[i] = 0;
  ASSERT_EQ(tx.add(bytes + 10, 250), Status::ok);
  tx.abort();
  for (int i = 0; i < 300; ++i) ASSERT_EQ(bytes[i], static_cast<unsigned char>(i)) << i;
  // Ranges of 3, 11 + 26, and 80 + 130 bytes, in entries of up to 48 bytes.
  EXPECT_EQ(parts_.engine->stats().entries, 1u + 1u + 1u + 2u + 3u);
}

TEST_F(TxTest, a_log_of_any_size_commits_and_rolls_back) {
  auto* words = &parts_.make_root<std::uint64_t>(1, 100'000);
  for (const bool commits : {false, true}) {
    Transaction tx = begin();
    for (int i = 0; i < 100'000; i += 2) ASSERT_EQ(tx.add_later(words[i]), Status::ok);
    ASSERT_EQ(tx.ready(), Status::ok);
    for (std::uint64_t i = 0; i < 100'000; i += 2) words[i] = i + 1;
    if (commits) {
      ASSERT_EQ(tx.commit(), Status::ok);
    } else {
      tx.abort();
    }
    for (std::uint64_t i = 0; i < 100'000; ++i) {
      ASSERT_EQ(words[i], commits && i % 2 == 0 ? i + 1 : 0) << i;
    }
    EXPECT_LE(parts_.engine->stats().log_frames, 32u) << "a large log is given back";
  }
  EXPECT_EQ(parts_.engine->validate(&parts_.report), Status::ok) << parts_.report.text();
}

TEST_F(TxTest, a_log_that_finds_no_room_says_full_and_can_be_rolled_back) {
  PoolOptions small = TxParts::small_options();
  small.size = small.size_max = kPoolBytesMin;
  TempPath path("txfull");
  TxParts parts;
  ASSERT_EQ(parts.create(path.str(), small), Status::ok) << parts.report.text();
  constexpr std::size_t kWords = 500'000;
  auto* words = &parts.make_root<std::uint64_t>(0, kWords);
  for (int round = 0; round < 2; ++round) {
    Transaction tx(parts.engine->mine());
    Status s = Status::ok;
    std::size_t n = 0;
    for (; n < kWords; n += 8) {
      s = tx.add(&words[n], 48);
      if (s != Status::ok) break;
      words[n] = 77;
    }
    ASSERT_EQ(s, Status::full);
    EXPECT_GT(n, 10'000u);
    EXPECT_EQ(tx.add(words[0]), Status::ok) << "is logged already";
    EXPECT_EQ(tx.add(words[n + 7]), Status::full);
    tx.abort();
    for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(words[i], 0u);
  }
  ASSERT_EQ(parts.run([&](Transaction& tx) { return set(tx, words[1], 1); }), Status::ok);
}

TEST_F(TxTest, a_pool_opened_for_reading_begins_nothing) {
  ASSERT_EQ(parts_.close(), Status::ok);
  PoolOptions o = TxParts::small_options();
  o.read_only = true;
  TxParts reader;
  ASSERT_EQ(reader.open(path_.str(), o), Status::ok) << reader.report.text();
  EXPECT_EQ(reader.run([](Transaction&) { return Status::ok; }), Status::read_only);
  Transaction tx(reader.engine->mine());
  std::mutex m;
  EXPECT_EQ(tx.lock(m), Status::read_only);
  EXPECT_TRUE(m.try_lock());
  m.unlock();
}

}  // namespace
}  // namespace tenuto
