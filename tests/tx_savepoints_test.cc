// Savepoints, attempts and callbacks of the end. tx_crash.cc crashes transactions that go back,
// and tx_random_test.cc compares random ones with a shadow copy.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/failing_memory.h"
#include "support/tx_parts.h"
#include "tenuto/p.h"

namespace tenuto {
namespace {

using test::TempPath;
using test::TxParts;

struct Node {
  p<std::uint64_t> value;
  std::uint64_t plain;
  Ptr<Node> next;
};

class TxSavepointsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(parts_.create(path_.str()), Status::ok) << parts_.report.text();
    node_ = &parts_.make_root<Node>(0, kNodes);
  }
  Transaction begin() { return Transaction(parts_.engine->mine()); }
  static Status set(Transaction& tx, Node& node, std::uint64_t value) {
    TENUTO_TRY(tx.add(node.plain));
    node.plain = value;
    return Status::ok;
  }
  std::size_t blocks() { return parts_.allocated_blocks().size(); }

  static constexpr std::size_t kNodes = 600;
  TempPath path_{"txsave"};
  TxParts parts_;
  Node* node_ = nullptr;
};

TEST_F(TxSavepointsTest, going_back_undoes_stores_and_fields) {
  Transaction tx = begin();
  ASSERT_EQ(set(tx, node_[0], 1), Status::ok);
  node_[0].value = 1;
  const auto one = tx.savepoint();
  ASSERT_TRUE(one);
  ASSERT_EQ(set(tx, node_[0], 2), Status::ok);
  node_[0].value = 2;
  node_[1].value = 2;
  const auto two = tx.savepoint();
  ASSERT_TRUE(two);
  ASSERT_EQ(set(tx, node_[0], 3), Status::ok);
  ASSERT_EQ(set(tx, node_[1], 3), Status::ok);
  node_[1].value = 3;

  ASSERT_EQ(tx.rollback_to(*two), Status::ok);
  EXPECT_EQ(node_[0].plain, 2u);
  EXPECT_EQ(node_[1].plain, 0u);
  EXPECT_EQ(node_[0].value, 2u);
  EXPECT_EQ(node_[1].value, 2u);

  ASSERT_EQ(set(tx, node_[1], 4), Status::ok);
  ASSERT_EQ(tx.rollback_to(*two), Status::ok) << "a point stays";
  EXPECT_EQ(node_[1].plain, 0u);

  ASSERT_EQ(tx.rollback_to(*one), Status::ok);
  EXPECT_EQ(node_[0].plain, 1u);
  EXPECT_EQ(node_[0].value, 1u);
  EXPECT_EQ(node_[1].value, 0u);
  EXPECT_EQ(tx.rollback_to(*two), Status::invalid_argument) << "a younger one is gone";
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(node_[0].plain, 1u);
  EXPECT_EQ(node_[0].value, 1u);
  EXPECT_EQ(node_[1].value, 0u);
  EXPECT_EQ(node_[1].plain, 0u);
  EXPECT_EQ(tx.rollback_to(*one), Status::closed);
  Transaction other = begin();
  EXPECT_EQ(other.rollback_to(*one), Status::invalid_argument);
}

// Before the point the field waits; the fence after it stores it.
TEST_F(TxSavepointsTest, going_back_past_a_fence_keeps_the_value_of_the_point) {
  for (const bool again : {false, true}) {
    Transaction tx = begin();
    node_[0].value = 1;
    const auto point = tx.savepoint();
    ASSERT_TRUE(point);
    ASSERT_EQ(tx.ready(), Status::ok);
    if (again) node_[0].value = 2;
    ASSERT_EQ(set(tx, node_[1], 5), Status::ok);
    node_[2].value = 3;
    ASSERT_EQ(tx.rollback_to(*point), Status::ok);
    EXPECT_EQ(node_[0].value, 1u);
    EXPECT_EQ(node_[2].value, 0u);
    ASSERT_EQ(tx.commit(), Status::ok);
    EXPECT_EQ(node_[0].value, 1u);
    EXPECT_EQ(node_[1].plain, 0u);
    EXPECT_EQ(parts_.run([&](Transaction&) {
      node_[0].value = 0;
      return Status::ok;
    }),
              Status::ok);
  }
}

