// Wear levelling under a store: records come and go, snapshots, compaction, medium `journal`, fork,
// a process that is killed, opens that only read. wear_with_test has the heap's own options.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include "pm/plant.h"
#include "support/journal_parts.h"
#include "support/kv_fixture.h"
#include "tenuto/snapshot.h"

namespace tenuto::test {
namespace {

using Records = std::map<std::string, std::string>;

class WearStore : public testing::TestWithParam<Medium> {
 protected:
  WearStore() {
    options_ = journalled(paths_);
    options_.pool.medium = GetParam();
    options_.pool.size_max = 0;
    options_.pool.heap.wear_levelling = true;
    options_.pool.heap.wear_rest_ms = 20;
    options_.pool.heap.clock_ms = [this] { return now_; };
    options_.pool.heap.memory_max = 1;
  }
  Store opened() {
    Result<Store> s = Store::open(paths_.pool.str(), options_, &report_);
    EXPECT_TRUE(s) << report_.text();
    return std::move(*s);
  }
  std::string value(int n) {
    const std::size_t bytes = n % 40 == 0 ? 20'000 : 20 + rng_() % 900;
    return std::to_string(n) + std::string(bytes, static_cast<char>('a' + n % 26));
  }
  // Replaces and erases records, most of them among a few.
  void write(Store& s, int n) {
    for (int i = 0; i < n; ++i) {
      const std::string key = key_of(static_cast<int>(rng_() % (i % 4 == 0 ? 2000 : 50)));
      if (rng_() % 8 == 0) {
        const Status erased = s.erase(key);
        ASSERT_EQ(erased, records_.erase(key) != 0 ? Status::ok : Status::not_found);
      } else {
        records_[key] = value(i);
        ASSERT_EQ(s.put(key, records_[key]), Status::ok);
      }
      if (i % 16 == 0) ++now_;
    }
  }
  void expect_records(Store& s) {
    Records found;
    Iterator it = s.iterator();
    for (it.seek_first(); it.valid(); it.next()) found.emplace(it.key(), it.value());
    EXPECT_TRUE(found == records_);
    Report r;
    EXPECT_EQ(s.validate(&r), Status::ok) << r.text();
  }
  PoolStats stats(const Store& s) const { return s.stats().pool; }

