// PoolOptions::on_mistake and other pools: pointers into pools that were closed, and pointers that
// lead out of their pool.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csetjmp>
#include <csignal>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "pm/closed_pools.h"
#include "support/pool_parts.h"
#include "support/seed.h"
#include "tenuto/mistakes.h"
#include "tenuto/p.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

struct Node {
  std::uint64_t number;
  Ptr<Node> link;
  p<Node*> field;
};
struct Root {
  Ptr<Node> node;
};

PoolOptions watched(std::vector<std::string>* said = nullptr) {
  PoolOptions o = test::PoolParts::small_options();
  o.on_mistake = [said](const Report& r) {
    if (said != nullptr) said->push_back(r.text());
  };
  return o;
}

Node* node_of(Pool& pool) {
  Root* const root = pool.root<Root>("pools").value();
  if (!root->node) {
    EXPECT_EQ(pool.run([&](Transaction& tx) -> Status {
      TENUTO_TRY(tx.add(root->node));
      const Result<void*> block = tx.alloc(sizeof(Node), {.zero = true});
      if (!block) return block.error();
      root->node = static_cast<Node*>(*block);
      return Status::ok;
    }),
              Status::ok);
  }
  return root->node.get();
}

bool is_reserved(const void* at) {
  unsigned char page = 0;
  const auto begin = round_down(reinterpret_cast<std::uintptr_t>(at), kFrameBytes);
  return ::mincore(reinterpret_cast<void*>(begin), kFrameBytes, &page) == 0;
}

// --- closed pools --------------------------------------------------------------------------------

class ClosedPools : public ::testing::TestWithParam<Medium> {
 protected:
  // The child has the same path, so the file goes away with this test.
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "fast"; }
  void TearDown() override { pm::release_closed_pools(); }
  PoolOptions options() const {
    PoolOptions o = watched();
    o.medium = GetParam();
    return o;
  }
  Node* closed_node() {
    Pool pool = Pool::create(path_.str(), options()).value();
    Node* const node = node_of(pool);
    EXPECT_EQ(pool.close(), Status::ok);
    return node;
  }
  static std::uint64_t follow(const Node* node) {
    return __atomic_load_n(&node->number, __ATOMIC_RELAXED);
  }
  std::string told() const {
    return "a pointer into a pool was followed after the pool had been closed: .*the closed pool "
           "/dev/shm/tenuto-test-[0-9]*-closed .offset [1-9][0-9]*, "
           "closed at 2[0-9-]* [0-9:]* UTC.*mistakes_pools";
  }
  TempPath path_{"closed"};
};
INSTANTIATE_TEST_SUITE_P(media, ClosedPools, ::testing::Values(Medium::cache, Medium::journal),
                         [](const auto& medium) { return std::string(medium_name(medium.param)); });
using ClosedPoolsDeathTest = ClosedPools;
INSTANTIATE_TEST_SUITE_P(media, ClosedPoolsDeathTest, ::testing::Values(Medium::cache),
                         [](const auto& medium) { return std::string(medium_name(medium.param)); });

TEST_P(ClosedPoolsDeathTest, a_load_is_told_by_name) {
  EXPECT_DEATH(follow(closed_node()), told());
}

TEST_P(ClosedPoolsDeathTest, a_store_and_a_field_are_told) {
  Node* const node = closed_node();
  EXPECT_DEATH(node->number = 1, told());
  EXPECT_DEATH(node->field = nullptr, told());
}

TEST_P(ClosedPoolsDeathTest, a_second_thread_is_told) {
  EXPECT_DEATH(
      {
        Node* const node = closed_node();
        std::thread([node] { follow(node); }).join();
      },
      told());
}

TEST_P(ClosedPoolsDeathTest, a_child_of_a_fork_is_told) {
  EXPECT_EXIT(
      {
        Node* const node = closed_node();
        const pid_t child = ::fork();
        if (child == 0) ::_exit(static_cast<int>(follow(node)) & 0);
        int status = 0;
        ::waitpid(child, &status, 0);
        ::_exit(WIFSIGNALED(status) || WEXITSTATUS(status) != 0 ? 3 : 0);
      },
      ::testing::ExitedWithCode(3), told());
}

// In a new process, where the library's handler is not there yet: a handler that the program sets
// later takes its place.
TEST_P(ClosedPoolsDeathTest, the_program_s_own_handler_comes_next) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        struct sigaction mine {};
        mine.sa_handler = [](int) { ::_exit(42); };
        ::sigaction(SIGSEGV, &mine, nullptr);
        Node* const node = closed_node();
        ::unlink(path_.str().c_str());
        follow(node);
      },
      ::testing::ExitedWithCode(42), told());
}

