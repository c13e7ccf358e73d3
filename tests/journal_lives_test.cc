// Lives of one pool under changing media, which end by a close or a kill. Also how full the journal
// may get: it is always checkpointed in time, for its space and for the time of a replay.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "file/pool_file.h"
#include "pm/plant.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"
#include "support/seed.h"
#include "tenuto/collection.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

std::string noise(std::size_t bytes, std::mt19937_64& rng) {
  std::string v(bytes, ' ');
  for (char& c : v) c = static_cast<char>(rng());
  return v;
}

class JournalLives : public testing::TestWithParam<bool> {};

// A journal may stay beside a pool whose later lives use another medium. It changes nothing for
// them, nor for later lives that use it again.
TEST_P(JournalLives, each_medium_reads_what_any_other_left) {
  const bool keep = GetParam();
  const JournalPaths paths("journal-lives");
  const std::uint64_t seed = tenuto::test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 rng(seed);
  Records model;
  int seen[3][2] = {};
  for (int life = 0; life < 60; ++life) {
    const auto which = static_cast<std::size_t>(rng() % 3);
    const bool clean = rng() % 2 == 0;
    seen[which][clean ? 1 : 0] += 1;
    StoreOptions o = journalled(paths);
    o.pool.medium = std::array{Medium::cache, Medium::line, Medium::journal}[which];
    o.pool.size = kPoolBytesMin;
    o.pool.journal.bytes = 256u << 10;
    o.pool.journal.keep = keep;
    Records next = model;
    for (int i = 0; i < 12; ++i) next[std::to_string(rng() % 50)] = noise(300, rng);
    SCOPED_TRACE("life " + std::to_string(life) + (clean ? ", closed, " : ", killed, ") +
                 medium_name(o.pool.medium));
    run_and_kill([&] {
      Report report;
      Result<Store> s = Store::open(paths.pool.str(), o, &report);
      if (!s) std::fprintf(stderr, "%s\n", report.text().c_str());
      if (!s || records_of(*s) != model || s->validate() != Status::ok) return false;
      for (const auto& [key, value] : next) {
        if (s->put(key, value) != Status::ok) return false;
      }
      if (clean) return s->close() == Status::ok;
      std::_Exit(0);
    });
    if (HasFatalFailure()) return;
    model = next;
  }
  for (const auto& of_medium : seen) EXPECT_TRUE(of_medium[0] > 0 && of_medium[1] > 0);
}

// An open that makes a store syncs it, without a timer and without any other call.
TEST(JournalLivesTest, a_store_that_an_open_made_is_durable_on_return) {
  const JournalPaths paths("journal-made");
  StoreOptions o = journalled(paths);
  o.pool.journal.sync_every_ms = 0;
  o.order = KeyOrder::u64;
  run_and_kill([&] {
    const auto* const opened = new Result<Store>(Store::open(paths.pool.str(), o));
    return bool(*opened);
  });
  ASSERT_FALSE(HasFatalFailure());
  o.create_if_missing = false;
  Report report;
  const Result<Store> s = Store::open(paths.pool.str(), o, &report);
  ASSERT_TRUE(s) << report.text();
  EXPECT_EQ(s->order(), KeyOrder::u64);
}

// One put, one erase, or a collection that is made or dropped, and nothing else.
TEST(JournalLivesTest, what_a_commit_did_alone_is_durable_on_return) {
  using Change = Status (*)(StoreTransaction&, const Collection&);
  constexpr Change kChanges[] = {
      [](StoreTransaction& tx, const Collection&) { return tx.put("key", "value"); },
      [](StoreTransaction& tx, const Collection&) { return tx.erase("old"); },
      [](StoreTransaction& tx, const Collection&) { return tx.create("made", {}).error(); },
      [](StoreTransaction& tx, const Collection& c) { return tx.drop(c); },
  };
  for (std::size_t i = 0; i < std::size(kChanges); ++i) {
    SCOPED_TRACE(i);
    const JournalPaths paths("journal-commit");
    StoreOptions o = journalled(paths);
    o.pool.journal.sync_every_ms = 0;
    run_and_kill([&] {
      Result<Store> s = Store::open(paths.pool.str(), o);
      if (!s || s->put("old", "value") != Status::ok) return false;
      const Result<Collection> c = s->collection("dropped");
      if (!c || s->sync() != Status::ok) return false;
      StoreTransaction tx = s->begin();
      if (kChanges[i](tx, *c) != Status::ok || tx.commit() != Status::ok) return false;
      std::_Exit(0);
    });
    ASSERT_FALSE(HasFatalFailure());
    Result<Store> s = Store::open(paths.pool.str(), o);
    ASSERT_TRUE(s);
    const auto all = s->collections();
    ASSERT_TRUE(all);
    EXPECT_EQ(s->contains("key"), i == 0 ? Status::ok : Status::not_found);
    EXPECT_EQ(s->contains("old"), i == 1 ? Status::not_found : Status::ok);
    EXPECT_EQ(all->size(), i == 2 ? 2u : i == 3 ? 0u : 1u);
  }
}

std::size_t threads_here() {
  std::size_t n = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    n += task.exists() ? 1 : 0;
  }
  return n;
}

