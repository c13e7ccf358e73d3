// What Store::compact promises: space comes back, every record stays, and calls beside it are not
// disturbed. kv_crash and kv_isolation_crash test crashes in it, kv_compact_stress threads.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;
using Records = std::map<std::string, std::string>;

class KvCompactTest : public test::KvFixture {
 protected:
  static constexpr std::uint64_t kSeed = 20'261'121;

  static std::string value(int n, std::size_t bytes) {
    return std::to_string(n) + std::string(bytes, static_cast<char>('a' + n % 26));
  }
  // Puts records 0 to n, and erases them at random but one in `keep`. Returns the remaining
  // records.
  template <class Where>
  static Records fill(Where& in, int n, std::size_t bytes, int keep) {
    Records left;
    std::mt19937_64 rng(kSeed);
    for (int i = 0; i < n; ++i) EXPECT_EQ(in.put(key_of(i), value(i, bytes)), Status::ok);
    for (int i = 0; i < n; ++i) {
      if (rng() % static_cast<unsigned>(keep) == 0) {
        left[key_of(i)] = value(i, bytes);
      } else {
        EXPECT_EQ(in.erase(key_of(i)), Status::ok);
      }
    }
    return left;
  }
  template <class From>
  static Records all(From& from) {
    Records out;
    Iterator it = from.iterator();
    for (it.seek_first(); it.valid(); it.next()) out.emplace(it.key(), it.value());
    EXPECT_EQ(it.status(), Status::ok);
    std::size_t backwards = 0;
    for (it.seek_last(); it.valid(); it.prev()) ++backwards;
    EXPECT_EQ(backwards, out.size());
    return out;
  }
  static CompactStats compacted(Store& s, const CompactOptions& options = {}) {
    Report r;
    const auto stats = s.compact(options, &r);
    EXPECT_TRUE(stats) << r.text();
    return stats ? *stats : CompactStats{};
  }
};

