// Transactions over two pools with journals on a disk that fails, or loses its process, in each of
// the calls that a commit makes. Afterwards both pools have the same number, and what returned ok
// as synced is there.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "pm/plant.h"
#include "support/failing_calls.h"
#include "support/pool_parts.h"
#include "tenuto/p.h"
#include "tenuto/pool.h"
#include "tenuto/tx.h"

namespace tenuto::test {
namespace {

struct Root {
  p<std::uint64_t> n;
};

class SeveralPoolsDisk : public testing::Test {
 protected:
  SeveralPoolsDisk() {
    options_.medium = Medium::journal;
    options_.size = kPoolBytesMin;
    options_.journal.bytes = 256u << 10;
    options_.journal.sync_every_ms = 0;
    options_.recovery_threads = 1;
  }
  void make() {
    for (std::size_t i = 0; i < 2; ++i) {
      ::unlink(paths_[i].c_str());
      ::unlink((paths_[i] + ".journal").c_str());
      Result<Pool> pool = Pool::create(paths_[i], options_);
      ASSERT_TRUE(pool);
      ASSERT_TRUE(pool->root<Root>("r"));
      ASSERT_EQ(pool->close(), Status::ok);
    }
  }
  // Three transactions; a call fails in the second, if one does. Returns the last that was ok.
  std::uint64_t work(int call, int how, bool lasting, bool& met) {
    auto pools = Pool::open_all(paths_, options_);
    if (!pools) return 0;
    Root* root[2] = {*(*pools)[0].root<Root>("r"), *(*pools)[1].root<Root>("r")};
    std::uint64_t done = 0;
    for (std::uint64_t n = 1; n <= 3; ++n) {
      if (n == 2) fail_call_anywhere(call, how, lasting);
      Transaction first((*pools)[n % 2]);
      Transaction part((*pools)[(n + 1) % 2], first);
      root[0]->n = n;
      root[1]->n = n;
      const Status inner = part.commit();
      const Status s = inner == Status::ok ? first.commit() : inner;
      if (n == 2) met = failed_call_anywhere(nullptr);
      if (s != Status::ok) break;
      done = n;
    }
    return done;
  }
  // What is wrong with the pools after that; empty: nothing.
  std::string wrong_after(std::uint64_t done) {
    Report report;
    auto pools = Pool::open_all(paths_, options_, &report);
    if (!pools) return std::string(status_name(pools.error())) + ": " + report.text();
    const std::uint64_t a = (*(*pools)[0].root<Root>("r"))->n;
    const std::uint64_t b = (*(*pools)[1].root<Root>("r"))->n;
    if (a != b || a < done) return std::to_string(a) + " and " + std::to_string(b);
    for (Pool& pool : *pools) {
      if (pool.validate(&report) != Status::ok) return report.text();
      if (pool.close() != Status::ok) return "close";
    }
    return {};
  }
  // Kills a child in each call in turn. Returns the first thing that is wrong.
  std::string kill_in_every_call(int& kills) {
    for (int call = 1; !HasFailure(); ++call) {
      make();
      const ::pid_t child = ::fork();
      if (child == 0) {
        bool met = false;
        std::_Exit(work(call, kKillProcess, false, met) == 3 ? 0 : 1);
      }
      int how = 0;
      EXPECT_EQ(::waitpid(child, &how, 0), child);
      std::string wrong = wrong_after(WIFSIGNALED(how) ? 1 : 3);
      if (!wrong.empty()) return "call " + std::to_string(call) + ": " + wrong;
      if (!WIFSIGNALED(how)) break;
      kills += 1;
    }
    return {};
  }

  PoolOptions options_;
  TempPath a_{"diska"}, b_{"diskb"}, ja_{"diska.journal"}, jb_{"diskb.journal"};
  std::vector<std::string> paths_{a_.str(), b_.str()};
};

TEST_F(SeveralPoolsDisk, a_call_that_fails_leaves_both_pools_alike) {
  int failed = 0;
  for (const bool lasting : {false, true}) {
    bool met = true;
    for (int call = 1; met && !HasFailure(); ++call) {
      SCOPED_TRACE("call " + std::to_string(call));
      make();
      const std::uint64_t done = work(call, EIO, lasting, met);
      EXPECT_TRUE(met || done == 3);
      failed += met;
      EXPECT_EQ(wrong_after(done), "");
    }
  }
  EXPECT_GE(failed, 8);
}

TEST_F(SeveralPoolsDisk, a_kill_in_any_call_leaves_both_pools_alike) {
  int kills = 0;
  EXPECT_EQ(kill_in_every_call(kills), "");
  EXPECT_GE(kills, 4);
}

TEST_F(SeveralPoolsDisk, each_sync_is_needed) {
#ifndef TENUTO_DEBUG_CHECKS
  GTEST_SKIP() << "mistakes are planted in builds with debug checks";
#endif
  for (const auto& [mistake, symptom] : {std::pair{"tx_decider_not_synced_first", "older copy"},
                                         {"tx_parts_not_synced", " and "},
                                         {"tx_decision_not_synced", " and "}}) {
    plant(mistake);
    int kills = 0;
    const std::string wrong = kill_in_every_call(kills);
    unplant_all();
    EXPECT_NE(wrong.find(symptom), std::string::npos) << mistake << " was not found: " << wrong;
  }
}

}  // namespace
}  // namespace tenuto::test
