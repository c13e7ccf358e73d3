// Transactions over several pools meet the rest of the library: fork, the end of a thread, a full
// pool, memory that fails, a pool opened to read, mistakes, a store in the same pool, a close.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "pm/plant.h"
#include "support/each_allocation.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/mistakes.h"
#include "tenuto/p.h"
#include "tenuto/pool.h"
#include "tenuto/tx.h"

namespace tenuto::test {
namespace {

struct Root {
  p<std::uint64_t> n;
  p<char*> block;
};

class SeveralPoolsCrossings : public testing::Test {
 protected:
  void SetUp() override { make(options_); }
  void make(const PoolOptions& options) {
    for (std::size_t i = 0; i < 2; ++i) {
      pool_[i].reset();
      ::unlink(path_[i].str().c_str());
      ::unlink((path_[i].str() + ".journal").c_str());
      Report report;
      Result<Pool> made = Pool::create(path_[i].str(), options, &report);
      ASSERT_TRUE(made) << report.text();
      pool_[i].emplace(std::move(*made));
      root_[i] = *pool_[i]->root<Root>("r");
    }
  }
  void reopen() {
    for (auto& p : pool_) p.reset();
    Report report;
    auto all = Pool::open_all({path_[0].str(), path_[1].str()}, options_, &report);
    ASSERT_TRUE(all) << report.text();
    for (std::size_t i = 0; i < 2; ++i) {
      pool_[i].emplace(std::move((*all)[i]));
      root_[i] = *pool_[i]->root<Root>("r");
    }
  }
  Status change(Transaction& tx, std::size_t i, std::uint64_t n) {
    root_[i]->n = n;
    const Result<void*> block = tx.alloc(100);
    if (!block) return block.error();
    if (root_[i]->block != nullptr) TENUTO_TRY(tx.free(root_[i]->block));
    root_[i]->block = static_cast<char*>(*block);
    return tx.status();
  }
  Status change_both_and_abort(std::uint64_t n) {
    Transaction first(*pool_[0]);
    Transaction part(*pool_[1], first);
    TENUTO_TRY(change(first, 0, n));
    TENUTO_TRY(change(part, 1, n));
    first.abort();
    return Status::ok;
  }
  Status change_both(std::uint64_t n) {
    Transaction first(*pool_[0]);
    Transaction part(*pool_[1], first);
    TENUTO_TRY(part.status());
    TENUTO_TRY(change(first, 0, n));
    TENUTO_TRY(change(part, 1, n));
    TENUTO_TRY(part.commit());
    return first.commit();
  }
  void expect_both(std::uint64_t n) {
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(root_[i]->n, n) << "pool " << i;
      Report report;
      EXPECT_EQ(pool_[i]->validate(&report), Status::ok) << report.text();
      const std::uint64_t objects = n == 0 ? 1 : 2;
      EXPECT_EQ(pool_[i]->stats().objects, objects);
    }
  }

