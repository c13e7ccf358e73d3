// Records in shared pages of a disk: a slab is filled as a whole, so that records that are put one
// after the other are beside each other (src/heap/arena.h).
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/pool_parts.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

constexpr int kRecords = 20'000;
constexpr std::size_t kValueBytes = 1000;

class RecordSlabs : public testing::Test {
 protected:
  RecordSlabs() {
    options_.pool.size = kPoolBytesMin;
    options_.pool.size_max = 256u << 20;
    options_.pool.medium = Medium::journal;
    options_.pool.heap.memory_max = 1;
  }

  Store opened() {
    Result<Store> s = Store::open(path_.str(), options_);
    EXPECT_TRUE(s);
    return std::move(*s);
  }
  static Status put(Store& s, int n) {
    return s.put(key(n), std::string(kValueBytes, 'v'), {Durability::buffered});
  }
  static std::string key(int n) { return "key" + std::to_string(n); }
  void load(Store& s, int n) {
    for (int i = 0; i < n; ++i) ASSERT_EQ(put(s, i), Status::ok);
    ASSERT_EQ(s.sync(), Status::ok);
  }
  // Puts `n` records again, at random. Before the next call their old blocks are free.
  std::vector<int> replace(Store& s, int n) {
    std::vector<int> chosen;
    for (int i = 0; i < n; ++i) {
      chosen.push_back(static_cast<int>(random_() % kRecords));
      EXPECT_EQ(put(s, chosen.back()), Status::ok);
    }
    EXPECT_EQ(s.sync(), Status::ok);
    return chosen;
  }

  const TempPath path_{"record-slabs"};
  StoreOptions options_;
  std::mt19937_64 random_{1};
};

TEST_F(RecordSlabs, records_put_together_share_pages) {
  Store s = opened();
  load(s, kRecords);
  replace(s, kRecords / 10);  // leaves a tenth of each slab free
  std::set<std::uintptr_t> pages;
  const std::vector<int> chosen = replace(s, kRecords / 10);
  for (const int n : chosen) {
    const Result<View> record = s.view(key(n));
    ASSERT_TRUE(record);
    pages.insert(reinterpret_cast<std::uintptr_t>(record->value().data()) / 4096);
  }
  EXPECT_LT(pages.size(), chosen.size() / 2);
}

TEST_F(RecordSlabs, at_most_a_quarter_of_them_is_free) {
  Store s = opened();
  load(s, kRecords);
  const std::uint64_t loaded = s.stats().pool.file_bytes;
  for (int i = 0; i < 40; ++i) replace(s, kRecords / 10);
  const PoolStats after = s.stats().pool;
  EXPECT_LT(after.file_bytes, loaded + loaded / 2);
  EXPECT_EQ(s.validate(), Status::ok);
}

TEST_F(RecordSlabs, a_full_pool_uses_single_blocks) {
  options_.pool.size_max = 40u << 20;
  Store s = opened();
  int n = 0;
  while (put(s, n) == Status::ok) n += 1;
  ASSERT_GT(n, 10'000);
  ASSERT_EQ(s.sync(), Status::ok);
  for (int i = 0; i < n; i += 10) ASSERT_EQ(s.erase(key(i), {Durability::buffered}), Status::ok);
  ASSERT_EQ(s.sync(), Status::ok);
  int again = 0;
  while (put(s, 10 * again) == Status::ok) again += 1;
  EXPECT_GT(again, n / 10 * 9 / 10);
}

TEST_F(RecordSlabs, a_compaction_fills_them) {
  Store s = opened();
  load(s, kRecords);
  for (int i = 0; i < kRecords; ++i) {
    if (i % 5 != 0) continue;
    ASSERT_EQ(s.erase(key(i), {Durability::buffered}), Status::ok);
  }
  ASSERT_EQ(s.sync(), Status::ok);
  const Result<CompactStats> done = s.compact({.occupancy = 0.9});
  ASSERT_TRUE(done);
  const std::uint64_t left = kRecords / 5 * 4 * kValueBytes;
  EXPECT_LT(done->bytes_after, left + left / 5);
  EXPECT_EQ(s.validate(), Status::ok);
}

}  // namespace
}  // namespace tenuto::test