// A handler that jumps away, as of a runtime that turns faults into exceptions.
sigjmp_buf back;
TEST_P(ClosedPoolsDeathTest, a_handler_that_jumps_goes_on_and_other_faults_are_its_own) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        struct sigaction mine {};
        mine.sa_sigaction = [](int, siginfo_t*, void*) { siglongjmp(back, 1); };
        mine.sa_flags = SA_SIGINFO;
        ::sigaction(SIGSEGV, &mine, nullptr);
        Node* const node = closed_node();
        ::unlink(path_.str().c_str());
        volatile int faults = 0;
        if (sigsetjmp(back, 1) == 0) follow(node);
        faults = faults + 1;
        void* const nothing =
            ::mmap(nullptr, kFrameBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (sigsetjmp(back, 1) == 0) follow(static_cast<Node*>(nothing));
        faults = faults + 1;
        ::_exit(faults == 2 ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), told());
}

TEST_P(ClosedPoolsDeathTest, an_open_that_needs_the_addresses_gets_them) {
  if (test::kSanitized) GTEST_SKIP() << "the sanitizer needs addresses, too";
  EXPECT_EXIT(
      {
        Node* const node = closed_node();
        rlimit none = {};
        none.rlim_cur = 1u << 20;
        none.rlim_max = RLIM_INFINITY;
        ::setrlimit(RLIMIT_AS, &none);
        if (Pool::open(path_.str(), options())) ::_exit(1);
        ::_exit(is_reserved(node) ? 2 : 5);
      },
      ::testing::ExitedWithCode(5), "");
}

TEST_P(ClosedPools, the_same_pool_opens_elsewhere_and_old_addresses_stay_reserved) {
  Node* const old = closed_node();
  Pool pool = Pool::open(path_.str(), options()).value();
  EXPECT_NE(node_of(pool), old);
  EXPECT_TRUE(is_reserved(old));
  EXPECT_NE(pm::closed_pool_at(old).find(path_.str()), std::string::npos);
  EXPECT_EQ(pm::closed_pool_at(node_of(pool)), "");
  EXPECT_EQ(pool.run([&](Transaction&) {
    node_of(pool)->field = node_of(pool);
    return Status::ok;
  }),
            Status::ok);
}

TEST_P(ClosedPools, a_pool_that_was_only_read_is_kept_and_one_without_the_option_is_not) {
  closed_node();
  pm::release_closed_pools();
  PoolOptions o = options();
  o.read_only = true;
  Node* node = nullptr;
  {
    Pool pool = Pool::open(path_.str(), o).value();
    node = node_of(pool);
  }
  EXPECT_TRUE(is_reserved(node));
  o.on_mistake = nullptr;
  {
    Pool pool = Pool::open(path_.str(), o).value();
    node = node_of(pool);
  }
  EXPECT_FALSE(is_reserved(node));
}

TEST_P(ClosedPools, the_oldest_is_given_back) {
  std::vector<Node*> nodes{closed_node()};
  while (nodes.size() <= pm::kClosedPoolsKept) {
    Pool pool = Pool::open(path_.str(), options()).value();
    nodes.push_back(node_of(pool));
  }
  EXPECT_FALSE(is_reserved(nodes[0]));
  for (std::size_t i = 1; i < nodes.size(); ++i) EXPECT_TRUE(is_reserved(nodes[i])) << i;
}

// --- other pools ---------------------------------------------------------------------------------

class OtherPools : public ::testing::Test {
 protected:
  std::string told() {
    std::string all;
    for (const std::string& text : std::exchange(said_, {})) all += text + "\n";
    return all;
  }
  template <class F>
  Status change(const F& f) {
    return pool_.run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(*node_));
      f();
      return Status::ok;
    });
  }
  TempPath path_{"other-a"};
  TempPath other_path_{"other-b"};
  std::vector<std::string> said_;
  Pool pool_ = Pool::create(path_.str(), watched(&said_)).value();
  Pool other_ = Pool::create(other_path_.str(), watched()).value();
  Node* const node_ = node_of(pool_);
  Node* const foreign_ = node_of(other_);
};

