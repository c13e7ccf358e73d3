// Medium journal: what survives when the process ends without a close, and what does not.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "pm/format.h"
#include "pm/plant.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"
#include "support/seed.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using Paths = test::JournalPaths;

using test::kSanitized;  // sanitizers map more than any limit

// Runs body in a process that ends without a close.
void in_a_life(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
}

std::string key(int i) { return "key" + std::to_string(i); }

Store open_or_die(const Paths& paths, const StoreOptions& options) {
  Report report;
  auto s = Store::open(paths.pool.str(), options, &report);
  EXPECT_TRUE(s) << report.text();
  if (!s) ::_exit(1);
  return std::move(*s);
}

TEST(Journal, a_clean_close_leaves_a_pool_that_opens_under_every_medium) {
  Paths paths("journal-clean");
  {
    Store s = open_or_die(paths, journalled(paths));
    EXPECT_EQ(s.pool().info().medium, Medium::journal);
    for (int i = 0; i < 1000; ++i)
      ASSERT_EQ(s.put(key(i), "value", {Durability::buffered}), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  for (const Medium m : {Medium::cache, Medium::line, Medium::journal}) {
    StoreOptions o = journalled(paths);
    o.pool.medium = m;
    Store s = open_or_die(paths, o);
    EXPECT_TRUE(s.pool().info().was_clean);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(s.contains(key(i)), Status::ok) << i;
    EXPECT_EQ(s.validate(), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

TEST(Journal, what_was_synced_survives_and_what_comes_after_is_a_prefix) {
  Paths paths("journal-prefix");
  in_a_life([&] {
    Store& s = *new Store(open_or_die(paths, journalled(paths)));
    for (int i = 0; i < 500; ++i) ASSERT_EQ(s.put(key(i), "v"), Status::ok);  // synced
    for (int i = 500; i < 900; ++i)
      ASSERT_EQ(s.put(key(i), "v", {Durability::buffered}), Status::ok);
  });
  Store s = open_or_die(paths, journalled(paths));
  EXPECT_FALSE(s.pool().info().was_clean);
  int n = 0;
  while (s.contains(key(n)) == Status::ok) ++n;
  EXPECT_GE(n, 500);
  for (int i = n; i < 900; ++i) EXPECT_EQ(s.contains(key(i)), Status::not_found) << i;
  EXPECT_EQ(s.validate(), Status::ok);
}

TEST(Journal, buffered_writes_are_synced_after_a_while) {
  Paths paths("journal-while");
  in_a_life([&] {
    Store& s = *new Store(open_or_die(paths, journalled(paths, 20)));
    for (int i = 0; i < 300; ++i) ASSERT_EQ(s.put(key(i), "v", {Durability::buffered}), Status::ok);
    ::usleep(500000);
  });
  Store s = open_or_die(paths, journalled(paths));
  for (int i = 0; i < 300; ++i) EXPECT_EQ(s.contains(key(i)), Status::ok) << i;
}

TEST(Journal, one_sync_covers_what_other_threads_fenced_before) {
  Paths paths("journal-threads");
  in_a_life([&] {
    Store& s = *new Store(open_or_die(paths, journalled(paths)));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&s, t] {
        for (int i = 0; i < 300; ++i) {
          const Durability d = i % 50 == 0 ? Durability::sync : Durability::buffered;
          if (s.put(key(t * 1000 + i), std::string(100, 'x'), {d}) != Status::ok) ::_exit(2);
        }
      });
    }
    for (auto& t : threads) t.join();
    ASSERT_EQ(s.sync(), Status::ok);
  });
  Store s = open_or_die(paths, journalled(paths));
  for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < 300; ++i) ASSERT_EQ(s.contains(key(t * 1000 + i)), Status::ok) << t << i;
  }
  EXPECT_EQ(s.validate(), Status::ok);
}

TEST(Journal, a_full_ring_is_checkpointed_and_goes_round) {
  Paths paths("journal-round");
  const std::string value(3000, 'r');
  constexpr int kKeys = 300;
  in_a_life([&] {
    Store& s = *new Store(open_or_die(paths, journalled(paths)));
    for (int round = 0; round < 12; ++round) {  // 12 x 900 KB of random bytes through 4 MiB
      for (int i = 0; i < kKeys; ++i) {
        std::string v = value;
        for (auto& c : v) c = static_cast<char>(::random());
        v.replace(0, 2, std::to_string(10 + round));
        ASSERT_EQ(s.put(key(i), v, {Durability::buffered}), Status::ok);
      }
      ASSERT_EQ(s.sync(), Status::ok);
    }
  });
  Store s = open_or_die(paths, journalled(paths));
  for (int i = 0; i < kKeys; ++i) {
    const auto v = s.get(key(i));
    ASSERT_TRUE(v) << i;
    EXPECT_EQ(v->substr(0, 2), "21");
  }
  EXPECT_EQ(s.validate(), Status::ok);
}

