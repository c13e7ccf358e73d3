// Transactions that end abnormally: a callback throws, or a thread ends and leaves one open.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/tx_parts.h"

namespace tenuto::test {
namespace {

struct Words {
  std::uint64_t word[8];
  Ptr<std::uint64_t> block;
};

class TxEnd : public testing::Test {
 protected:
  TxEnd() : path_("tx-end") {
    EXPECT_EQ(p_.create(path_.str()), Status::ok);
    p_.make_root<Words>(0);
  }
  Words& w() { return p_.get_root<Words>(0); }
  Status add_one() {
    return p_.run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(w().word[0]));
      w().word[0] += 1;
      return Status::ok;
    });
  }

  TempPath path_;
  TxParts p_;
};

TEST_F(TxEnd, a_callback_that_throws_leaves_the_transaction_ended_and_no_lock) {
  std::mutex m;
  int called = 0;
  for (const bool commits : {true, false}) {
    const auto body = [&] {
      Transaction tx(p_.engine->mine());
      EXPECT_EQ(tx.lock(m), Status::ok);
      EXPECT_EQ(tx.add(w().word[1]), Status::ok);
      w().word[1] += 1;
      const auto fail = [] { throw std::runtime_error("of a callback"); };
      EXPECT_EQ(commits ? tx.on_commit(fail) : tx.on_abort(fail), Status::ok);
      const auto count = [&] { called += 1; };
      EXPECT_EQ(commits ? tx.on_commit(count) : tx.on_abort(count), Status::ok);
      commits ? static_cast<void>(tx.commit()) : tx.abort();
    };
    EXPECT_THROW(body(), std::runtime_error);
    std::thread([&] {
      EXPECT_TRUE(m.try_lock());
      m.unlock();
    }).join();
    EXPECT_EQ(w().word[1], 1u);  // committed, then rolled back
    EXPECT_EQ(called, 0);        // the next callback is dropped, not kept for later
    EXPECT_EQ(add_one(), Status::ok);
    EXPECT_EQ(called, 0);
  }
  EXPECT_EQ(p_.close(), Status::ok);
}

TEST_F(TxEnd, a_guard_whose_callback_threw_takes_nothing_more) {
  for (const bool commits : {true, false}) {
    Transaction tx(p_.engine->mine());
    const auto fail = [](bool) { throw std::runtime_error("of a callback"); };
    ASSERT_EQ(tx.on_end(fail), Status::ok);
    EXPECT_THROW(commits ? static_cast<void>(tx.commit()) : tx.abort(), std::runtime_error);
    const Status ended = commits ? Status::closed : Status::aborted;
    EXPECT_EQ(tx.status(), ended);
    EXPECT_EQ(tx.add(w().word[1]), ended);
    EXPECT_EQ(tx.alloc(64).error(), ended);
    EXPECT_EQ(tx.savepoint().error(), ended);
    EXPECT_EQ(tx.commit(), ended);
  }
  EXPECT_EQ(p_.close(), Status::ok);
}

TEST_F(TxEnd, an_abort_leaves_alone_what_it_shall_keep) {
  p_.make_root<Words>(1);
  Words& one = p_.get_root<Words>(0);
  Words& other = p_.get_root<Words>(1);
  tx::Txn& txn = p_.engine->mine();
  for (std::size_t first = 0; first < 8; ++first) {
    for (std::size_t last = first; last <= 8; ++last) {
      ASSERT_EQ(txn.begin(), Status::ok);
      ASSERT_EQ(txn.add(&one, sizeof one), Status::ok);
      ASSERT_EQ(txn.add(&other, sizeof other), Status::ok);
      for (std::size_t i = 0; i < 8; ++i) one.word[i] = other.word[i] = 100 + i;
      txn.keep_on_abort(&one.word[first], (last - first) * sizeof one.word[0]);
      if (last < 8) txn.keep_on_abort(&one.word[last], sizeof one.word[0]);  // they touch
      txn.abort();
      for (std::size_t i = 0; i < 8; ++i) {
        const bool kept = i >= first && i < std::min<std::size_t>(last + 1, 8);
        EXPECT_EQ(one.word[i], kept ? 100 + i : 0) << first << " " << last << " " << i;
        EXPECT_EQ(other.word[i], 0u);
        one.word[i] = 0;
      }
    }
  }
  ASSERT_EQ(txn.begin(), Status::ok);  // nothing is kept for later transactions
  ASSERT_EQ(txn.add(&one, sizeof one), Status::ok);
  one.word[0] = 1;
  txn.abort();
  EXPECT_EQ(one.word[0], 0u);
  EXPECT_EQ(p_.close(), Status::ok);
}