  PoolOptions options_ = PoolParts::small_options();
  TempPath path_[2] = {TempPath("crossinga"), TempPath("crossingb")};
  std::optional<Pool> pool_[2];
  Root* root_[2] = {};
};

TEST_F(SeveralPoolsCrossings, a_child_of_a_fork_leaves_it_to_its_parent) {
  Transaction first(*pool_[0]);
  Transaction part(*pool_[1], first);
  ASSERT_EQ(change(first, 0, 4), Status::ok);
  ASSERT_EQ(change(part, 1, 4), Status::ok);
  const ::pid_t child = ::fork();
  if (child == 0) {
    const bool right = part.commit() == Status::forked && first.commit() == Status::forked;
    std::_Exit(right ? 0 : 1);
  }
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
  ASSERT_EQ(part.commit(), Status::ok);
  ASSERT_EQ(first.commit(), Status::ok);
  reopen();
  expect_both(4);
}

TEST_F(SeveralPoolsCrossings, the_end_of_its_thread_undoes_it_everywhere) {
  ASSERT_EQ(change_both(1), Status::ok);
  alignas(Transaction) std::byte room[2][sizeof(Transaction)];
  Transaction* left[2] = {};
  std::thread([&] {
    left[0] = new (room[0]) Transaction(*pool_[0]);
    left[1] = new (room[1]) Transaction(*pool_[1], *left[0]);
    EXPECT_EQ(change(*left[0], 0, 9), Status::ok);
    EXPECT_EQ(change(*left[1], 1, 9), Status::ok);
  }).join();
  expect_both(1);
  EXPECT_EQ(left[1]->commit(), Status::aborted);
  EXPECT_EQ(left[0]->commit(), Status::aborted);
  ASSERT_EQ(change_both(2), Status::ok);
  expect_both(2);
}

TEST_F(SeveralPoolsCrossings, a_pool_without_room_for_a_decision_undoes_both) {
  PoolOptions tiny = options_;
  tiny.size = tiny.size_max = kPoolBytesMin;
  make(tiny);
  for (const std::uint64_t bytes : {64u << 10, 16u << 10, 4u << 10}) {
    for (auto& pool : pool_) {
      while (pool->reserve(bytes)) continue;
    }
  }
  Status s = Status::ok;
  {
    Transaction first(*pool_[0]);
    Transaction part(*pool_[1], first);
    root_[0]->n = 5;
    root_[1]->n = 5;
    ASSERT_EQ(part.commit(), Status::ok);
    s = first.commit();
  }
  EXPECT_EQ(s, Status::full);
  EXPECT_EQ(root_[0]->n, 0u);
  EXPECT_EQ(root_[1]->n, 0u);
  ASSERT_EQ(pool_[0]->run([&](Transaction&) {
    root_[0]->n = 6;
    return Status::ok;
  }),
            Status::ok)
      << "one pool alone needs no room";
}

TEST_F(SeveralPoolsCrossings, every_allocation_that_fails_leaves_all_or_nothing) {
  bool done = false;
  fail_each_allocation(
      [&] {
        make(options_);
        done = false;
      },
      [&] {
        const Status s = change_both(7);
        done = s == Status::ok;
        EXPECT_TRUE(done || s == Status::full) << status_name(s);
      },
      [&] {
        expect_both(done ? 7 : 0);
        ASSERT_EQ(change_both(8), Status::ok) << "no lock is held, no transaction is open";
        expect_both(8);
      },
      true);
}

TEST_F(SeveralPoolsCrossings, a_pool_opened_to_read_takes_no_part) {
  pool_[1].reset();
  PoolOptions to_read = options_;
  to_read.read_only = true;
  Result<Pool> reader = Pool::open(path_[1].str(), to_read);
  ASSERT_TRUE(reader);
  Transaction first(*pool_[0]);
  EXPECT_EQ(Transaction(*reader, first).status(), Status::read_only);
  EXPECT_EQ(first.status(), Status::ok);
  ASSERT_EQ(first.commit(), Status::ok);
}

TEST_F(SeveralPoolsCrossings, a_forgotten_add_in_a_part_is_reported) {
  std::string said;
  options_.on_mistake = [&](const Report& r) { said += r.text() + "\n"; };
  reopen();
  Transaction first(*pool_[0]);
  Transaction part(*pool_[1], first);
  root_[0]->n = 1;
  reinterpret_cast<std::uint64_t&>(root_[1]->n) = 1;
  ASSERT_EQ(part.commit(), Status::ok);
  EXPECT_EQ(said, "");
  ASSERT_EQ(first.commit(), Status::ok);
  EXPECT_NE(said.find("several_pools_crossings_test.cc"), std::string::npos) << said;
}

TEST_F(SeveralPoolsCrossings, a_close_waits_for_the_common_end) {
  {
    Transaction first(*pool_[0]);
    Transaction part(*pool_[1], first);
    ASSERT_EQ(change(part, 1, 3), Status::ok);
    ASSERT_EQ(part.commit(), Status::ok);
    EXPECT_EQ(pool_[1]->close(), Status::busy);
    ASSERT_EQ(change(first, 0, 3), Status::ok);
    ASSERT_EQ(first.commit(), Status::ok);
  }
  expect_both(3);
  EXPECT_EQ(pool_[1]->close(), Status::ok);
  EXPECT_EQ(pool_[0]->close(), Status::ok);
}

TEST_F(SeveralPoolsCrossings, a_lock_is_of_all_pools_until_the_common_end) {
  std::mutex m;
  const auto held = [&m] {
    bool locked = false;
    std::thread([&] {
      locked = !m.try_lock();
      if (!locked) m.unlock();
    }).join();
    return locked;
  };
  for (const bool commits : {true, false}) {
    std::string calls;
    {
      Transaction first(*pool_[0]);
      Transaction part(*pool_[1], first);
      ASSERT_EQ(first.lock(m), Status::ok);
      ASSERT_EQ(part.lock(m), Status::ok) << "this thread has it";
      const auto note = [&](const char* what) {
        calls += what;
        if (!held()) calls += " unlocked";
      };
      ASSERT_EQ(first.on_end([&](bool) { note("1"); }), Status::ok);
      ASSERT_EQ(part.on_end([&](bool) {
        note("2");
        root_[1]->n = commits ? 1 : 2;  // an ordinary variable, as in one pool
      }),
                Status::ok);
      if (commits) {
        EXPECT_EQ(part.commit(), Status::ok);
        EXPECT_EQ(first.commit(), Status::ok);
      } else {
        first.abort();
      }
    }
    EXPECT_EQ(calls, "12");
    EXPECT_EQ(root_[1]->n, commits ? 1u : 2u);
    EXPECT_FALSE(held());
  }
}

// On medium journal, where a kill loses what was not synced. Bit i of `changed`: pool i.
struct KilledAfterCommit {
  Durability of[2];
  unsigned changed;
  std::optional<Durability> asked = {};
};
class SeveralPoolsDurability : public SeveralPoolsCrossings {
 protected:
  void SetUp() override {
    options_.medium = Medium::journal;
    options_.journal.sync_every_ms = 0;
  }
  // Which pools have it after a kill.
  unsigned kept(const KilledAfterCommit& k) {
    make(options_);
    for (auto& pool : pool_) EXPECT_EQ(pool->close(), Status::ok);
    const pid_t child = ::fork();
    if (child == 0) {
      for (std::size_t i = 0; i < 2; ++i) {
        PoolOptions o = options_;
        o.durability = k.of[i];
        pool_[i].emplace(Pool::open(path_[i].str(), o).value());
        root_[i] = *pool_[i]->root<Root>("r");
      }
      Transaction first(*pool_[0]);
      Transaction part(*pool_[1], first);
      for (std::size_t i = 0; i < 2; ++i) {
        if ((k.changed >> i & 1) != 0) root_[i]->n = 1;
      }
      const bool ok = part.commit() == Status::ok &&
                      (k.asked ? first.commit(*k.asked) : first.commit()) == Status::ok;
      ::_exit(ok ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    reopen();
    unsigned found = 0;
    for (std::size_t i = 0; i < 2; ++i) found |= static_cast<unsigned>(root_[i]->n.get()) << i;
    return found;
  }
};

TEST_F(SeveralPoolsDurability, a_commit_is_as_durable_as_the_strictest_pool_wants) {
  constexpr Durability kSync = Durability::sync, kBuffered = Durability::buffered;
  for (const unsigned changed : {1u, 2u, 3u}) {
    EXPECT_EQ(kept({{kBuffered, kSync}, changed}), changed) << "the part";
    EXPECT_EQ(kept({{kSync, kBuffered}, changed}), changed) << "the one that leads";
    EXPECT_EQ(kept({{kBuffered, kBuffered}, changed, kSync}), changed) << "the call";
  }
  EXPECT_EQ(kept({{kBuffered, kBuffered}, 2}), 0u);
  EXPECT_EQ(kept({{kBuffered, kSync}, 2, kBuffered}), 0u) << "the call says so for all";
  plant("tx_durability_of_the_leader_alone");
  EXPECT_EQ(kept({{kBuffered, kSync}, 2}), 0u);
  unplant_all();
}

// The next transaction of the lane has its own pools.
TEST_F(SeveralPoolsDurability, what_one_transaction_wanted_is_not_for_the_next) {
  make(options_);
  for (auto& pool : pool_) ASSERT_EQ(pool->close(), Status::ok);
  PoolOptions buffered = options_;
  buffered.durability = Durability::buffered;
  pool_[0].emplace(Pool::open(path_[0].str(), buffered).value());
  pool_[1].emplace(Pool::open(path_[1].str(), options_).value());
  for (std::size_t i = 0; i < 2; ++i) root_[i] = *pool_[i]->root<Root>("r");
  const auto syncs = [&] { return pool_[0]->stats().journal_commits; };
  for (const bool commits : {true, false}) {
    ASSERT_EQ(commits ? change_both(1) : change_both_and_abort(2), Status::ok);
    const std::uint64_t before = syncs();
    ASSERT_EQ(pool_[0]->run([&](Transaction&) {
      root_[0]->n = 5;
      return Status::ok;
    }),
              Status::ok);
    EXPECT_EQ(syncs(), before);
  }
}

TEST_F(SeveralPoolsCrossings, a_store_in_the_same_pool_goes_on_beside_it) {
  Result<Store> store = Store::open(std::move(*pool_[0]), {.create_if_missing = true});
  ASSERT_TRUE(store);
  pool_[0].reset();
  for (std::uint64_t i = 1; i <= 50; ++i) {
    ASSERT_EQ(store->put("key" + std::to_string(i), std::string(200, 'v')), Status::ok);
    Transaction first(store->pool());
    Transaction part(*pool_[1], first);
    root_[0]->n = i;
    root_[1]->n = i;
    ASSERT_EQ(part.commit(), Status::ok);
    ASSERT_EQ(first.commit(), Status::ok);
    if (i % 10 != 0) continue;
    for (std::uint64_t k = i - 9; k < i; ++k) {
      ASSERT_EQ(store->erase("key" + std::to_string(k)), Status::ok);
    }
    ASSERT_TRUE(store->compact());
    ASSERT_EQ(store->pool().trim(), Status::ok);
  }
  Report report;
  EXPECT_EQ(store->validate(&report), Status::ok) << report.text();
  ASSERT_EQ(store->close(), Status::ok);
  reopen();
  EXPECT_EQ(root_[0]->n, 50u);
  EXPECT_EQ(root_[1]->n, 50u);
}

// Two paths to one file are a mistake of the caller, and no other process has the pool.
TEST_F(SeveralPoolsCrossings, a_pool_that_is_named_twice_is_refused_before_any_is_opened) {
  const std::string a = path_[0].str();
  const std::string b = path_[1].str();
  for (auto& p : pool_) p.reset();
  const std::string link = a + ".link";
  const std::string hard = a + ".hard";
  ASSERT_EQ(::symlink(a.c_str(), link.c_str()), 0);
  ASSERT_EQ(::link(a.c_str(), hard.c_str()), 0);
  const std::size_t slash = a.rfind('/');
  const std::string other = a.substr(0, slash) + "/." + a.substr(slash);
  const auto changed = std::filesystem::last_write_time(b);
  for (const std::string& again : {a, link, hard, other}) {
    Report report;
    EXPECT_EQ(Pool::open_all({b, a, again}, options_, &report).error(), Status::invalid_argument);
    EXPECT_NE(report.text().find("named twice"), std::string::npos) << report.text();
    EXPECT_NE(report.text().find(again), std::string::npos) << report.text();
  }
  EXPECT_EQ(std::filesystem::last_write_time(b), changed);
  EXPECT_EQ(Pool::open_all({"/no/such/pool", "/no/such/pool"}, options_).error(),
            Status::not_found);
  ::unlink(link.c_str());
  ::unlink(hard.c_str());
  EXPECT_TRUE(Pool::open_all({a, b}, options_));
}

// An open of several that fails has opened some of them. They end as closed as they were before.
TEST_F(SeveralPoolsCrossings, an_open_of_several_that_fails_closes_what_it_opened) {
  const std::string paths[2] = {path_[0].str(), path_[1].str()};
  for (auto& p : pool_) p.reset();
  Report report;
  EXPECT_EQ(Pool::open_all({paths[0], paths[1], "/no/such/pool"}, options_, &report).error(),
            Status::not_found);
  EXPECT_NE(report.text().find("/no/such/pool"), std::string::npos) << report.text();
  PoolOptions to_read = options_;
  to_read.read_only = true;
  for (const std::string& path : paths)
    EXPECT_TRUE(Pool::open(path, to_read, &report)) << report.text();
  reopen();
  for (const auto& p : pool_) EXPECT_TRUE(p->info().was_clean);
}

}  // namespace
}  // namespace tenuto::test