TEST(Journal, a_pool_that_grows_is_whole_after_a_kill) {
  Paths paths("journal-grows");
  in_a_life([&] {
    StoreOptions o = journalled(paths);
    o.pool.size = kPoolBytesMin;
    Store& s = *new Store(open_or_die(paths, o));
    const std::string value(100000, 'g');
    for (int i = 0; i < 300; ++i)
      ASSERT_EQ(s.put(key(i), value, {Durability::buffered}), Status::ok);
    ASSERT_EQ(s.sync(), Status::ok);
  });
  Store s = open_or_die(paths, journalled(paths));
  EXPECT_GT(s.stats().pool.zones, 1u);
  for (int i = 0; i < 300; ++i) EXPECT_EQ(s.contains(key(i)), Status::ok) << i;
  EXPECT_EQ(s.validate(), Status::ok);
}

TEST(Journal, an_unclean_pool_opens_only_with_its_journal) {
  Paths paths("journal-missing");
  in_a_life([&] {
    Store& s = *new Store(open_or_die(paths, journalled(paths)));
    ASSERT_EQ(s.put("a", "1"), Status::ok);
  });
  Report report;
  for (const Medium m : {Medium::cache, Medium::journal}) {
    StoreOptions o = journalled(paths);
    o.pool.medium = m;
    o.pool.journal.path = paths.journal.str() + "-elsewhere";
    EXPECT_EQ(Store::open(paths.pool.str(), o, &report).error(), Status::not_found)
        << report.text();
    EXPECT_NE(report.text().find("-elsewhere"), std::string::npos);
  }
  // With the journal the pool opens, under another medium too.
  StoreOptions o = journalled(paths);
  o.pool.medium = Medium::cache;
  Store s = open_or_die(paths, o);
  EXPECT_EQ(s.contains("a"), Status::ok);
  ASSERT_EQ(s.close(), Status::ok);
}

// Each of these opens begins a life of the journal and fails before the pool is recovered, because
// its zone count is wrong.
TEST(Journal, opens_that_fail_one_after_the_other_leave_a_pool_that_opens) {
  Paths paths("journal-open-fails");
  in_a_life([&] {
    Store& s = *new Store(open_or_die(paths, journalled(paths)));
    ASSERT_EQ(s.put("a", "1"), Status::ok);
    ASSERT_EQ(s.sync(), Status::ok);
  });
  const auto set_zones = [&](std::uint64_t n) {
    std::fstream file(paths.pool.str(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(pm::kHeadPageOffset + offsetof(pm::HeadPage, zone_count));
    file.write(reinterpret_cast<const char*>(&n), sizeof n);
  };
  set_zones(pm::kZonesMax + 1);
  Report report;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Store::open(paths.pool.str(), journalled(paths), &report).error(), Status::corrupt);
    ASSERT_NE(report.text().find("zones"), std::string::npos) << report.text();
  }
  set_zones(1);
  Store s = open_or_die(paths, journalled(paths));
  EXPECT_EQ(s.contains("a"), Status::ok);
  ASSERT_EQ(s.close(), Status::ok);
}

// A pool that cannot be mapped is not replayed: the pool and its journal stay as they are.
bool is_left_as_it_is_when_it_cannot_be_mapped() {
  Paths paths("journal-not-mapped");
  in_a_life([&] {
    Store& s = *new Store(open_or_die(paths, journalled(paths)));
    ASSERT_EQ(s.put("a", "1"), Status::ok);
  });
  const test::Bytes pool = test::read_image(paths.pool.str());
  const test::Bytes journal = test::read_image(paths.journal.str());
  StoreOptions impossible = journalled(paths);
  bool left = true;
  for (const std::uint64_t size_max : {std::uint64_t{1} << 50, std::uint64_t{1} << 46}) {
    if (kSanitized && size_max < std::uint64_t{1} << 50) break;
    impossible.pool.size_max = size_max;
    rlimit before{};
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
    const rlimit little{std::uint64_t{1} << 45, before.rlim_max};
    if (!kSanitized) ::setrlimit(RLIMIT_AS, &little);
    const bool opened = static_cast<bool>(Store::open(paths.pool.str(), impossible));
    ::setrlimit(RLIMIT_AS, &before);
    EXPECT_FALSE(opened);
    left = left && test::read_image(paths.pool.str()) == pool &&
           test::read_image(paths.journal.str()) == journal;
  }
  Store s = open_or_die(paths, journalled(paths));
  EXPECT_EQ(s.contains("a"), Status::ok);
  return left;
}

