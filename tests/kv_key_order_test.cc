// Compaction in key order: what a walk reads lies together afterwards, and nothing else changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/snapshot.h"

namespace tenuto::test {
namespace {

using Records = std::map<std::string, std::string>;

class KvKeyOrderTest : public KvFixture {
 protected:
  static constexpr std::uint64_t kSeed = 20'261'129;
  static constexpr int kRecords = 20'000;

  static std::string value(int n) { return std::to_string(n) + std::string(90, 'v'); }

  // In no order. Then some are erased and replaced, so that there are holes everywhere.
  static Records fill(Collection& in) {
    std::mt19937_64 rng(kSeed);
    std::vector<int> order(kRecords);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    Records there;
    for (const int n : order) {
      there[key_of(n)] = value(n);
      EXPECT_EQ(in.put(key_of(n), there[key_of(n)]), Status::ok);
    }
    for (int i = 0; i < kRecords / 4; ++i) {
      const int n = static_cast<int>(rng() % kRecords);
      if (i % 2 == 0) {
        there.erase(key_of(n));
        static_cast<void>(in.erase(key_of(n)));
      } else {
        there[key_of(n)] = value(n + 1);
        EXPECT_EQ(in.put(key_of(n), value(n + 1)), Status::ok);
      }
    }
    return there;
  }
  template <class From>
  static Records all(From& from) {
    Records out;
    Iterator it = from.iterator();
    for (it.seek_first(); it.valid(); it.next()) out.emplace(it.key(), it.value());
    EXPECT_EQ(it.status(), Status::ok);
    return out;
  }

  struct Nearness {
    double pages = 0;       // of 4 KiB, that hold 50 neighbouring records
    double neighbours = 0;  // part of the records within two lines of the next one
  };
  static Nearness nearness(const Collection& in) {
    constexpr int kWalk = 50;
    std::set<std::uintptr_t> pages;
    std::uint64_t walks = 0, pages_sum = 0, near = 0, records = 0;
    std::uintptr_t last = 0;
    Iterator it = in.iterator();
    for (it.seek_first(); it.valid(); it.next()) {
      const auto at = reinterpret_cast<std::uintptr_t>(it.value().data());
      pages.insert(at >> 12);
      near += (at > last ? at - last : last - at) <= 128;
      last = at;
      if (++records % kWalk != 0) continue;
      walks += 1;
      pages_sum += pages.size();
      pages.clear();
    }
    return {static_cast<double>(pages_sum) / static_cast<double>(walks),
            static_cast<double>(near) / static_cast<double>(records)};
  }
  CompactStats compacted(Store& s) {
    const auto stats = s.compact({.in_key_order = true}, &report_);
    EXPECT_TRUE(stats) << report_.text();
    return stats ? *stats : CompactStats{};
  }
};

TEST_F(KvKeyOrderTest, neighbours_lie_beside_each_other) {
  Store s = opened();
  const Records there = fill(s);
  const Nearness before = nearness(s);
  EXPECT_GT(before.pages, 30);
  const CompactStats c = compacted(s);
  EXPECT_TRUE(c.complete);
  EXPECT_EQ(c.records_moved, there.size());
  EXPECT_LT(c.bytes_after,
            c.bytes_before);  // the holes went, and nothing of the second copy stayed
  const Nearness after = nearness(s);
  EXPECT_LT(after.pages, 4);
  EXPECT_GT(after.neighbours, .9);
  EXPECT_EQ(all(s), there);
  expect_valid(s);
  ASSERT_EQ(s.close(), Status::ok);
  Store again = opened();
  EXPECT_LT(nearness(again).pages, 4);
  EXPECT_EQ(all(again), there);
  expect_valid(again);
}

// Of several collections each is in its own order. What a snapshot needs stays where it is.
TEST_F(KvKeyOrderTest, of_all_collections_beside_a_snapshot) {
  Store s = opened();
  Result<Collection> other = s.collection("other");
  ASSERT_TRUE(other);
  const Records first = fill(s), second = fill(*other);
  const auto snapshot = s.snapshot();
  ASSERT_TRUE(snapshot);
  for (int n = 0; n < kRecords; n += 3) ASSERT_EQ(s.put(key_of(n), "changed"), Status::ok);
  {
    Iterator held = s.iterator();
    held.seek(key_of(kRecords / 2));
    ASSERT_TRUE(held.valid());
    const std::string value_before(held.value());
    compacted(s);
    EXPECT_EQ(held.value(), value_before);
  }
  EXPECT_EQ(all(*snapshot), first);
  EXPECT_LT(nearness(*other).pages, 4);
  EXPECT_EQ(all(*other), second);
  expect_valid(s);
}

TEST_F(KvKeyOrderTest, without_room_for_it_what_was_done_stays) {
  options_.pool.size = options_.pool.size_max = 8u << 20;
  Store s = opened();
  Records there;
  std::mt19937_64 rng(kSeed);
  for (;;) {
    const int n = static_cast<int>(rng() % 1'000'000);
    const Status put = s.put(key_of(n), value(n));
    if (put == Status::full) break;
    ASSERT_EQ(put, Status::ok);
    there[key_of(n)] = value(n);
  }
  const CompactStats c = compacted(s);
  EXPECT_FALSE(c.complete);
  EXPECT_EQ(all(s), there);
  expect_valid(s);
}

TEST_F(KvKeyOrderTest, a_part_cannot_be_asked_for) {
  Store s = opened();
  EXPECT_EQ(s.compact({.moves_max = 10, .in_key_order = true}, &report_).error(),
            Status::invalid_argument);
  EXPECT_NE(report_.text().find("moves_max"), std::string::npos) << report_.text();
}

}  // namespace
}  // namespace tenuto::test