  JournalPaths paths_{"wear-store"};
  StoreOptions options_;
  Report report_;
  Records records_;
  std::mt19937_64 rng_{7};
  std::int64_t now_ = 1000;
};

TEST_P(WearStore, keeps_records_and_counts_over_closes) {
  std::uint64_t lines = 0;
  for (int life = 0; life < 4; ++life) {
    options_.pool.heap.wear_levelling = life != 2;
    Store s = opened();
    if (life > 0) {
      EXPECT_EQ(stats(s).wear_lines, lines) << life;
    }
    expect_records(s);
    write(s, 8000);
    expect_records(s);
    if (life != 2) {
      EXPECT_GT(stats(s).wear_lines, lines);
      EXPECT_GT(stats(s).wear_rested, 1000u);
    }
    ASSERT_EQ(s.close(), Status::ok);
    options_.pool.read_only = true;
    Store reader = opened();
    expect_records(reader);
    lines = stats(reader).wear_lines;
    ASSERT_EQ(reader.close(), Status::ok);
    options_.pool.read_only = false;
  }
}

// A process that ends without a close, as a kill does. It has synced.
TEST_P(WearStore, keeps_records_when_the_process_is_killed) {
  for (int life = 0; life < 3; ++life) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      auto* s = new Store(opened());
      write(*s, 3000);
      std::_Exit(s->sync() == Status::ok && !HasFailure() ? 0 : 1);
    }
    int end = 0;
    ASSERT_EQ(::waitpid(pid, &end, 0), pid);
    ASSERT_EQ(end, 0);
    // What the child wrote, by the same numbers.
    const auto replay = [&] {
      for (int i = 0; i < 3000; ++i) {
        const std::string key = key_of(static_cast<int>(rng_() % (i % 4 == 0 ? 2000 : 50)));
        if (rng_() % 8 == 0) {
          records_.erase(key);
        } else {
          records_[key] = value(i);
        }
      }
    };
    replay();
    Store s = opened();
    EXPECT_FALSE(s.pool().info().was_clean);
    expect_records(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

// Slabs of erased records go at once; only their frames rest.
TEST_P(WearStore, a_compaction_gives_the_space_back) {
  Store s = opened();
  for (int i = 0; i < 8000; ++i) {
    records_[key_of(i)] = value(i + 1);
    ASSERT_EQ(s.put(key_of(i), records_[key_of(i)]), Status::ok);
  }
  for (int i = 0; i < 8000; ++i) {
    if (i % 100 == 0) continue;
    ASSERT_EQ(s.erase(key_of(i)), Status::ok);
    records_.erase(key_of(i));
  }
  const std::uint64_t slabs = stats(s).slabs;
  for (int i = 0; i < 3; ++i) {
    now_ += 20;
    ASSERT_TRUE(s.compact());
  }
  EXPECT_LT(stats(s).slabs, slabs / 3);
  EXPECT_GT(stats(s).wear_rested, 1000u);
  expect_records(s);
  write(s, 2000);
  expect_records(s);
  ASSERT_EQ(s.close(), Status::ok);
  Store again = opened();
  expect_records(again);
}

TEST_P(WearStore, a_trim_gives_pages_back) {
  Store s = opened();
  for (int i = 0; i < 400; ++i) {
    records_[key_of(i)] = std::string(40'000, 'x');
    ASSERT_EQ(s.put(key_of(i), records_[key_of(i)]), Status::ok);
  }
  ASSERT_EQ(s.sync(), Status::ok);
  const std::uint64_t full = blocks_on_disk(paths_.pool.str());
  for (int i = 10; i < 400; ++i) ASSERT_EQ(s.erase(key_of(i)), Status::ok);
  records_.erase(records_.find(key_of(10)), records_.end());
  for (int i = 0; i < 3; ++i) {
    now_ += 20;
    ASSERT_TRUE(s.compact());
  }
  EXPECT_LT(blocks_on_disk(paths_.pool.str()) + (12u << 20), full);
  expect_records(s);
  write(s, 3000);
  expect_records(s);
}

// Its snapshot keeps what the writers replaced.
TEST_P(WearStore, a_snapshot_sees_what_rests_for_others) {
  Store s = opened();
  write(s, 3000);
  const Records then = records_;
  const Result<Snapshot> snapshot = s.snapshot();
  ASSERT_TRUE(snapshot);
  write(s, 6000);
  Records seen;
  Iterator it = snapshot->iterator();
  for (it.seek_first(); it.valid(); it.next()) seen.emplace(it.key(), it.value());
  EXPECT_TRUE(seen == then);
  expect_records(s);
}

INSTANTIATE_TEST_SUITE_P(Media, WearStore,
                         testing::Values(Medium::cache, Medium::line, Medium::journal),
                         [](const auto& i) { return std::string(medium_name(i.param)); });

// The child's copy of the counts, the rests and the queues means nothing.
TEST(WearFork, a_child_writes_no_counts) {
  TempPath path("wear-fork");
  PoolOptions o = PoolParts::small_options();
  o.heap.wear_levelling = true;
  Report report;
  auto made = Pool::create(path.str(), o, &report);
  ASSERT_TRUE(made) << report.text();
  Pool& pool = *made;
  auto* words = static_cast<PtrWord*>(*pool.root("wear", 100 * sizeof(PtrWord)));
  for (int i = 0; i < 100; ++i) ASSERT_EQ(pool.malloc_to(1000, words[i]), Status::ok);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool refused = pool.free_from(words[0]) == Status::forked &&
                         pool.malloc_to(64, words[1]) == Status::forked;
    static_cast<void>(pool.close());
    std::_Exit(refused ? 0 : 1);
  }
  int end = 0;
  ASSERT_EQ(::waitpid(pid, &end, 0), pid);
  EXPECT_EQ(end, 0);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(pool.free_from(words[i]), Status::ok);
  EXPECT_EQ(pool.stats().wear_tables, 0u);
  EXPECT_EQ(pool.validate(&report), Status::ok) << report.text();
  const std::uint64_t lines = pool.stats().wear_lines;
  ASSERT_EQ(pool.close(), Status::ok);
  auto again = Pool::open(path.str(), o, &report);
  ASSERT_TRUE(again) << report.text();
  EXPECT_GE(again->stats().wear_lines, 1600u);
  EXPECT_LE(again->stats().wear_lines, lines);
}

}  // namespace
}  // namespace tenuto::test
