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

constexpr std::size_t kBlocks = 3;  // small, with a type, an extent

struct Root {
  p<std::uint64_t> n;
  p<char*> block[kBlocks];
  p<char*> many[1100];  // more than are kept in limbo
};

class SeveralPoolsDisk : public testing::Test {
 protected:
  SeveralPoolsDisk() {
    options_.medium = Medium::journal;
    options_.size = kPoolBytesMin;
    options_.journal.bytes = 4u << 20;
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
  Status change(Transaction& tx, Root& root, std::uint64_t n) {
    root.n = n;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const Result<void*> fresh = tx.alloc(i == 2 ? 40'000 : 100, {.type = i == 1 ? 7u : 0u});
      if (!fresh) return fresh.error();
      if (root.block[i] != nullptr) TENUTO_TRY(tx.free(root.block[i]));
      root.block[i] = static_cast<char*>(*fresh);
    }
    return tx.status();
  }
  // The pool whose disk works is whole. Returns what is wrong.
  static std::string goes_on(Pool& pool, std::uint64_t done) {
    Report report;
    const Status health = pool.health();
    if (health == Status::io || health == Status::in_doubt) return {};
    if (health != Status::ok) return status_name(health);
    if (pool.validate(&report) != Status::ok) return report.text();
    if (pool.stats().objects != (done == 0 ? 1 : 1 + kBlocks)) return "blocks";
    const Status s = pool.run([&](Transaction& tx) {
      const Result<void*> block = tx.alloc(100);
      return block ? tx.free(*block) : block.error();
    });
    // It may notice only now that its disk failed.
    return s == Status::ok || s == Status::io ? "" : status_name(s);
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
      Status s = change(first, *root[n % 2], n);
      if (s == Status::ok) s = change(part, *root[(n + 1) % 2], n);
      if (s == Status::ok) s = part.commit();
      if (s == Status::ok) s = first.commit();
      if (n == 2) met = failed_call_anywhere(nullptr);
      if (s != Status::ok) break;
      done = n;
    }
    for (Pool& pool : *pools) wrong_meanwhile_ += goes_on(pool, done);
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
      if (pool.stats().objects != (a == 0 ? 1 : 1 + kBlocks)) return "blocks";
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

  std::string fail_a_decision();

  std::string wrong_meanwhile_;
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
      EXPECT_EQ(wrong_meanwhile_, "");
    }
  }
  EXPECT_GE(failed, 8);
}

TEST_F(SeveralPoolsDisk, a_commit_that_failed_clears_the_bits_of_its_blocks) {
#ifndef TENUTO_DEBUG_CHECKS
  GTEST_SKIP() << "mistakes are planted in builds with debug checks";
#endif
  plant("tx_bits_of_a_failed_commit_stay");
  bool met = true;
  for (int call = 1; met && wrong_meanwhile_.empty(); ++call) {
    make();
    work(call, EIO, false, met);
  }
  unplant_all();
  EXPECT_NE(wrong_meanwhile_, "") << "the mistake was not found";
}

// The sync of a decision fails. Then the part is in doubt, and the pool that failed may not decide
// before it was opened again. Returns what is wrong.
std::string SeveralPoolsDisk::fail_a_decision() {
  options_.journal.sync_every_ms = 1;
  int tries = 0;  // the journals sync when they like, so a failure may meet another step
  for (int call = 1; tries < 30; ++call) {
    make();
    auto pools = Pool::open_all(paths_, options_);
    if (!pools) return "open";
    Root* root[2] = {*(*pools)[0].root<Root>("r"), *(*pools)[1].root<Root>("r")};
    const auto both = [&](const auto& change) {
      Transaction first((*pools)[0]);
      Transaction part((*pools)[1], first);
      Status s = change(first, *root[0]);
      if (s == Status::ok) s = change(part, *root[1]);
      if (s == Status::ok) s = part.commit();
      return s == Status::ok ? first.commit() : s;
    };
    const Status made = both([](Transaction& tx, Root& r) {
      for (auto& many : r.many) {
        const Result<void*> block = tx.alloc(100);
        if (!block) return block.error();
        many = static_cast<char*>(*block);
      }
      return tx.status();
    });
    if (made != Status::ok) return "the blocks: " + std::string(status_name(made));
    fail_call_anywhere(call, EIO, false);
    const Status freed = both([](Transaction& tx, Root& r) {
      r.n = 1;
      for (auto& many : r.many) TENUTO_TRY(tx.free(many));
      return tx.status();
    });
    const bool met = failed_call_anywhere(nullptr);
    if (!met) {
      tries += 1;
      call = 0;
      continue;
    }
    if (freed == Status::ok) continue;
    std::size_t part = 2;
    for (std::size_t i = 0; i < 2; ++i) {
      if ((*pools)[i].health() == Status::in_doubt) part = i;
    }
    if (part == 2) continue;  // it failed before the decision
    ::usleep(20'000);         // the journal of the part goes on
    { const Pool closed = std::move((*pools)[part]); }
    Report report;
    const Result<Pool> again = Pool::open(paths_[part], options_, &report);
    if (again || again.error() != Status::in_doubt) return "a pool that failed decides";
    pools->clear();
    auto all = Pool::open_all(paths_, options_, &report);
    if (!all) return report.text();
    std::uint64_t n[2];
    for (std::size_t i = 0; i < 2; ++i) {
      Root* const r = *(*all)[i].root<Root>("r");
      n[i] = r->n;
      for (const auto& many : r->many) {
        if (((*all)[i].usable_size(many) == 0) != (n[i] == 1)) return "a block";
      }
    }
    return n[0] == n[1] ? "" : "one of the two has changed";
  }
  return "no call was that of a decision";
}

TEST_F(SeveralPoolsDisk, a_pool_that_failed_decides_nothing) { EXPECT_EQ(fail_a_decision(), ""); }

TEST_F(SeveralPoolsDisk, a_pool_that_failed_leaves_parts_as_they_are) {
#ifndef TENUTO_DEBUG_CHECKS
  GTEST_SKIP() << "mistakes are planted in builds with debug checks";
#endif
  for (const auto& [mistake, symptom] :
       {std::pair{"tx_failed_pool_decides", "a pool that failed decides"},
        {"tx_part_in_doubt_frees_blocks", "a block"}}) {
    plant(mistake);
    EXPECT_EQ(fail_a_decision(), symptom) << mistake;
    unplant_all();
  }
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
    std::string wrong;
    int kills = 0;
    // The ids of the pools are random, and tell which one decides.
    for (int tries = 0; tries < 16 && wrong.empty(); ++tries) wrong = kill_in_every_call(kills);
    unplant_all();
    EXPECT_NE(wrong.find(symptom), std::string::npos) << mistake << " was not found: " << wrong;
  }
}

}  // namespace
}  // namespace tenuto::test
