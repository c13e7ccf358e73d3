// The benchmark's own check: real records are recognised. If this were wrong, a store that loses
// data would pass.
#include <gtest/gtest.h>

#include <string>

#include "bench/main_job/package_records.h"

namespace bench {
namespace {

constexpr const char* kIndex =
    "Package: alpha\nVersion: 1:2.0-1\nArchitecture: amd64\nDescription: first\n more\n"
    "\n"
    "Package: beta\nArchitecture: all\nVersion: 3\n"
    "\n"
    "Package: alpha\nVersion: 1:2.0-1\nArchitecture: amd64\nDescription: again\n"
    "\n"
    "Comment: no package\n"
    "\n"
    "Package: gamma\nVersion: 0.1\nArchitecture: amd64";  // no newline at the end

std::string key_of(const PackageRecords& records, std::uint64_t record) {
  std::string key(records.key_bytes_max(), '\0');
  key.resize(records.make_key(record, key.data()));
  return key;
}

std::string value_of(const PackageRecords& records, std::uint64_t record, std::uint32_t version) {
  std::string value(records.value_bytes_max(), '\0');
  value.resize(records.make_value(record, key_of(records, record), version, value.data()));
  return value;
}

TEST(PackageRecords, stanzas_become_records_once_each) {
  PackageRecords records;
  records.take(kIndex);
  ASSERT_EQ(records.stanzas(), 3u);
  EXPECT_EQ(key_of(records, 0), "alpha/1:2.0-1/amd64");
  EXPECT_EQ(key_of(records, 1), "beta/3/all");
  EXPECT_EQ(key_of(records, 2), "gamma/0.1/amd64");
  const std::string value = value_of(records, 0, 7);
  EXPECT_EQ(value.find("Package: alpha\n"), 0u);
  EXPECT_NE(value.find("\nTenuto-Seal: 00000007 "), std::string::npos);
  EXPECT_EQ(value.back(), '\n');
}

TEST(PackageRecords, keys_lead_back_to_their_record_also_when_stanzas_come_round_again) {
  PackageRecords records;
  records.take(kIndex);
  for (std::uint64_t r = 0; r < 100; ++r) EXPECT_EQ(records.record_of(key_of(records, r)), r);
  EXPECT_EQ(key_of(records, 4), "beta/3/all#2");
  for (const char* foreign : {"", "delta/1/all", "beta/3/all#1", "beta/3/all#x", "beta/3/all#"}) {
    EXPECT_FALSE(records.record_of(foreign).has_value()) << foreign;
  }
}

TEST(PackageRecords, a_value_betrays_every_changed_byte_and_another_key) {
  PackageRecords records;
  records.take(kIndex);
  const std::string key = key_of(records, 0);
  const std::string value = value_of(records, 0, 0xabcdef01);
  std::uint32_t version = 0;
  ASSERT_TRUE(records.check_value(key, value, version));
  EXPECT_EQ(version, 0xabcdef01u);
  EXPECT_FALSE(records.check_value(key_of(records, 3), value, version));
  EXPECT_FALSE(records.check_value(key, "", version));
  EXPECT_FALSE(records.check_value(key, value.substr(0, value.size() - 1), version));
  for (std::size_t i = 0; i < value.size(); ++i) {
    std::string changed = value;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(records.check_value(key, changed, version)) << "byte " << i;
  }
}

}  // namespace
}  // namespace bench