TEST_F(TxSavepointsTest, blocks_come_back_and_go_back) {
  Node* old = nullptr;
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    old = tx.make<Node>().value();
    old->plain = 7;
    TENUTO_TRY(tx.add(node_->next));
    node_->next = old;
    return Status::ok;
  }),
            Status::ok);
  const std::size_t before = blocks();
  Transaction tx = begin();
  Node* const mine = tx.make<Node>().value();
  mine->value = 1;
  const auto point = tx.savepoint();
  ASSERT_TRUE(point);
  for (int n = 0; n < 100; ++n) ASSERT_TRUE(tx.make<Node>());
  mine->value = 2;
  ASSERT_EQ(tx.free(old), Status::ok);
  ASSERT_EQ(tx.free(mine), Status::ok);
  ASSERT_EQ(tx.rollback_to(*point), Status::ok);
  EXPECT_EQ(mine->value, 1u);
  ASSERT_EQ(tx.free(old), Status::ok) << "it was not freed";
  ASSERT_EQ(tx.rollback_to(*point), Status::ok);
  ASSERT_EQ(tx.add(node_[1].next), Status::ok);
  node_[1].next = mine;
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(blocks(), before + 1);
  EXPECT_EQ(old->plain, 7u);
  parts_.crash();
  ASSERT_EQ(parts_.open(path_.str()), Status::ok) << parts_.report.text();
  node_ = &parts_.get_root<Node>(0);
  EXPECT_EQ(blocks(), before + 1);
  EXPECT_EQ(node_->next->plain, 7u);
  EXPECT_EQ(node_[1].next->value, 1u);
}

// The log continues in frames, and frees of both areas are forgotten.
TEST_F(TxSavepointsTest, frees_in_log_frames_are_forgotten) {
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    for (std::size_t i = 0; i < 300; ++i) {
      TENUTO_TRY(tx.add_later(node_[i].next));
      node_[i].next = tx.make<Node>().value();
    }
    return Status::ok;
  }),
            Status::ok);
  const std::size_t before = blocks();
  for (const bool commit : {false, true}) {
    Transaction tx = begin();
    ASSERT_EQ(set(tx, node_[0], 1), Status::ok);
    const auto point = tx.savepoint();
    for (std::size_t i = 0; i < 300; ++i) ASSERT_EQ(tx.free(node_[i].next.get()), Status::ok);
    ASSERT_EQ(tx.rollback_to(*point), Status::ok);
    if (commit) {
      ASSERT_EQ(tx.commit(), Status::ok);
    } else {
      tx.abort();
    }
    EXPECT_EQ(blocks(), before);
    EXPECT_EQ(node_[0].plain, commit ? 1u : 0u);
  }
  parts_.crash();
  ASSERT_EQ(parts_.open(path_.str()), Status::ok) << parts_.report.text();
  EXPECT_EQ(blocks(), before);
}

TEST_F(TxSavepointsTest, an_attempt_that_fails_leaves_the_transaction) {
  std::string calls;
  Transaction tx = begin();
  ASSERT_EQ(set(tx, node_[0], 1), Status::ok);
  ASSERT_EQ(tx.on_end([&](bool committed) { calls += committed ? 'E' : 'e'; }), Status::ok);
  EXPECT_EQ(tx.attempt([&] {
    TENUTO_TRY(set(tx, node_[0], 2));
    TENUTO_TRY(tx.on_commit([&] { calls += 'C'; }));
    TENUTO_TRY(tx.on_abort([&] { calls += 'a'; }));
    TENUTO_TRY(tx.on_end([&](bool committed) { calls += committed ? 'F' : 'f'; }));
    return Status::conflict;
  }),
            Status::conflict);
  EXPECT_EQ(calls, "af") << "what was registered since hears that it is undone";
  EXPECT_EQ(node_[0].plain, 1u);
  EXPECT_THROW(static_cast<void>(tx.attempt([&]() -> Status {
                 static_cast<void>(set(tx, node_[0], 3));
                 throw std::runtime_error("no");
               })),
               std::runtime_error);
  EXPECT_EQ(node_[0].plain, 1u);
  EXPECT_EQ(tx.attempt([&] { return set(tx, node_[1], 4); }), Status::ok);
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(calls, "afE");
  EXPECT_EQ(node_[1].plain, 4u);
}