TEST_F(KvCompactTest, space_comes_back_and_every_record_stays) {
  Store s = opened();
  const std::uint64_t empty = compacted(s).bytes_after;
  const Records left = fill(s, 100'000, 86, 5);
  const StoreStats before = s.stats();
  const CompactStats c = compacted(s);
  EXPECT_TRUE(c.complete);
  EXPECT_EQ(c.bytes_after, disk_bytes());
  EXPECT_GT(c.bytes_before, c.bytes_after * 2);
  EXPECT_GT(c.records_moved, 0u);
  EXPECT_GT(c.leaves_moved, 0u);
  EXPECT_GT(c.slabs_emptied, 50u);
  const StoreStats after = s.stats();
  EXPECT_EQ(after.leaves, before.leaves - c.leaves_merged);
  EXPECT_EQ(after.records, left.size());
  EXPECT_EQ(after.record_bytes, before.record_bytes);
  EXPECT_LE(c.bytes_after - empty, after.record_bytes * 135 / 100);
  EXPECT_EQ(all(s), left);
  expect_valid(s);
  ASSERT_EQ(s.close(), Status::ok);
  Store again = opened();
  EXPECT_EQ(all(again), left);
  expect_valid(again);
}

TEST_F(KvCompactTest, a_second_one_finds_nothing_to_do) {
  Store s = opened();
  fill(s, 20'000, 90, 5);
  EXPECT_TRUE(compacted(s).complete);
  const CompactStats c = compacted(s);
  EXPECT_TRUE(c.complete);
  EXPECT_EQ(c.leaves_merged, 0u);
  EXPECT_EQ(c.records_moved + c.leaves_moved, 0u);
  EXPECT_EQ(c.slabs_emptied, 0u);
}

TEST_F(KvCompactTest, values_replaced_by_other_sizes_leave_slabs_that_are_emptied) {
  Store s = opened();
  std::mt19937_64 rng(kSeed);
  Records left;
  for (const std::size_t bytes : {50u, 150u, 400u, 2000u, 20u}) {
    for (int i = 0; i < 3000; ++i) {
      const std::string key = key_of(static_cast<int>(rng() % 4000));
      left[key] = value(i, bytes);
      ASSERT_EQ(s.put(key, left[key]), Status::ok);
    }
  }
  const CompactStats c = compacted(s, {.moves_max = 0, .occupancy = 1.0});
  EXPECT_GT(c.slabs_emptied, 10u);
  EXPECT_LT(c.bytes_after, c.bytes_before);
  EXPECT_EQ(all(s), left);
  expect_valid(s);
}

TEST_F(KvCompactTest, small_steps_come_to_the_same_end) {
  Store s = opened();
  const Records left = fill(s, 20'000, 90, 5);
  const std::uint64_t before = s.stats().pool.slabs;
  CompactStats c;
  int steps = 0;
  std::uint64_t moves = 0;
  do {
    c = compacted(s, {.moves_max = 500, .occupancy = 0.7});
    const std::uint64_t now = c.records_moved + c.leaves_moved + c.leaves_merged;
    EXPECT_LE(now, 500u + 48u);
    moves += now;
    ASSERT_LT(++steps, 100);
  } while (!c.complete);
  EXPECT_GT(steps, 5);
  EXPECT_LT(moves, 3u * left.size());
  EXPECT_LT(s.stats().pool.slabs, before / 3);
  EXPECT_EQ(all(s), left);
  expect_valid(s);
}

TEST_F(KvCompactTest, a_store_reopened_is_compacted_too) {
  Records left;
  {
    Store s = opened();
    left = fill(s, 20'000, 90, 5);
  }
  Store s = opened();
  const CompactStats c = compacted(s);
  EXPECT_GT(c.slabs_emptied, 10u);
  EXPECT_GT(c.bytes_before, c.bytes_after * 3 / 2);
  EXPECT_EQ(all(s), left);
  expect_valid(s);
}

TEST_F(KvCompactTest, large_records_and_long_separators) {
  Store s = opened();
  const std::string prefix(300, 'p');
  Records left;
  for (int i = 0; i < 2000; ++i) {
    const std::string key = prefix + key_of(i);
    const std::string v = value(i, i % 50 == 0 ? 20'000 : 10);
    ASSERT_EQ(s.put(key, v), Status::ok);
    if (i % 6 == 0) left[key] = v;
  }
  for (int i = 0; i < 2000; ++i) {
    if (i % 6 != 0) {
      ASSERT_EQ(s.erase(prefix + key_of(i)), Status::ok);
    }
  }
  EXPECT_GT(compacted(s).leaves_merged, 10u);
  EXPECT_EQ(all(s), left);
  expect_valid(s);
  ASSERT_EQ(s.close(), Status::ok);
  expect_valid(opened());
}

// --- calls beside a compaction -------------------------------------------------------------------

TEST_F(KvCompactTest, snapshots_see_what_they_saw) {
  Store s = opened();
  Records first;
  for (int i = 0; i < 5000; ++i) {
    first[key_of(i)] = value(i, 100);
    ASSERT_EQ(s.put(key_of(i), first[key_of(i)]), Status::ok);
  }
  auto one = s.snapshot();
  ASSERT_TRUE(one);
  Records second = first;
  for (int i = 0; i < 5000; ++i) {
    if (i % 5 == 0) continue;
    ASSERT_EQ(s.erase(key_of(i)), Status::ok);
    second.erase(key_of(i));
  }
  auto two = s.snapshot();
  ASSERT_TRUE(two);
  Records now = second;
  for (int i = 0; i < 5000; i += 10) {
    ASSERT_EQ(s.put(key_of(i), "now"), Status::ok);
    now[key_of(i)] = "now";
  }
  const std::uint64_t versions = s.stats().snapshot_versions;
  EXPECT_GT(compacted(s).leaves_merged, 50u);
  EXPECT_EQ(s.stats().snapshot_versions, versions);
  EXPECT_EQ(all(*one), first);
  EXPECT_EQ(all(*two), second);
  EXPECT_EQ(all(s), now);
  std::string v;
  EXPECT_EQ(one->get(key_of(7), v), Status::ok);
  EXPECT_EQ(two->get(key_of(7), v), Status::not_found);
  expect_valid(s);
  one->release();
  two->release();
  EXPECT_EQ(s.stats().snapshot_versions, 0u);
  EXPECT_TRUE(compacted(s).complete);
  EXPECT_EQ(all(s), now);
  expect_valid(s);
}

TEST_F(KvCompactTest, cursors_and_views_go_on) {
  Store s = opened();
  const Records left = fill(s, 10'000, 60, 5);
  Iterator up = s.iterator();
  Iterator down = s.iterator();
  up.seek_first();
  down.seek_last();
  const auto view = s.view(left.begin()->first);
  ASSERT_TRUE(view);
  Records seen;
  Records seen_down;
  for (std::size_t n = 0; up.valid(); up.next(), ++n) {
    EXPECT_TRUE(seen.emplace(up.key(), up.value()).second);
    EXPECT_TRUE(seen_down.emplace(down.key(), down.value()).second);
    down.prev();
    if (n % 400 == 200) static_cast<void>(compacted(s, {.moves_max = 700, .occupancy = 0.9}));
  }
  EXPECT_FALSE(down.valid());
  EXPECT_EQ(seen, left);
  EXPECT_EQ(seen_down, left);
  EXPECT_EQ(view->value(), left.begin()->second);
}

TEST_F(KvCompactTest, a_transaction_is_in_no_conflict_with_it) {
  Store s = opened();
  const Records left = fill(s, 5000, 60, 5);
  StoreTransaction tx = s.begin();
  std::string v;
  for (const auto& [key, value] : left) ASSERT_EQ(tx.get(key, v), Status::ok);
  ASSERT_EQ(tx.put(left.begin()->first, "mine"), Status::ok);
  Iterator it = tx.iterator();
  std::size_t n = 0;
  for (it.seek_first(); it.valid(); it.next()) {
    if (++n == left.size() / 2) {
      std::thread other([&] { EXPECT_GT(compacted(s).leaves_merged, 10u); });
      other.join();
    }
  }
  EXPECT_EQ(n, left.size());
  EXPECT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(*s.get(left.begin()->first), "mine");
  expect_valid(s);
}

// --- several collections, and what else there is -------------------------------------------------

TEST_F(KvCompactTest, all_collections_are_compacted_also_those_nobody_opened) {
  Records left;
  Records other;
  {
    Store s = opened();
    Collection c = *s.collection("other");
    left = fill(s, 5000, 60, 5);
    other = fill(c, 20'000, 60, 5);
  }
  Store s = opened();
  const CompactStats c = compacted(s);
  EXPECT_GT(c.leaves_merged, 300u);
  EXPECT_GT(c.slabs_emptied, 20u);
  Collection again = *s.collection("other");
  EXPECT_EQ(all(s), left);
  EXPECT_EQ(all(again), other);
  expect_valid(s);
}

TEST_F(KvCompactTest, a_collection_may_be_dropped_and_renamed_meanwhile) {
  Store s = opened();
  const Records left = fill(s, 2000, 60, 5);
  std::atomic<bool> stop{false};
  std::thread compacting([&] {
    while (!stop.load(std::memory_order_acquire)) compacted(s, {.moves_max = 0, .occupancy = 1.0});
  });
  for (int round = 0; round < 12; ++round) {
    Collection c = *s.collection("short-lived");
    fill(c, 1500, 60, 3);
    if (round % 3 == 0) {
      EXPECT_EQ(s.rename("short-lived", "other"), Status::ok);
    }
    EXPECT_EQ(s.drop(round % 3 == 0 ? "other" : "short-lived"), Status::ok);
  }
  stop.store(true, std::memory_order_release);
  compacting.join();
  EXPECT_EQ(all(s), left);
  expect_valid(s);
}

TEST_F(KvCompactTest, objects_of_the_pool_stay_where_they_are) {
  Store s = opened();
  struct Root {
    PtrWord object[64];
  };
  Root* root = *s.pool().root<Root>("objects");
  std::map<int, void*> places;
  for (int i = 0; i < 64; ++i) {
    ASSERT_EQ(s.pool().malloc_to(100, root->object[i]), Status::ok);
    places[i] = PtrWord::decode(&root->object[i], root->object[i].raw);
    std::memset(places[i], i, 100);
  }
  const Records left = fill(s, 10'000, 60, 5);
  EXPECT_GT(compacted(s).slabs_emptied, 0u);
  for (const auto& [i, place] : places) {
    EXPECT_EQ(PtrWord::decode(&root->object[i], root->object[i].raw), place);
    EXPECT_EQ(*static_cast<char*>(place), static_cast<char>(i));
  }
  EXPECT_EQ(all(s), left);
  expect_valid(s);
}

// A thread that is alive and idle keeps the blocks in its cache. Its next call gives them back.
TEST_F(KvCompactTest, a_resting_thread_holds_slabs_back_until_it_comes_again) {
  Store s = opened();
  std::vector<int> order;
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_EQ(s.put(key_of(i), value(i, 90)), Status::ok);
    if (i % 5 != 0) order.push_back(i);
  }
  std::shuffle(order.begin(), order.end(), std::mt19937_64(kSeed));
  std::atomic<int> turn{0};
  const auto wait_for = [&](int n) {
    for (int now = turn.load(); now != n; now = turn.load()) turn.wait(now);
  };
  const auto next = [&](int n) {
    turn.store(n);
    turn.notify_all();
  };
  std::thread other([&] {
    for (const int i : order) EXPECT_EQ(s.erase(key_of(i)), Status::ok);
    next(1);
    wait_for(2);
    EXPECT_EQ(s.put("one", "more"), Status::ok);
    next(3);
    wait_for(4);
  });
  wait_for(1);
  const CompactStats first = compacted(s);
  EXPECT_FALSE(first.complete);
  EXPECT_GT(first.leaves_merged, 0u);
  next(2);
  wait_for(3);
  const CompactStats second = compacted(s);
  EXPECT_LT(second.bytes_after, first.bytes_after);
  next(4);
  other.join();
  const CompactStats last = compacted(s);
  EXPECT_TRUE(last.complete);
  EXPECT_LE(last.bytes_after, second.bytes_after);
  expect_valid(s);
}

// --- what is refused -----------------------------------------------------------------------------

TEST_F(KvCompactTest, says_why_not) {
  {
    Store s = opened();
    for (const double wrong : {0.0, -1.0, 1.1}) {
      EXPECT_EQ(s.compact({.moves_max = 0, .occupancy = wrong}, &report_).error(),
                Status::invalid_argument);
    }
    EXPECT_NE(report_.text().find("1.1"), std::string::npos) << report_.text();
    EXPECT_EQ(s.pool().run([&](Transaction&) -> Status {
      EXPECT_EQ(s.compact().error(), Status::invalid_argument);
      return Status::ok;
    }),
              Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
    EXPECT_EQ(s.compact().error(), Status::closed);
  }
  options_.pool.read_only = true;
  EXPECT_EQ(opened().compact().error(), Status::read_only);
}

TEST_F(KvCompactTest, one_at_a_time) {
  Store s = opened();
  const Records left = fill(s, 20'000, 60, 5);
  std::atomic<int> done{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const Status status = s.compact({.moves_max = 300, .occupancy = 0.7}).error();
        EXPECT_TRUE(status == Status::ok || status == Status::busy) << status_name(status);
        (status == Status::ok ? done : refused) += 1;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_GT(done.load(), 0);
  EXPECT_EQ(done.load() + refused.load(), 60);
  EXPECT_EQ(all(s), left);
  expect_valid(s);
}

// A move would give the damaged record a new checksum, and make the damage a value.
TEST_F(KvCompactTest, a_damaged_record_is_not_moved) {
  Records left;
  {
    Store s = opened();
    left = fill(s, 10'000, 60, 5);
  }
  const std::string victim = std::next(left.begin(), static_cast<long>(left.size() / 2))->first;
  const int fd = ::open(path_.str().c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  struct stat st {};
  ASSERT_EQ(::fstat(fd, &st), 0);
  std::string bytes(static_cast<std::size_t>(st.st_size), '\0');
  ASSERT_EQ(::pread(fd, bytes.data(), bytes.size(), 0), st.st_size);
  // A record has its key and its value side by side.
  const std::size_t at = bytes.find(victim + left[victim]);
  ASSERT_NE(at, std::string::npos);
  ASSERT_EQ(::pwrite(fd, "#", 1, static_cast<off_t>(at + victim.size() + 20)), 1);
  ::close(fd);
  Store s = opened();
  EXPECT_EQ(s.compact({}, &report_).error(), Status::corrupt);
  EXPECT_NE(report_.text().find("damaged"), std::string::npos) << report_.text();
  std::string v;
  EXPECT_EQ(s.get(victim, v), Status::corrupt);
}

}  // namespace
}  // namespace tenuto
