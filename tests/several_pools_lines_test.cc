// Decision lines of transactions over several pools: who waits for them, when they are used again,
// and when they are gone. A pool that is kept for long decides for many that come and go.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "pm/plant.h"
#include "support/pool_parts.h"
#include "tenuto/p.h"
#include "tenuto/pool.h"
#include "tenuto/tx.h"

namespace tenuto::test {
namespace {

struct Root {
  p<std::uint64_t> n;
};

// Pool 0 has the smallest id, so it decides.
class SeveralPoolsLines : public testing::TestWithParam<Medium> {
 protected:
  static constexpr std::size_t kPools = 4;

  void SetUp() override {
    options_.medium = GetParam();
    options_.size = kPoolBytesMin;
    options_.recovery_threads = 1;
    options_.durability = Durability::buffered;
    if (options_.medium == Medium::journal) {
      options_.journal.bytes = 4u << 20;
      options_.journal.sync_every_ms = 0;
    }
    std::vector<std::pair<std::uint64_t, std::string>> made;
    for (TempPath& path : paths_) {
      Report report;
      Result<Pool> pool = Pool::create(path.str(), options_, &report);
      ASSERT_TRUE(pool) << report.text();
      ASSERT_TRUE(pool->root<Root>("r"));
      made.emplace_back(pool->info().pool_id, path.str());
    }
    std::sort(made.begin(), made.end());
    for (std::size_t i = 0; i < kPools; ++i) std::tie(id_[i], path_[i]) = made[i];
  }
  Pool open(std::size_t i) {
    Report report;
    Result<Pool> pool = Pool::open(path_[i], options_, &report);
    EXPECT_TRUE(pool) << report.text();
    return std::move(*pool);
  }
  static Root& root(Pool& pool) { return **pool.root<Root>("r"); }
  static Status put(Pool& a, Pool& b, std::uint64_t n) {
    Transaction first(a);
    Transaction part(b, first);
    root(a).n = n;
    root(b).n = n;
    TENUTO_TRY(part.commit());
    return first.commit();
  }
  // f in a process of its own. f ends it by stop(), so its pools are not closed.
  [[noreturn]] static void stop(bool right) { std::_Exit(right ? 0 : 1); }
  static void and_be_killed(const std::function<void()>& f) {
    const ::pid_t child = ::fork();
    if (child == 0) {
      f();
      std::abort();
    }
    int how = 0;
    ASSERT_EQ(::waitpid(child, &how, 0), child);
    EXPECT_EQ(how, 0);
  }

  PoolOptions options_;
  TempPath paths_[kPools] = {TempPath("linesa"), TempPath("linesb"), TempPath("linesc"),
                             TempPath("linesd")};
  std::string path_[kPools];
  std::uint64_t id_[kPools] = {};
};

INSTANTIATE_TEST_SUITE_P(Media, SeveralPoolsLines, testing::Values(Medium::line, Medium::journal),
                         [](const auto& of) { return medium_name(of.param); });

TEST_P(SeveralPoolsLines, pools_come_and_go_beside_one_that_stays) {
  Pool stays = open(0);
  std::uint64_t n = 0;
  for (std::size_t i = 1; i < kPools; ++i) {
    Pool other = open(i);
    for (int k = 0; k < 600; ++k) ASSERT_EQ(put(stays, other, ++n), Status::ok) << n;
    EXPECT_LE(stays.info().decisions_waiting, i) << "the last line of each pool";
    ASSERT_EQ(other.close(), Status::ok);
  }
  ASSERT_EQ(stays.close(), Status::ok);
  const Pool again = open(0);
  EXPECT_EQ(again.info().decisions_waiting, 0u);
}

TEST_P(SeveralPoolsLines, a_kill_leaves_few_lines_and_they_go_when_their_pool_is_met_again) {
  constexpr std::uint64_t kLast = 1500;
  and_be_killed([&] {
    Pool a = open(0), b = open(1);
    for (std::uint64_t n = 1; n <= kLast; ++n) {
      if (put(a, b, n) != Status::ok) stop(false);
    }
    stop(true);
  });
  Pool a = open(0);
  EXPECT_EQ(a.info().pools_waited_for, std::vector{id_[1]});
  EXPECT_LE(a.info().decisions_waiting, 3u);
  EXPECT_GE(a.info().decisions_waiting, 1u);
  Pool b = open(1);
  EXPECT_EQ(root(a).n, kLast);
  EXPECT_EQ(root(b).n, kLast);
  EXPECT_EQ(b.info().decisions_waiting, 0u);
  ASSERT_EQ(b.close(), Status::ok);
  ASSERT_EQ(a.close(), Status::ok);
  EXPECT_EQ(open(0).info().pools_waited_for, std::vector<std::uint64_t>{});
}

TEST_P(SeveralPoolsLines, a_lost_pool_is_forgotten) {
  and_be_killed([&] {
    Pool a = open(0), b = open(1), c = open(2);
    stop(put(a, b, 1) == Status::ok && put(a, c, 2) == Status::ok);
  });
  {
    Pool a = open(0), c = open(2);
    EXPECT_EQ(a.info().pools_waited_for, (std::vector{id_[1], id_[2]}));
    EXPECT_EQ(a.forget_pool(id_[2]), Status::invalid_argument) << "it is open";
    {
      Transaction tx(a);
      EXPECT_EQ(a.forget_pool(id_[1]), Status::busy);
    }
    EXPECT_EQ(a.forget_pool(id_[1]), Status::ok);
    EXPECT_EQ(a.info().pools_waited_for, std::vector{id_[2]});
    EXPECT_EQ(root(c).n, 2u);
    ASSERT_EQ(put(a, c, 3), Status::ok);
    ASSERT_EQ(c.close(), Status::ok);
  }
  PoolOptions reads = options_;
  reads.read_only = true;
  Result<Pool> a = Pool::open(path_[0], reads);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->info().decisions_waiting, 0u);
  EXPECT_EQ(a->forget_pool(1), Status::read_only);
  ASSERT_EQ(a->close(), Status::ok);
  EXPECT_EQ(a->forget_pool(1), Status::closed);
}

// Under a journal a part's own record may be lost after its commit has returned. So its line stays
// until that record is durable, although others need lines meanwhile.
TEST_P(SeveralPoolsLines, a_part_finds_its_line_until_its_record_is_durable) {
#ifndef TENUTO_DEBUG_CHECKS
  constexpr const char* kMistakes[] = {nullptr};
#else
  constexpr const char* kMistakes[] = {nullptr, "tx_decision_told_unsynced"};
#endif
  for (const char* const mistake : kMistakes) {
    and_be_killed([&] {
      Pool a = open(0), b = open(1), c = open(2);
      if (mistake != nullptr) plant(mistake);
      stop(put(a, b, 1) == Status::ok && put(a, c, 2) == Status::ok && put(a, c, 3) == Status::ok);
    });
    Pool a = open(0), b = open(1), c = open(2);
    EXPECT_EQ(root(a).n, 3u);
    EXPECT_EQ(root(c).n, 3u);
    const bool found = root(b).n != 1;
    EXPECT_EQ(found, mistake != nullptr && GetParam() == Medium::journal);
    ASSERT_EQ(put(a, b, 0), Status::ok);
  }
}

}  // namespace
}  // namespace tenuto::test