// Each would else keep a copy of all fields that wait: 6 GB.
TEST_F(TxSavepointsTest, many_attempts_need_little_memory) {
  parts_.make_root<Node>(1, 20'000);
  Node* const many = &parts_.get_root<Node>(1);
  const auto resident = [] {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;  // KiB
  };
  const long before = resident();
  Transaction tx = begin();
  Result<Transaction::Savepoint> half = Status::closed;
  for (std::size_t i = 0; i < 20'000; ++i) {
    if (i == 10'000) half = tx.savepoint();
    ASSERT_EQ(tx.attempt([&] {
      many[i].value = i;
      node_[i % 2].value += 1;  // copied for each point
      return Status::ok;
    }),
              Status::ok);
  }
  EXPECT_EQ(node_[1].value, 10'000u);
  ASSERT_TRUE(half);
  ASSERT_EQ(tx.rollback_to(*half), Status::ok);
  EXPECT_EQ(node_[1].value, 5'000u);
  EXPECT_EQ(many[10'000].value, 0u);
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(node_[0].value, 5'000u);
  EXPECT_EQ(many[9'999].value, 9'999u);
  EXPECT_LT(resident() - before, 200'000);
}

TEST_F(TxSavepointsTest, a_callback_of_the_way_back_begins_no_transaction) {
  Transaction tx = begin();
  Status begun = Status::ok;
  const auto point = tx.savepoint();
  ASSERT_EQ(tx.on_abort([&] { begun = begin().status(); }), Status::ok);
  ASSERT_EQ(tx.rollback_to(*point), Status::ok);
  EXPECT_EQ(begun, Status::invalid_argument);
  EXPECT_EQ(begin().status(), Status::ok) << "only a callback may not";
  EXPECT_EQ(tx.status(), Status::aborted) << "that one was not committed";
}

TEST_F(TxSavepointsTest, a_callback_of_the_way_back_may_abort) {
  Transaction tx = begin();
  const auto point = tx.savepoint();
  ASSERT_EQ(tx.on_abort([&] { tx.abort(); }), Status::ok);
  EXPECT_EQ(tx.rollback_to(*point), Status::aborted);
  EXPECT_EQ(begin().status(), Status::ok);
}

// The pool is too small for the log of so many lines.
TEST_F(TxSavepointsTest, a_transaction_that_met_a_full_log_goes_on) {
  while (parts_.heap->reserve(20'000, heap::Kind::logged)) continue;
  while (parts_.heap->reserve(16, heap::Kind::logged)) continue;
  Transaction tx = begin();
  node_[0].value = 1;
  EXPECT_EQ(tx.attempt([&] {
    for (std::size_t i = 0; i < kNodes; ++i) node_[i].value = 9;
    return Status::ok;
  }),
            Status::full);
  EXPECT_EQ(tx.status(), Status::ok);
  EXPECT_EQ(node_[0].value, 1u);
  EXPECT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(node_[0].value, 1u);
  EXPECT_EQ(node_[40].value, 0u);
}

// Each allocation of the calls fails in turn. Then the transaction goes on or is undone, whole.
TEST_F(TxSavepointsTest, memory_that_fails_leaves_nothing_half_done) {
  for (long n = 1;; ++n) {
    {
      Transaction tx = begin();
      ASSERT_EQ(set(tx, node_[0], 1), Status::ok);
      test::fail_allocation(n);
      try {
        const auto point = tx.savepoint();
        for (std::size_t i = 0; i < 40; ++i) {
          node_[i].value = 5;
          EXPECT_EQ(set(tx, node_[i], 5), Status::ok);
        }
        Node* const made = tx.make<Node>().value();
        EXPECT_EQ(tx.on_end([](bool) {}), Status::ok);
        EXPECT_EQ(tx.free(made), Status::ok);
        EXPECT_EQ(tx.rollback_to(*point), Status::ok);
        EXPECT_EQ(node_[0].plain, 1u);
      } catch (const std::bad_alloc&) {
      }
    }
    const bool failed = test::failed_allocation();
    EXPECT_EQ(node_[0].plain, 0u);
    EXPECT_EQ(node_[30].plain, 0u);
    EXPECT_EQ(node_[30].value, 0u);
    ASSERT_EQ(blocks(), 1u);
    if (!failed) break;
    ASSERT_LT(n, 1000);
  }
}

TEST_F(TxSavepointsTest, an_aborted_a_forked_and_a_closed_transaction_have_none) {
  Transaction tx = begin();
  const auto point = tx.savepoint();
  ASSERT_TRUE(point);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = tx.savepoint().error() == Status::forked &&
                         tx.rollback_to(*point) == Status::forked &&
                         tx.on_end([](bool) {}) == Status::forked;
    _exit(refused ? 0 : 1);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
  {
    Transaction inner = begin();
    EXPECT_EQ(inner.rollback_to(*point), Status::ok);
    inner.abort();
  }
  EXPECT_EQ(tx.savepoint().error(), Status::aborted);
  EXPECT_EQ(tx.rollback_to(*point), Status::aborted);
}

}  // namespace
}  // namespace tenuto
