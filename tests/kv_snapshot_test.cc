// What snapshots promise, one promise a test. kv_snapshot_random_test runs random operations beside
// a model of versions, kv_snapshot_stress runs threads.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;
using test::Keys;

class KvSnapshotTest : public test::KvFixture {
 protected:
  static Snapshot snapshot(const Store& s) {
    Result<Snapshot> taken = s.snapshot();
    EXPECT_TRUE(taken) << status_name(taken.error());
    return std::move(*taken);
  }
  static void fill(Store& s, int n, const std::string& value = "old") {
    for (int i = 0; i < n; ++i) ASSERT_EQ(s.put(key_of(i), value), Status::ok);
  }
  static Keys forward(const Snapshot& s, IteratorOptions o = {}) {
    Iterator it = s.iterator(std::move(o));
    it.seek_first();
    return keys(it);
  }
};

TEST_F(KvSnapshotTest, sees_the_values_of_its_moment) {
  Store s = opened();
  ASSERT_EQ(s.put("changed", "old"), Status::ok);
  ASSERT_EQ(s.put("erased", "old"), Status::ok);
  const Snapshot snap = snapshot(s);
  ASSERT_EQ(s.put("changed", "new"), Status::ok);
  ASSERT_EQ(s.erase("erased"), Status::ok);
  ASSERT_EQ(s.put("inserted", "new"), Status::ok);
  EXPECT_EQ(*snap.get("changed"), "old");
  EXPECT_EQ(*snap.get("erased"), "old");
  EXPECT_EQ(snap.get("inserted").error(), Status::not_found);
  EXPECT_EQ(snap.contains("erased"), Status::ok);
  EXPECT_EQ(snap.contains("inserted"), Status::not_found);
  EXPECT_EQ(*s.get("changed"), "new");
  EXPECT_EQ(forward(snap), (Keys{"changed", "erased"}));
  expect_valid(s);
}

TEST_F(KvSnapshotTest, each_of_several_sees_its_own) {
  Store s = opened();
  std::vector<Snapshot> snaps;
  for (int i = 0; i < 20; ++i) {
    snaps.push_back(snapshot(s));
    ASSERT_EQ(s.put("key", std::to_string(i)), Status::ok);
  }
  EXPECT_EQ(snaps[0].get("key").error(), Status::not_found);
  for (std::size_t i = 1; i < 20; ++i) EXPECT_EQ(*snaps[i].get("key"), std::to_string(i - 1));
  EXPECT_EQ(s.stats().snapshot_versions, 20u);
}

TEST_F(KvSnapshotTest, one_version_is_kept_however_often_a_key_changes) {
  Store s = opened();
  fill(s, 10);
  const Snapshot snap = snapshot(s);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(s.put(key_of(i % 10), std::to_string(i)), Status::ok);
  EXPECT_EQ(s.stats().snapshot_versions, 10u);
  EXPECT_EQ(*snap.get(key_of(3)), "old");
}

TEST_F(KvSnapshotTest, keys_that_come_and_go_leave_nothing) {
  Store s = opened();
  fill(s, 10);
  const Snapshot snap = snapshot(s);
  for (int i = 100; i < 2000; ++i) {
    ASSERT_EQ(s.put(key_of(i), "brief"), Status::ok);
    ASSERT_EQ(s.erase(key_of(i)), Status::ok);
  }
  EXPECT_EQ(s.stats().snapshot_versions, 0u);
  ASSERT_EQ(s.put(key_of(100), "back"), Status::ok);
  EXPECT_EQ(forward(snap).size(), 10u);
  EXPECT_EQ(snap.contains(key_of(100)), Status::not_found);
}

// The end of the middle snapshot frees its versions. Those of the others stay.
TEST_F(KvSnapshotTest, versions_go_as_soon_as_no_snapshot_needs_them) {
  Store s = opened();
  fill(s, 100, "0");
  std::vector<Snapshot> snaps;
  for (int round = 1; round <= 3; ++round) {
    snaps.push_back(snapshot(s));
    fill(s, 100, std::to_string(round));
  }
  EXPECT_EQ(s.stats().snapshot_versions, 300u);
  snaps[1].release();
  EXPECT_EQ(s.stats().snapshot_versions, 200u);
  EXPECT_EQ(snaps[1].get(key_of(0)).error(), Status::closed);
  EXPECT_EQ(*snaps[0].get(key_of(7)), "0");
  EXPECT_EQ(*snaps[2].get(key_of(7)), "2");
  snaps[0].release();
  EXPECT_EQ(s.stats().snapshot_versions, 100u);
  EXPECT_EQ(*snaps[2].get(key_of(7)), "2");
  snaps[2].release();
  EXPECT_EQ(s.stats().snapshot_versions, 0u);
  EXPECT_EQ(s.stats().snapshot_bytes, 0u);
  EXPECT_EQ(s.stats().snapshots, 0u);
  expect_valid(s);
}

