// Store::backup: the copy holds the store at one point in time, whatever other threads write
// meanwhile.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "tenuto/collection.h"

namespace tenuto {
namespace {

using test::key_of;

class BackupTest : public test::KvFixture {
 protected:
  Result<Store> open_copy() { return Store::open(copy_.str(), options_, &report_); }
  // Files whose names begin with the copy's.
  std::vector<std::string> beside_the_copy() const {
    const std::filesystem::path copy(copy_.str());
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(copy.parent_path())) {
      const bool like_it = entry.path().string().rfind(copy_.str(), 0) == 0;
      if (like_it) found.push_back(entry.path().string());
    }
    return found;
  }

  test::TempPath copy_{"backup"};
};

TEST_F(BackupTest, it_holds_everything_under_its_name) {
  Store s = opened();
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(s.put(key_of(i), "main"), Status::ok);
  Collection n = *s.collection("numbers", CollectionOptions{.order = KeyOrder::u64});
  ASSERT_EQ(n.put(u64_key(7), "seven"), Status::ok);
  ASSERT_TRUE(s.collection("empty"));
  ASSERT_EQ(s.backup(copy_.str(), options_.pool, &report_), Status::ok) << report_.text();
  EXPECT_EQ(s.backup(copy_.str(), options_.pool, &report_), Status::exists);
  EXPECT_EQ(s.stats().snapshots, 0u);
  Result<Store> copy = open_copy();
  ASSERT_TRUE(copy) << report_.text();
  EXPECT_TRUE(copy->pool().info().was_clean);
  EXPECT_EQ(test::records_of(*copy), test::records_of(s));
  EXPECT_EQ(copy->collections()->size(), 2u);
  const CollectionOptions there{
      .create_if_missing = false, .order = KeyOrder::u64, .check_order = true};
  EXPECT_EQ(*copy->collection("numbers", there)->get(u64_key(7)), "seven");
  expect_valid(*copy);
  EXPECT_EQ(s.drop("numbers"), Status::ok);  // it is not held any longer
}

TEST_F(BackupTest, its_journal_goes_and_the_stores_own_stays) {
  options_.pool.medium = Medium::journal;
  options_.pool.journal.path = path_.str() + ".own";
  options_.pool.journal.bytes = 256u << 10;
  Store s = opened();
  ASSERT_EQ(s.put("key", "value"), Status::ok);
  ASSERT_EQ(s.backup(copy_.str(), options_.pool, &report_), Status::ok) << report_.text();
  EXPECT_EQ(beside_the_copy(), std::vector<std::string>{copy_.str()});
  ASSERT_EQ(s.put("key", "later"), Status::ok);
  EXPECT_EQ(s.close(), Status::ok);
  EXPECT_EQ(::access(options_.pool.journal.path.c_str(), F_OK), 0);
  ::unlink(options_.pool.journal.path.c_str());
  StoreOptions plain;
  plain.pool.medium = Medium::cache;
  EXPECT_EQ(*Store::open(copy_.str(), plain, &report_)->get("key"), "value");
}

TEST_F(BackupTest, a_backup_that_fails_leaves_nothing) {
  options_.pool.size = 64u << 20;
  Store s = opened();
  EXPECT_NE(s.backup("/no such folder/backup", options_.pool, &report_), Status::ok);
  EXPECT_NE(report_.what, "");
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(s.put(key_of(i), std::string(2000, 'x')), Status::ok);
  PoolOptions small = options_.pool;
  small.size = small.size_max = kPoolBytesMin;
  EXPECT_EQ(s.backup(copy_.str(), small, &report_), Status::full);
  EXPECT_NE(::access(copy_.str().c_str(), F_OK), 0);
  EXPECT_EQ(beside_the_copy(), std::vector<std::string>{});
}

// One backup gets the name, whole. The other one returns that the file exists.
TEST_F(BackupTest, two_backups_to_one_path_do_not_hand_out_each_others_files) {
  Store s = opened();
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(s.put(key_of(i), std::string(200, 'x')), Status::ok);
  const auto all = test::records_of(s);
  for (int round = 0; round < 8; ++round) {
    ::unlink(copy_.str().c_str());
    Status statuses[2] = {};
    std::thread other([&] { statuses[1] = s.backup(copy_.str(), options_.pool); });
    if (round % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(round * 3));
    statuses[0] = s.backup(copy_.str(), options_.pool);
    other.join();
    const bool first = statuses[0] == Status::ok;
    EXPECT_EQ(statuses[first ? 0 : 1], Status::ok);
    EXPECT_EQ(statuses[first ? 1 : 0], Status::exists);
    Result<Store> copy = open_copy();
    ASSERT_TRUE(copy) << report_.text();
    EXPECT_TRUE(copy->pool().info().was_clean);
    EXPECT_EQ(test::records_of(*copy), all);
  }
  EXPECT_EQ(beside_the_copy(), std::vector<std::string>{copy_.str()});
}

// A file beside the copy whose name only looks like a temporary file of the library is left alone.
TEST_F(BackupTest, a_file_of_somebody_else_stays) {
  const std::string theirs = copy_.str() + ".partial";
  std::ofstream(theirs) << "theirs";
  Store s = opened();
  ASSERT_EQ(s.backup(copy_.str(), options_.pool, &report_), Status::ok) << report_.text();
  std::string text;
  std::ifstream(theirs) >> text;
  EXPECT_EQ(text, "theirs");
  ::unlink(theirs.c_str());
}

// Batches move amounts between two collections, so the sum is the same at every point in time.
TEST_F(BackupTest, it_is_one_moment_while_others_write) {
  options_.pool.size = 32u << 20;
  Store s = opened();
  constexpr int kAccounts = 200, kEach = 100;
  Collection a = *s.collection("a");
  Collection b = *s.collection("b");
  for (int i = 0; i < kAccounts; ++i) {
    ASSERT_EQ(a.put(key_of(i), std::to_string(kEach)), Status::ok);
    ASSERT_EQ(b.put(key_of(i), "0"), Status::ok);
  }
  std::atomic<bool> stop{false};
  std::atomic<int> moved{0};
  std::thread mover([&] {
    for (int n = 0; !stop.load(); ++n) {
      const std::string key = key_of(n * 7 % kAccounts);
      const int in_a = std::stoi(*a.get(key)), in_b = std::stoi(*b.get(key));
      const int by = in_a > 0 ? 1 : -in_b;
      WriteBatch batch;
      batch.put({a, key}, std::to_string(in_a - by));
      batch.put({b, key}, std::to_string(in_b + by));
      ASSERT_EQ(s.write(batch), Status::ok);
      moved.fetch_add(1);
    }
  });
  for (int round = 0; round < 5; ++round) {
    const int before = moved.load();
    ASSERT_EQ(s.backup(copy_.str(), options_.pool, &report_), Status::ok) << report_.text();
    while (moved.load() == before) std::this_thread::yield();
    Result<Store> copy = open_copy();
    ASSERT_TRUE(copy);
    int sum = 0;
    for (const char* name : {"a", "b"}) {
      Iterator it = copy->collection(name)->iterator();
      for (it.seek_first(); it.valid(); it.next()) sum += std::stoi(std::string(it.value()));
    }
    EXPECT_EQ(sum, kAccounts * kEach);
    ASSERT_EQ(copy->close(), Status::ok);
    ::unlink(copy_.str().c_str());
  }
  stop.store(true);
  mover.join();
}

}  // namespace
}  // namespace tenuto
