// The public Pool: creating, opening and refusing pools, the root object, several pools at once,
// read-only use, and transactions as a user sees them.
#include "tenuto/pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "support/pool_parts.h"

namespace tenuto {
namespace {

using test::TempPath;

PoolOptions small() { return test::PoolParts::small_options(); }

struct Account {
  std::uint64_t balance[8];
  Ptr<Account> next;
};

TEST(PoolTest, what_hangs_on_the_root_is_found_again_at_another_address) {
  TempPath path("pool1");
  Report report;
  {
    auto pool = Pool::create(path.str(), small(), &report);
    ASSERT_TRUE(pool) << report.text();
    auto root = pool->root<Account>("account v1");
    ASSERT_TRUE(root);
    EXPECT_EQ((*root)->balance[3], 0u);
    ASSERT_EQ(pool->run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(**root));
      (*root)->balance[3] = 77;
      auto child = tx.make<Account>();
      if (!child) return child.error();
      (*child)->balance[0] = 5;
      (*root)->next = *child;
      return Status::ok;
    }),
              Status::ok);
    ASSERT_EQ(pool->close(), Status::ok);
  }
  // Another pool takes the old address.
  TempPath other_path("pool1b");
  auto other = Pool::create(other_path.str(), small());
  ASSERT_TRUE(other);
  auto pool = Pool::open(path.str(), small(), &report);
  ASSERT_TRUE(pool) << report.text();
  EXPECT_TRUE(pool->info().was_clean);
  EXPECT_EQ(pool->info().layout, "account v1");
  auto root = pool->root<Account>("account v1");
  ASSERT_TRUE(root);
  EXPECT_EQ((*root)->balance[3], 77u);
  EXPECT_EQ((*root)->next->balance[0], 5u);
  EXPECT_EQ(pool->root<Account>("account v2", &report).error(), Status::invalid_argument);
  EXPECT_EQ(pool->root("account v1", 8, &report).error(), Status::invalid_argument);
  EXPECT_EQ(pool->validate(&report), Status::ok) << report.text();
}

TEST(PoolTest, a_callback_cannot_close_the_pool_that_calls_it) {
  TempPath path("pool-callback");
  auto pool = Pool::create(path.str(), small());
  ASSERT_TRUE(pool);
  auto root = pool->root<Account>("account v1");
  ASSERT_TRUE(root);
  for (const Status end : {Status::ok, Status::aborted}) {
    Status closed = Status::ok;
    EXPECT_EQ(pool->run([&](Transaction& tx) {
      TENUTO_TRY(tx.add((*root)->balance));
      (*root)->balance[0] += 1;
      TENUTO_TRY(tx.on_end([&](bool) { closed = pool->close(); }));
      return end;
    }),
              end);
    EXPECT_EQ(closed, Status::busy);
  }
  EXPECT_EQ((*root)->balance[0], 1u);
  EXPECT_EQ(pool->close(), Status::ok);
}

TEST(PoolTest, a_pool_that_failed_is_not_closed_under_a_transaction) {
  TempPath path("pool-failed");
  PoolOptions options = small();
  options.canaries = true;
  auto pool = Pool::create(path.str(), options);
  ASSERT_TRUE(pool);
  auto root = pool->root<Account>("account v1");
  ASSERT_TRUE(root);
  ASSERT_EQ(pool->malloc_to((*root)->next), Status::ok);
  Account* const block = (*root)->next.get();
  std::memset(static_cast<void*>(block), 1, pool->usable_size(block) + 1);
  {
    Transaction tx(*pool);
    ASSERT_EQ(tx.add((*root)->balance), Status::ok);
    (*root)->balance[0] = 1;
    EXPECT_EQ(pool->free_from((*root)->next), Status::corrupt);
    EXPECT_EQ(pool->close(), Status::busy);
    EXPECT_EQ(tx.commit(), Status::corrupt);
    EXPECT_EQ((*root)->balance[0], 0u);
  }
  EXPECT_EQ(pool->close(), Status::corrupt);
}