TEST_F(KvSnapshotTest, a_version_that_an_older_snapshot_needs_too_stays) {
  Store s = opened();
  fill(s, 10);
  const Snapshot older = snapshot(s);
  Snapshot newer = snapshot(s);
  fill(s, 10, "new");
  newer.release();
  EXPECT_EQ(s.stats().snapshot_versions, 10u);
  EXPECT_EQ(*older.get(key_of(5)), "old");
}

// The pool returns to its earlier use of memory without another write.
TEST_F(KvSnapshotTest, memory_comes_back_at_the_release) {
  Store s = opened();
  fill(s, 2000, std::string(500, 'x'));
  fill(s, 2000, std::string(500, 'y'));
  const std::uint64_t before = s.stats().pool.allocated_bytes;
  {
    const Snapshot snap = snapshot(s);
    fill(s, 2000, std::string(500, 'z'));
    EXPECT_GT(s.stats().pool.allocated_bytes, before + 2000 * 500);
    EXPECT_GT(s.stats().snapshot_bytes, 2000u * 500u);
  }
  EXPECT_LT(s.stats().pool.allocated_bytes, before + 200 * 600);
  expect_valid(s);
}

TEST_F(KvSnapshotTest, splits_and_empty_leaves_keep_the_history) {
  Store s = opened();
  fill(s, 400);
  const std::uint64_t leaves = s.stats().leaves;
  {
    const Snapshot snap = snapshot(s);
    for (int i = 0; i < 400; ++i) ASSERT_EQ(s.erase(key_of(i)), Status::ok);
    expect_valid(s);
    EXPECT_EQ(forward(snap).size(), 400u);
    Iterator it = snap.iterator();
    int n = 400;
    for (it.seek_last(); it.valid(); it.prev()) ASSERT_EQ(it.key(), key_of(--n));
    EXPECT_EQ(n, 0);
    // New keys between the old ones split leaves that hold only old versions.
    for (int i = 0; i < 400; ++i) ASSERT_EQ(s.put(key_of(i) + "+", "new"), Status::ok);
    for (int i = 0; i < 400; ++i) ASSERT_EQ(s.put(key_of(i) + "-", "new"), Status::ok);
    EXPECT_EQ(forward(snap).size(), 400u);
    for (int i = 0; i < 400; ++i) ASSERT_EQ(*snap.get(key_of(i)), "old");
    for (int i = 0; i < 400; ++i) ASSERT_EQ(snap.contains(key_of(i) + "+"), Status::not_found);
    for (int i = 0; i < 400; ++i) ASSERT_EQ(s.erase(key_of(i) + "+"), Status::ok);
    for (int i = 0; i < 400; ++i) ASSERT_EQ(s.erase(key_of(i) + "-"), Status::ok);
    EXPECT_GE(s.stats().leaves, leaves);
  }
  EXPECT_EQ(s.stats().leaves, 1u) << "leaves that were kept for their history go with it";
  expect_valid(s);
}

TEST_F(KvSnapshotTest, cursors_obey_their_bounds) {
  Store s = opened();
  fill(s, 100);
  const Snapshot snap = snapshot(s);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(s.erase(key_of(i)), Status::ok);
  IteratorOptions o;
  o.lower = key_of(10);
  o.upper = key_of(15);
  EXPECT_EQ(forward(snap, o), (Keys{key_of(10), key_of(11), key_of(12), key_of(13), key_of(14)}));
  o = {};
  o.prefix = "k0000009";
  EXPECT_EQ(forward(snap, o).size(), 10u);
  Iterator it = snap.iterator();
  it.seek_for_prev(key_of(50) + "x");
  ASSERT_TRUE(it.valid());
  EXPECT_EQ(it.key(), key_of(50));
  EXPECT_EQ(it.value(), "old");
}

TEST_F(KvSnapshotTest, a_cursor_keeps_its_moment_alive) {
  Store s = opened();
  fill(s, 100);
  Snapshot snap = snapshot(s);
  std::optional<Iterator> it = snap.iterator();
  snap.release();
  fill(s, 100, "new");
  it->seek(key_of(50));
  EXPECT_EQ(it->value(), "old");
  EXPECT_EQ(s.stats().snapshot_versions, 100u);
  it.reset();
  EXPECT_EQ(s.stats().snapshot_versions, 0u);
}

