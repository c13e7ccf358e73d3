// Actions: what is reserved, set and freed is published together or not at all.
#include "tenuto/actions.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>
#include <thread>

#include "pm/media.h"
#include "support/failing_memory.h"
#include "support/pool_parts.h"

namespace tenuto {
namespace {

using test::TempPath;

struct Node {
  std::uint64_t plain;
  p<std::uint64_t> field;
  p<Node*> next;
};
struct Root {
  Ptr<Node> one;
  p<Node*> two;
  std::uint64_t number;
  p<std::uint64_t> field;
};
constexpr std::uint64_t kType = 9;

class ActionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    pool_ = std::make_unique<Pool>(Pool::create(path_.str(), options()).value());
    root_ = pool_->root<Root>("actions").value();
  }
  static PoolOptions options() {
    PoolOptions o = test::PoolParts::small_options();
    o.medium = Medium::model;
    return o;
  }
  // As a crash leaves it.
  void reopen() {
    pool_.reset();
    pool_ = std::make_unique<Pool>(Pool::open(path_.str(), options()).value());
    root_ = pool_->root<Root>("actions").value();
  }
  std::uint64_t objects() { return pool_->stats().objects - 1; }

  TempPath path_{"actions"};
  std::unique_ptr<Pool> pool_;
  Root* root_ = nullptr;
};

TEST_F(ActionsTest, a_pointer_out_of_the_pool_is_refused) {
  Node in_dram{};
  for (const bool field : {true, false}) {
    Actions actions(*pool_);
    ASSERT_TRUE(actions.make<Node>());
    actions.set(root_->number, 5u);
    field ? actions.set(root_->two, &in_dram) : actions.set(root_->one, &in_dram);
    EXPECT_EQ(actions.publish(), Status::invalid_argument);
    EXPECT_EQ(root_->number, 0u);
    EXPECT_EQ(root_->one.get(), nullptr);
    EXPECT_EQ(root_->two, nullptr);
    EXPECT_EQ(objects(), 0u);
  }
}

TEST_F(ActionsTest, are_published_together) {
  Actions actions(*pool_);
  Node* const a = actions.make<Node>(Node{1, 2, nullptr}).value();
  Node* const b =
      static_cast<Node*>(actions.reserve(sizeof(Node), {.zero = true, .type = kType}).value());
  a->next = b;
  actions.set(root_->one, a);
  actions.set(root_->two, b);
  actions.set(root_->number, 5u);
  actions.set(root_->number, 6u);
  actions.set(root_->field, 7u);
  actions.set(b->next, a);
  EXPECT_EQ(objects(), 0u);
  EXPECT_EQ(root_->one.get(), nullptr);
  const pm::ModelCounts before = pm::thread_model_counts();
  ASSERT_EQ(actions.publish(), Status::ok);
  const pm::ModelCounts used = pm::thread_model_counts() - before;
  EXPECT_EQ(used.fences, 3u);
  EXPECT_EQ(objects(), 2u);
  EXPECT_EQ(root_->number, 6u);
  reopen();
  EXPECT_EQ(objects(), 2u);
  EXPECT_EQ(root_->one->plain, 1u);
  EXPECT_EQ(root_->one->field, 2u);
  EXPECT_EQ(root_->one->next, root_->two);
  EXPECT_EQ(root_->two->next, root_->one.get());
  EXPECT_EQ(root_->field, 7u);
  EXPECT_EQ(pool_->first(kType).value(), root_->two);

  Actions more(*pool_);
  more.free(root_->one.get());
  more.free(root_->two);
  more.set(root_->one, nullptr);
  more.set(root_->two, nullptr);
  ASSERT_EQ(more.publish(), Status::ok);
  ASSERT_EQ(more.publish(), Status::ok) << "an empty list";
  EXPECT_EQ(objects(), 0u);
}