TEST(PoolTest, a_guard_outlives_its_pool) {
  TempPath path("pool-guard");
  std::mutex m;
  std::optional<Pool> pool(Pool::create(path.str(), small()).value());
  Account& root = **pool->root<Account>("account v1");
  {
    Transaction tx(*pool);
    Transaction inner(*pool);
    ASSERT_EQ(tx.lock(m), Status::ok);
    ASSERT_EQ(tx.add(root.balance), Status::ok);
    root.balance[0] = 1;
    pool.reset();
    EXPECT_EQ(inner.status(), Status::closed);
    EXPECT_EQ(inner.commit(), Status::closed);
    EXPECT_EQ(tx.commit(), Status::closed);
    EXPECT_TRUE(m.try_lock());
    m.unlock();
  }
  pool.emplace(Pool::open(path.str(), small()).value());
  EXPECT_EQ((*pool->root<Account>("account v1"))->balance[0], 0u);
}

TEST(PoolTest, an_aborted_transaction_leaves_nothing) {
  TempPath path("pool2");
  auto pool = Pool::create(path.str(), small());
  ASSERT_TRUE(pool);
  auto root = pool->root<Account>("a");
  ASSERT_TRUE(root);
  const auto before = pool->stats().allocated_bytes;
  EXPECT_EQ(pool->run([&](Transaction& tx) {
    TENUTO_TRY(tx.add(**root));
    (*root)->balance[0] = 1;
    auto child = tx.make<Account>();
    if (!child) return child.error();
    (*root)->next = *child;
    return Status::aborted;
  }),
            Status::aborted);
  EXPECT_EQ((*root)->balance[0], 0u);
  EXPECT_EQ((*root)->next.get(), nullptr);
  EXPECT_EQ(pool->validate(), Status::ok);
  EXPECT_EQ(pool->stats().allocated_bytes, before);
}

TEST(PoolTest, an_exception_rolls_back_and_passes) {
  TempPath path("pool3");
  auto pool = Pool::create(path.str(), small());
  ASSERT_TRUE(pool);
  auto root = pool->root<Account>("a");
  ASSERT_TRUE(root);
  EXPECT_THROW((void)pool->run([&](Transaction& tx) -> Status {
    TENUTO_TRY(tx.add((*root)->balance));
    (*root)->balance[0] = 1;
    throw std::runtime_error("no");
  }),
               std::runtime_error);
  EXPECT_EQ((*root)->balance[0], 0u);
}

TEST(PoolTest, what_cannot_be_opened_is_refused_with_the_reason) {
  TempPath path("pool4");
  Report report;
  EXPECT_EQ(Pool::open(path.str(), small(), &report).error(), Status::not_found);
  EXPECT_NE(report.text().find("No such file"), std::string::npos) << report.text();
  EXPECT_EQ(Pool::open("/dev/shm", small(), &report).error(), Status::not_a_pool);
  EXPECT_EQ(Pool::open("", small(), &report).error(), Status::invalid_argument);
  EXPECT_EQ(Pool::create("/nowhere/at/all", small(), &report).error(), Status::not_found);
  { std::ofstream(path.str()) << "hello"; }
  EXPECT_EQ(Pool::open(path.str(), small(), &report).error(), Status::not_a_pool);
  EXPECT_EQ(Pool::create(path.str(), small(), &report).error(), Status::exists);
  ASSERT_EQ(::truncate(path.str().c_str(), 16 << 20), 0);
  EXPECT_EQ(Pool::open(path.str(), small(), &report).error(), Status::not_a_pool);
  PoolOptions o = small();
  o.size = 4096;
  TempPath second("pool4b");
  EXPECT_EQ(Pool::create(second.str(), o, &report).error(), Status::invalid_argument);
  o = small();
  o.stripes = 33;
  EXPECT_EQ(Pool::create(second.str(), o, &report).error(), Status::invalid_argument);
  EXPECT_EQ(Pool::open(second.str(), small(), &report).error(), Status::not_found)
      << "a failed create leaves no file";
}

TEST(PoolTest, a_second_opener_is_refused) {
  TempPath path("pool5");
  auto pool = Pool::create(path.str(), small());
  ASSERT_TRUE(pool);
  Report report;
  EXPECT_EQ(Pool::open(path.str(), small(), &report).error(), Status::busy) << report.text();
  PoolOptions ro = small();
  ro.read_only = true;
  EXPECT_EQ(Pool::open(path.str(), ro, &report).error(), Status::busy) << report.text();
  ASSERT_EQ(pool->close(), Status::ok);
  EXPECT_TRUE(Pool::open(path.str(), small(), &report));
}