TEST_F(KvSnapshotTest, a_batch_is_in_it_or_not) {
  Store s = opened();
  WriteBatch all;
  for (int i = 0; i < 200; ++i) all.put(key_of(i), "1");
  ASSERT_EQ(s.write(all), Status::ok);
  const Snapshot one = snapshot(s);
  WriteBatch next;
  for (int i = 0; i < 100; ++i) next.put(key_of(i), "2");
  for (int i = 100; i < 200; ++i) next.erase(key_of(i));
  for (int i = 200; i < 300; ++i) next.put(key_of(i), "2");
  ASSERT_EQ(s.write(next), Status::ok);
  const Snapshot two = snapshot(s);
  ASSERT_EQ(s.write(all), Status::ok);
  EXPECT_EQ(forward(one).size(), 200u);
  EXPECT_EQ(*one.get(key_of(50)), "1");
  EXPECT_EQ(forward(two).size(), 200u);
  EXPECT_EQ(*two.get(key_of(50)), "2");
  EXPECT_EQ(two.contains(key_of(150)), Status::not_found);
  EXPECT_EQ(*two.get(key_of(250)), "2");
}

TEST_F(KvSnapshotTest, outlives_its_store) {
  std::optional<Snapshot> snap;
  std::optional<Snapshot> other;
  {
    Store s = opened();
    fill(s, 50);
    snap = snapshot(s);
    other = snapshot(s);
    fill(s, 50, "new");
    ASSERT_EQ(s.close(), Status::ok);
  }
  EXPECT_EQ(snap->get(key_of(1)).error(), Status::closed);
  EXPECT_EQ(snap->contains(key_of(1)), Status::closed);
  Iterator it = snap->iterator();
  it.seek_first();
  EXPECT_FALSE(it.valid());
  EXPECT_EQ(it.status(), Status::closed);
  snap.reset();
  Store s = opened();
  EXPECT_TRUE(s.pool().info().was_clean);
  EXPECT_EQ(s.stats().snapshot_versions, 0u);
  EXPECT_EQ(*s.get(key_of(1)), "new");
  expect_valid(s);  // all blocks that the snapshot held are free
  EXPECT_EQ(other->get(key_of(1)).error(), Status::closed);
}

TEST_F(KvSnapshotTest, the_oldest_expires_beyond_the_bytes_allowed) {
  options_.snapshot_bytes_max = 20'000;
  Store s = opened();
  fill(s, 100, std::string(100, 'x'));
  const Snapshot old = snapshot(s);
  Iterator it = old.iterator();
  it.seek_first();
  fill(s, 60, "y");
  EXPECT_EQ(old.contains(key_of(1)), Status::ok);
  const Snapshot recent = snapshot(s);
  fill(s, 100, "z");
  EXPECT_EQ(old.get(key_of(1)).error(), Status::expired);
  it.seek_first();
  EXPECT_FALSE(it.valid());
  EXPECT_EQ(it.status(), Status::expired);
  EXPECT_EQ(*recent.get(key_of(1)), "y");
  EXPECT_LE(s.stats().snapshot_bytes, options_.snapshot_bytes_max);
  EXPECT_EQ(s.stats().snapshots_expired, 1u);
  expect_valid(s);
}

TEST_F(KvSnapshotTest, one_expires_with_age) {
  options_.snapshot_age_ms_max = 30;
  Store s = opened();
  fill(s, 10);
  const Snapshot old = snapshot(s);
  fill(s, 10, "new");
  EXPECT_EQ(*old.get(key_of(1)), "old");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(old.get(key_of(1)).error(), Status::expired);
  EXPECT_EQ(s.stats().snapshot_versions, 0u);
  EXPECT_EQ(s.stats().snapshots, 0u);
}

TEST_F(KvSnapshotTest, a_forgotten_one_shows_in_the_stats) {
  Store s = opened();
  fill(s, 10);
  const Snapshot old = snapshot(s);
  fill(s, 10, "new");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const StoreStats stats = s.stats();
  EXPECT_EQ(stats.snapshots, 1u);
  EXPECT_GE(stats.snapshot_oldest_age_ms, 20u);
  EXPECT_EQ(stats.snapshot_versions, 10u);
  EXPECT_GT(stats.snapshot_bytes, 10u * 12u);
}

TEST_F(KvSnapshotTest, may_be_read_by_any_thread) {
  Store s = opened();
  fill(s, 500);
  const Snapshot snap = snapshot(s);
  fill(s, 500, "new");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) EXPECT_EQ(*snap.get(key_of(i)), "old");
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace tenuto