TEST_F(ActionsTest, are_forgotten_without_publish) {
  Node* const kept = [&] {
    Actions actions(*pool_);
    actions.set(root_->one, actions.make<Node>().value());
    EXPECT_EQ(actions.publish(), Status::ok);
    return root_->one.get();
  }();
  {
    Actions actions(*pool_);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(actions.make<Node>());
    actions.free(kept);
    actions.set(root_->one, nullptr);
    actions.cancel();
    ASSERT_TRUE(actions.make<Node>());
  }
  EXPECT_EQ(objects(), 1u);
  EXPECT_EQ(root_->one.get(), kept);
  reopen();
  EXPECT_EQ(objects(), 1u);
}

TEST_F(ActionsTest, that_are_refused_do_nothing) {
  std::uint64_t in_dram = 0;
  for (const bool bad_free : {false, true}) {
    Actions actions(*pool_);
    Node* const node = actions.make<Node>().value();
    actions.set(root_->one, node);
    if (bad_free) {
      actions.free(&node->field);
    } else {
      actions.set(in_dram, 1u);
    }
    EXPECT_EQ(actions.publish(), Status::invalid_argument);
    EXPECT_EQ(root_->one.get(), nullptr);
    EXPECT_EQ(objects(), 0u);
    EXPECT_EQ(actions.publish(), Status::ok) << "the list is empty";
  }
  Actions actions(*pool_);
  EXPECT_EQ(actions.reserve(8, {.align = 3}).error(), Status::invalid_argument);
  ASSERT_EQ(pool_->validate(), Status::ok);
}

TEST_F(ActionsTest, join_an_open_transaction) {
  for (const bool commit : {false, true}) {
    Transaction tx(*pool_);
    Actions actions(*pool_);
    Node* const node = static_cast<Node*>(actions.reserve(sizeof(Node), {.zero = true}).value());
    actions.set(root_->one, node);
    ASSERT_EQ(actions.publish(), Status::ok);
    EXPECT_EQ(root_->one.get(), node);
    if (commit) {
      ASSERT_EQ(tx.commit(), Status::ok);
    } else {
      tx.abort();
      EXPECT_EQ(root_->one.get(), nullptr);
      EXPECT_EQ(objects(), 0u);
      Actions late(*pool_);
      late.set(root_->number, 3u);
      EXPECT_EQ(late.publish(), Status::ok) << "the transaction has ended";
    }
  }
  EXPECT_EQ(objects(), 1u);
}

TEST_F(ActionsTest, may_be_published_by_another_thread) {
  Actions actions(*pool_);
  std::thread([&] {
    actions.set(root_->one, actions.make<Node>(Node{4, 0, nullptr}).value());
  }).join();
  ASSERT_EQ(actions.publish(), Status::ok);
  EXPECT_EQ(root_->one->plain, 4u);
}

TEST_F(ActionsTest, of_a_full_pool_and_of_a_child_are_refused) {
  Actions actions(*pool_);
  while (actions.reserve(20'000)) continue;
  EXPECT_EQ(actions.reserve(20'000).error(), Status::full);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = actions.reserve(8).error() == Status::forked;
    _exit(refused && actions.publish() == Status::forked ? 0 : 1);
  }
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
  actions.cancel();
  EXPECT_EQ(objects(), 0u);
  ASSERT_TRUE(actions.reserve(20'000));
}

// Each allocation fails in turn.
TEST_F(ActionsTest, leak_nothing_without_memory) {
  for (long n = 1;; ++n) {
    test::fail_allocation(n);
    try {
      Actions actions(*pool_);
      for (int i = 0; i < 40; ++i) {
        Node* const node = actions.make<Node>().value();
        if (i == 0) actions.set(root_->one, node);
        actions.set(root_->number, 8u);
      }
      EXPECT_EQ(actions.publish(), Status::ok);
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(objects(), 0u);
      EXPECT_EQ(root_->number, 0u);
    }
    if (!test::failed_allocation()) break;
    ASSERT_LT(n, 200);
  }
  EXPECT_EQ(objects(), 40u);
  ASSERT_EQ(pool_->validate(), Status::ok);
}

}  // namespace
}  // namespace tenuto