TEST(PoolTest, a_read_only_pool_reads_and_refuses_writes) {
  TempPath path("pool6");
  {
    auto pool = Pool::create(path.str(), small());
    ASSERT_TRUE(pool);
    ASSERT_TRUE(pool->root<Account>("a"));
  }
  PoolOptions ro = small();
  ro.read_only = true;
  Report report;
  auto one = Pool::open(path.str(), ro, &report);
  auto two = Pool::open(path.str(), ro, &report);
  ASSERT_TRUE(one) << report.text();
  ASSERT_TRUE(two) << report.text();
  auto root = one->root<Account>("a");
  ASSERT_TRUE(root);
  EXPECT_EQ((*root)->balance[0], 0u);
  EXPECT_EQ(one->run([](Transaction&) { return Status::ok; }), Status::read_only);
  EXPECT_EQ(one->reserve(64).error(), Status::read_only);
  EXPECT_EQ(one->malloc_to((*root)->next), Status::read_only);
  EXPECT_EQ(one->validate(&report), Status::ok) << report.text();
}

TEST(PoolTest, a_closed_or_moved_pool_answers_closed) {
  TempPath path("pool7");
  auto pool = Pool::create(path.str(), small());
  ASSERT_TRUE(pool);
  Pool moved = std::move(*pool);
  EXPECT_EQ(pool->reserve(8).error(), Status::closed);
  EXPECT_EQ(pool->run([](Transaction&) { return Status::ok; }), Status::closed);
  EXPECT_EQ(moved.close(), Status::ok);
  EXPECT_EQ(moved.close(), Status::closed);
  EXPECT_EQ(moved.root<Account>("a").error(), Status::closed);
}

TEST(PoolTest, reserved_blocks_are_published_once_or_cancelled) {
  TempPath path("pool8");
  auto pool = Pool::create(path.str(), small());
  ASSERT_TRUE(pool);
  auto root = pool->root<Account>("a");
  ASSERT_TRUE(root);
  auto block = pool->reserve(64);
  ASSERT_TRUE(block);
  EXPECT_EQ(pool->publish(*block, (*root)->next.word()), Status::ok);
  EXPECT_EQ((*root)->next.get(), block->data);
  EXPECT_EQ(pool->cancel(*block), Status::invalid_argument);
  EXPECT_EQ(pool->publish(*block, (*root)->next.word()), Status::invalid_argument);
  auto other = pool->reserve(64);
  ASSERT_TRUE(other);
  EXPECT_EQ(pool->cancel(*other), Status::ok);
}

// One copy of the superblock may be lost, but not both.
TEST(PoolTest, one_damaged_superblock_copy_is_survived) {
  TempPath path("pool9");
  { ASSERT_TRUE(Pool::create(path.str(), small())); }
  for (const int copy : {0, 1}) {
    const int fd = ::open(path.str().c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    char saved[64];
    ASSERT_EQ(::pread(fd, saved, sizeof saved, copy * 4096), 64);
    char bad[64];
    std::memset(bad, 0x5a, sizeof bad);
    ASSERT_EQ(::pwrite(fd, bad, sizeof bad, copy * 4096), 64);
    ::close(fd);
    Report report;
    auto pool = Pool::open(path.str(), small(), &report);
    ASSERT_TRUE(pool) << report.text();
    EXPECT_EQ(pool->validate(&report), Status::ok) << report.text();
  }
  const int fd = ::open(path.str().c_str(), O_RDWR);
  char bad[8192] = {1};
  ASSERT_EQ(::pwrite(fd, bad, sizeof bad, 0), 8192);
  ::close(fd);
  EXPECT_EQ(Pool::open(path.str(), small()).error(), Status::not_a_pool);
}

TEST(PoolTest, a_pointer_to_itself_is_not_null) {
  Ptr<Ptr<int>> p;
  EXPECT_FALSE(p);
  p = reinterpret_cast<Ptr<int>*>(&p);
  EXPECT_TRUE(p);
  EXPECT_EQ(static_cast<void*>(p.get()), &p);
}

}  // namespace
}  // namespace tenuto