// Begins a life and marks the pool clean, as a close does, but keeps the file open. Returns how
// many more threads run than before.
std::size_t threads_after_the_end(const JournalPaths& paths) {
  const std::size_t before = threads_here();
  auto file = pm::PoolFile::open(paths.pool.str(), journalled(paths).pool, nullptr);
  EXPECT_TRUE(file);
  EXPECT_EQ((*file)->begin_life(nullptr), Status::ok);
  EXPECT_EQ((*file)->set_state(pm::PoolState::running), Status::ok);
  EXPECT_EQ(threads_here(), before + 1);
  EXPECT_EQ((*file)->set_state(pm::PoolState::clean), Status::ok);
  // A joined thread may be listed a little longer.
  for (int tries = 0; tries < 200 && threads_here() != before; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return threads_here() - before;
}

// A checkpoint that is due would write to the pool, and to the journal's header beside the close.
TEST(JournalLivesTest, the_journals_thread_ends_before_the_journal_says_closed) {
  const JournalPaths paths("journal-thread");
  {
    Result<Store> s = Store::open(paths.pool.str(), journalled(paths));
    ASSERT_TRUE(s);
    ASSERT_EQ(s->close(), Status::ok);
  }
  EXPECT_EQ(threads_after_the_end(paths), 0u);
#ifdef TENUTO_DEBUG_CHECKS
  plant("journal_thread_outlives_its_life");
  EXPECT_EQ(threads_after_the_end(paths), 1u);
  unplant_all();
#endif
}

INSTANTIATE_TEST_SUITE_P(Journal, JournalLives, testing::Bool(),
                         [](const auto& keep) { return keep.param ? "kept" : "removed"; });

// A ring of the least size takes values of all sizes, buffered or synced.
TEST(JournalSpace, a_full_journal_can_always_be_checkpointed) {
  const JournalPaths paths("journal-space");
  StoreOptions o = journalled(paths);
  o.pool.size = 32u << 20;
  o.pool.journal.bytes = 256u << 10;
  o.pool.journal.recovery_ms_max = 0;
  std::mt19937_64 rng(7);
  Records model;
  {
    Result<Store> s = Store::open(paths.pool.str(), o);
    ASSERT_TRUE(s);
    std::uint64_t most = 0;
    for (int i = 0; i < 400; ++i) {
      const std::string key = std::to_string(rng() % 60);
      const std::size_t bytes = rng() % 40 == 0 ? 900'000 : rng() % 20'000;
      model[key] = noise(bytes, rng);
      const Durability d = rng() % 3 == 0 ? Durability::sync : Durability::buffered;
      ASSERT_EQ(s->put(key, model[key], {d}), Status::ok);
      most = std::max(most, s->stats().pool.journal_used_bytes);
    }
    // Looked at beside the journal's own thread, which may have checkpointed just before.
    EXPECT_GT(most, o.pool.journal.bytes / 4);
    EXPECT_LE(most, o.pool.journal.bytes);
    EXPECT_GT(s->stats().pool.journal_checkpoints, 10u);
    ASSERT_EQ(s->close(), Status::ok);
  }
  Result<Store> s = Store::open(paths.pool.str(), o);
  ASSERT_TRUE(s);
  EXPECT_EQ(records_of(*s), model);
}

// The longest estimate for a replay after each of many writes, in milliseconds.
double longest_replay(unsigned recovery_ms_max, PoolStats* stats) {
  const JournalPaths paths("journal-bound");
  StoreOptions o = journalled(paths);
  o.pool.size = 32u << 20;
  o.pool.journal.bytes = 32u << 20;
  o.pool.journal.recovery_ms_max = recovery_ms_max;
  Result<Store> s = Store::open(paths.pool.str(), o);
  EXPECT_TRUE(s);
  std::mt19937_64 rng(8);
  double most = 0;
  for (int i = 0; s && i < 1500; ++i) {
    EXPECT_EQ(s->put(std::to_string(rng() % 5000), noise(2000, rng)), Status::ok);
    most = std::max(most, s->stats().pool.journal_recovery_ms);
  }
  if (s) *stats = s->stats().pool;
  return most;
}

TEST(JournalBound, a_replay_never_takes_longer_than_was_asked_for) {
  PoolStats free;
  PoolStats bound;
#ifdef TENUTO_DEBUG_CHECKS
  // Measured times of checkpoints change the estimate. With a fixed rate it depends on the
  // journal's content only.
  plant("journal_rate_not_measured");
#endif
  EXPECT_GT(longest_replay(0, &free), 6);
  EXPECT_EQ(free.journal_checkpoints, 0u);
  EXPECT_LE(longest_replay(4, &bound), 4);
  EXPECT_GT(bound.journal_checkpoints, 2u);
#ifdef TENUTO_DEBUG_CHECKS
  plant("journal_recovery_not_bounded");
  EXPECT_GT(longest_replay(4, &bound), 6);
  unplant_all();
#endif
}

TEST(JournalBound, what_was_replayed_is_told) {
  const JournalPaths paths("journal-told");
  run_and_kill([&] {
    Store& s = *new Store(*Store::open(paths.pool.str(), journalled(paths)));
    for (int i = 0; i < 50; ++i) {
      if (s.put(std::to_string(i), std::string(1000, 'x')) != Status::ok) return false;
    }
    return true;
  });
  for (const bool killed : {true, false}) {
    Result<Store> s = Store::open(paths.pool.str(), journalled(paths));
    ASSERT_TRUE(s);
    const PoolStats stats = s->stats().pool;
    EXPECT_EQ(stats.journal_replayed_bytes >= 50u * 4096, killed);
    EXPECT_EQ(stats.journal_replayed_lines >= 50u * 16, killed);
    EXPECT_EQ(stats.journal_replay_ms > 0, killed);
    ASSERT_EQ(s->close(), Status::ok);
  }
}

}  // namespace
}  // namespace tenuto::test