TEST_F(OtherPools, a_pointer_that_a_transaction_stores_is_told_once) {
  ASSERT_EQ(change([&] { node_->link = foreign_; }), Status::ok);
  const std::string said = told();
  for (const char* part : {"a pointer that leads out of its pool was stored", "8 bytes from the",
                           other_path_.str().c_str(), "block of 32 bytes", "allocated",
                           "commit of the transaction begun at", "mistakes_pools_test.cc:"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  }
  ASSERT_EQ(change([&] { node_->number = 3; }), Status::ok);
  EXPECT_EQ(told(), "");
}

TEST_F(OtherPools, in_a_new_object_and_in_one_that_was_flushed) {
  ASSERT_EQ(pool_.run([&](Transaction& tx) -> Status {
    const Result<void*> block = tx.alloc(sizeof(Node), {.zero = true});
    if (!block) return block.error();
    static_cast<Node*>(*block)->link = foreign_;
    return tx.free(*block);
  }),
            Status::ok);
  EXPECT_NE(told().find("leads out of its pool"), std::string::npos);
  node_->link = foreign_;
  flush(node_->link);
  fence("test", "test");
  ASSERT_EQ(change([] {}), Status::ok);
  EXPECT_NE(told().find("leads out of its pool"), std::string::npos);
  ASSERT_EQ(change([] {}), Status::ok);
  EXPECT_EQ(told(), "");
}

TEST_F(OtherPools, a_pointer_into_a_closed_pool_is_told_too) {
  ASSERT_EQ(other_.close(), Status::ok);
  ASSERT_EQ(change([&] { node_->link = foreign_; }), Status::ok);
  EXPECT_NE(told().find("it leads into the closed pool " + other_path_.str()), std::string::npos);
  pm::release_closed_pools();
}

TEST_F(OtherPools, numbers_that_lead_to_no_object_are_not_told) {
  auto* const begin = static_cast<char*>(other_.at({kFrameBytes}));
  for (const std::uint64_t number :
       {PtrWord::encode(&node_->number, begin), std::uint64_t{33'000'001},
        std::uint64_t{1'790'000'000'001}, ~std::uint64_t{0},
        PtrWord::encode(&node_->number, foreign_) & ~std::uint64_t{1}}) {
    ASSERT_EQ(change([&] { node_->number = number; }), Status::ok);
    EXPECT_EQ(told(), "") << number;
  }
}

// So no number below 2^41 can be taken for a pointer.
TEST_F(OtherPools, watched_pools_are_far_from_each_other) {
  const auto distance =
      std::abs(reinterpret_cast<char*>(node_) - reinterpret_cast<char*>(foreign_));
  EXPECT_GT(distance, std::ptrdiff_t{1} << 40);
}

TEST_F(OtherPools, a_field_that_refuses_says_why) {
  EXPECT_EQ(change([&] { node_->field = foreign_; }), Status::invalid_argument);
  std::string said = told();
  EXPECT_NE(said.find("a field gets a pointer out of its pool"), std::string::npos) << said;
  EXPECT_NE(said.find(other_path_.str()), std::string::npos) << said;
  EXPECT_NE(said.find("mistakes_pools_test.cc:"), std::string::npos) << said;
  Node in_dram{};
  EXPECT_EQ(change([&] { node_->field = &in_dram; }), Status::invalid_argument);
  EXPECT_NE((said = told()).find("into no object of a pool"), std::string::npos) << said;
}

TEST_F(OtherPools, a_range_that_the_transaction_refuses_says_where_it_is) {
  Transaction tx(pool_);
  EXPECT_EQ(tx.add(*foreign_), Status::invalid_argument);
  EXPECT_EQ(tx.overwrite(foreign_, sizeof(Node)), Status::invalid_argument);
  EXPECT_EQ(tx.free(foreign_), Status::invalid_argument);
  ASSERT_EQ(said_.size(), 3u);
  EXPECT_NE(told().find("the pointer leads into the pool " + other_path_.str()), std::string::npos);
  ASSERT_EQ(other_.close(), Status::ok);
  EXPECT_EQ(tx.add(*foreign_), Status::invalid_argument);
  EXPECT_NE(told().find("the closed pool " + other_path_.str()), std::string::npos);
  tx.abort();
  pm::release_closed_pools();
}

// Each looks into the other's heap while that one changes.
TEST_F(OtherPools, threads_in_both_pools_do_not_wait_for_each_other) {
  const auto work = [](Pool& pool, Node* node, Node* foreign) {
    for (int i = 0; i < 200; ++i) {
      EXPECT_EQ(pool.run([&](Transaction& tx) -> Status {
        TENUTO_TRY(tx.add(*node));
        const Result<void*> block = tx.alloc(64, {.zero = true});
        if (!block) return block.error();
        node->link = i % 2 == 0 ? foreign : node;
        return tx.free(*block);
      }),
                Status::ok);
    }
  };
  std::thread second([&] { work(other_, foreign_, node_); });
  work(pool_, node_, foreign_);
  second.join();
  EXPECT_EQ(said_.size(), 100u);
}

}  // namespace
}  // namespace tenuto