TEST(Journal, a_pool_that_cannot_be_mapped_is_left_as_it_is) {
  EXPECT_TRUE(is_left_as_it_is_when_it_cannot_be_mapped());
#ifdef TENUTO_DEBUG_CHECKS
  plant("pm_size_max_checked_after_replay");
  EXPECT_TRUE(kSanitized || !is_left_as_it_is_when_it_cannot_be_mapped());
  unplant_all();
#endif
}

TEST(Journal, the_journal_of_another_pool_is_refused) {
  Paths paths("journal-one");
  Paths others("journal-two");
  for (const Paths* p : {&paths, &others}) {
    in_a_life([&] {
      Store& s = *new Store(open_or_die(*p, journalled(*p)));
      ASSERT_EQ(s.put("a", "1"), Status::ok);
    });
  }
  Report report;
  StoreOptions o = journalled(others);
  EXPECT_EQ(Store::open(paths.pool.str(), o, &report).error(), Status::corrupt) << report.text();
  Store s = open_or_die(paths, journalled(paths));
  ASSERT_EQ(s.close(), Status::ok);
  EXPECT_EQ(Store::open(paths.pool.str(), o, &report).error(), Status::invalid_argument)
      << report.text();
}

TEST(Journal, a_damaged_block_before_a_whole_one_is_corruption_and_a_torn_last_one_is_the_end) {
  Paths paths("journal-damage");
  in_a_life([&] {
    Store& s = *new Store(open_or_die(paths, journalled(paths)));
    for (int i = 0; i < 10; ++i) ASSERT_EQ(s.put(key(i), "v"), Status::ok);
  });
  std::fstream file(paths.journal.str(), std::ios::in | std::ios::out | std::ios::binary);
  std::vector<char> whole(8192 + (4u << 20));
  file.read(whole.data(), static_cast<std::streamsize>(whole.size()));
  ASSERT_TRUE(file);
  std::vector<std::size_t> blocks;
  for (std::size_t at = 8192; at < whole.size(); at += 4096) {
    if (std::memcmp(whole.data() + at, "JNBLOCK", 7) == 0) blocks.push_back(at);
  }
  ASSERT_GE(blocks.size(), 10u);
  const auto flip = [&](std::size_t at) {
    whole[at] = static_cast<char>(whole[at] ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(whole[at]);
    file.flush();
  };
  Report report;
  flip(blocks[3] + 100);
  EXPECT_EQ(Store::open(paths.pool.str(), journalled(paths), &report).error(), Status::corrupt);
  EXPECT_NE(report.text().find("block"), std::string::npos) << report.text();
  flip(blocks[3] + 100);
  flip(blocks.back() + 100);
  Store s = open_or_die(paths, journalled(paths));
  for (int i = 0; i < 9; ++i) EXPECT_EQ(s.contains(key(i)), Status::ok) << i;
  EXPECT_EQ(s.validate(), Status::ok);
}

TEST(Journal, transactions_and_objects_are_synced_too) {
  Paths paths("journal-objects");
  struct Root {
    Ptr<char> slot[8];
  };
  in_a_life([&] {
    auto made = Pool::create(paths.pool.str(), journalled(paths).pool);
    ASSERT_TRUE(made);
    Pool* p = new Pool(std::move(*made));
    Root* root = *p->root<Root>("root");
    ASSERT_EQ(p->malloc_to(100, root->slot[0]), Status::ok);
    ASSERT_EQ(p->run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(*root));
      auto block = tx.alloc(64);
      if (!block) return block.error();
      root->slot[1] = static_cast<char*>(*block);
      return Status::ok;
    }),
              Status::ok);
  });
  auto p = Pool::open(paths.pool.str(), journalled(paths).pool);
  ASSERT_TRUE(p);
  Root* root = *p->root<Root>("root");
  EXPECT_TRUE(root->slot[0]);
  EXPECT_TRUE(root->slot[1]);
  EXPECT_EQ(p->usable_size(root->slot[1].get()), 64u);
  EXPECT_EQ(p->validate(), Status::ok);
}

}  // namespace
}  // namespace tenuto
