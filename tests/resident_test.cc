// What of a pool is in memory, as PoolStats tells: with and without zones of records.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "support/pool_parts.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

constexpr int kRecords = 20'000;
constexpr std::uint64_t kValueBytes = 1000;
constexpr std::uint64_t kDataBytes = kRecords * kValueBytes;

class Resident : public testing::Test {
 protected:
  Resident() : path_("resident") {
    options_.pool.size = kPoolBytesMin;
    options_.pool.size_max = 256u << 20;
  }

  PoolStats stats_after_load(Medium medium) {
    options_.pool.medium = medium;
    Result<Store> s = Store::open(path_.str(), options_);
    EXPECT_TRUE(s);
    if (!s) return {};
    for (int i = 0; i < kRecords; ++i) {
      const std::string key = "key" + std::to_string(i);
      EXPECT_EQ(s->put(key, std::string(kValueBytes, 'v'), {Durability::buffered}), Status::ok);
    }
    const PoolStats stats = s->stats().pool;
    EXPECT_EQ(s->close(), Status::ok);
    EXPECT_LE(stats.resident_bytes, stats.file_bytes);
    EXPECT_LE(stats.dirty_bytes, stats.resident_bytes);
    EXPECT_LE(stats.private_bytes, stats.dirty_bytes);
    EXPECT_GT(stats.resident_bytes, kDataBytes);
    return stats;
  }

  const TempPath path_;
  StoreOptions options_;
};

TEST_F(Resident, a_pool_in_memory_has_no_private_pages) {
  EXPECT_EQ(stats_after_load(Medium::cache).private_bytes, 0u);
}

TEST_F(Resident, on_a_journal_all_written_pages_are_private) {
  EXPECT_GT(stats_after_load(Medium::journal).private_bytes, kDataBytes);
}

TEST_F(Resident, but_not_those_of_zones_of_records) {
  options_.pool.heap.memory_max = 1;
  EXPECT_LT(stats_after_load(Medium::journal).private_bytes, kDataBytes / 2);
}

}  // namespace
}  // namespace tenuto::test