TEST_F(TxEnd, a_walk_for_any_type_shows_all_blocks_that_have_one) {
  constexpr std::uint64_t kSizes[] = {16, 64, 1000, 20'000, 3u << 20};
  tx::Txn& txn = p_.engine->mine();
  ASSERT_EQ(txn.begin(), Status::ok);
  std::vector<PoolOffset> made;
  for (std::uint64_t bytes : kSizes) {
    for (std::uint64_t type : {1, 2, 3}) {
      const Result<void*> block = txn.alloc(bytes, {.type = type});
      ASSERT_TRUE(block);
      made.push_back(p_.file->offset_of(*block));
      EXPECT_EQ(p_.heap->type_of(made.back()), 0u);  // not yet
      EXPECT_EQ(p_.heap->type_of_taken(made.back()), type);
    }
    ASSERT_TRUE(txn.alloc(bytes));
  }
  EXPECT_FALSE(p_.heap->find_typed({0}, heap::kAnyType));
  ASSERT_EQ(txn.commit(), Status::ok);
  std::sort(made.begin(), made.end());
  std::vector<PoolOffset> shown;
  for (PoolOffset at{0}; (at = p_.heap->find_typed(at, heap::kAnyType)); at.value += 1) {
    shown.push_back(at);
  }
  EXPECT_EQ(shown, made);
  EXPECT_EQ(p_.heap->type_of_taken({made[0].value + 1}), 0u);
  EXPECT_EQ(p_.close(), Status::ok);
}

TEST_F(TxEnd, a_thread_that_ends_rolls_back_what_it_left_open) {
  EXPECT_EQ(add_one(), Status::ok);
  std::unique_ptr<Transaction> left, inner;
  std::mutex m;
  int aborted = 0;
  std::uint32_t lane = 0;
  std::thread([&] {
    lane = p_.lanes->mine().id.value;
    left = std::make_unique<Transaction>(p_.engine->mine());
    inner = std::make_unique<Transaction>(p_.engine->mine());
    EXPECT_EQ(left->lock(m), Status::ok);
    EXPECT_EQ(left->on_abort([&] { aborted += 1; }), Status::ok);
    EXPECT_EQ(inner->add(w()), Status::ok);
    w().word[0] = 100;
    const Result<void*> block = inner->alloc(64);
    ASSERT_TRUE(block);
    w().block = static_cast<std::uint64_t*>(*block);
  }).join();
  EXPECT_EQ(w().word[0], 1u);
  EXPECT_FALSE(w().block);
  EXPECT_EQ(aborted, 1);
  EXPECT_TRUE(m.try_lock());
  m.unlock();
  // The next holder of the lane begins its own transaction, which the old handles do not touch.
  std::thread([&] {
    EXPECT_EQ(p_.lanes->mine().id.value, lane);
    Transaction tx(p_.engine->mine());
    EXPECT_EQ(tx.add(w().word[0]), Status::ok);
    w().word[0] = 2;
    EXPECT_EQ(left->status(), Status::aborted);
    EXPECT_EQ(left->add(w().word[3]), Status::aborted);
    EXPECT_EQ(left->commit(), Status::aborted);
    EXPECT_EQ(inner->alloc(64).error(), Status::aborted);
    left.reset();
    inner.reset();
    EXPECT_EQ(tx.commit(), Status::ok);
  }).join();
  EXPECT_EQ(w().word[0], 2u);
  EXPECT_EQ(p_.allocated_blocks().size(), 1u);
  EXPECT_EQ(p_.close(), Status::ok);  // ok, not busy
}

}  // namespace
}  // namespace tenuto::test
