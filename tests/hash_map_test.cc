// A HashMap that shrinks: what merges cost, when they happen, and what they give back. Beside
// maps_test.cc, which has what all maps promise.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "pm/media.h"
#include "support/failing_memory.h"
#include "support/maps_boxed.h"
#include "support/maps_random.h"
#include "support/seed.h"
#include "tenuto/hash_map.h"
#include "tenuto/ordered_map.h"

namespace tenuto {
namespace {

using test::MapsRandom;
using test::TempPath;
using test::TxParts;

using Number = std::uint64_t;
using Table = HashMap<Number, Number>;

class HashMapTest : public ::testing::Test {
 protected:
  HashMapTest() {
    PoolOptions o = TxParts::small_options();
    o.medium = Medium::model;
    EXPECT_EQ(parts_.create(path_.str(), o), Status::ok) << parts_.report.text();
  }
  template <class T = Table>
  T& root() {
    return parts_.make_root<T>(0);
  }
  template <class T>
  Status insert(T& map, Number first, Number last) {
    return parts_.run([&](Transaction& tx) {
      for (Number n = first; n <= last; ++n) TENUTO_TRY(map.insert(tx, n, n * 2));
      return Status::ok;
    });
  }
  template <class T>
  Status erase(T& map, Number first, Number last) {
    return parts_.run([&](Transaction& tx) {
      for (Number n = first; n <= last; ++n) TENUTO_TRY(map.erase(tx, n));
      return Status::ok;
    });
  }
  // Bytes of the map's blocks.
  template <class T>
  std::uint64_t bytes_of(const T& map) {
    std::uint64_t sum = 0;
    map.for_each_block([&](const void* block) {
      sum += parts_.heap->find_allocated(parts_.file->offset_of(block))->bytes;
    });
    return sum;
  }
  template <class T>
  void expect_numbers(const T& map, Number first, Number last) {
    Report r;
    ASSERT_EQ(map.validate(&r), Status::ok) << r.text();
    ASSERT_EQ(map.size(), last + 1 - first);
    for (Number n = first; n <= last; ++n) {
      ASSERT_NE(map.get(n), nullptr) << n;
      ASSERT_EQ(*map.get(n), n * 2);
    }
  }

  TempPath path_{"hashmap"};
  TxParts parts_;
};

TEST_F(HashMapTest, gives_back_what_it_grew_by) {
  auto& map = root();
  ASSERT_EQ(insert(map, 1, 100), Status::ok);
  const std::uint64_t small = bytes_of(map);
  ASSERT_EQ(insert(map, 101, 20'000), Status::ok);
  const std::uint64_t large = bytes_of(map);
  EXPECT_GT(large, 100 * small);
  for (Number n = 20'000; n > 100; n -= 100) {
    ASSERT_EQ(erase(map, n - 99, n), Status::ok);
    if (n > 1000) {  // segments of 64 KiB, and 128 bytes for two entries, and what is behind
      ASSERT_LE(bytes_of(map), 64 * 1024 + n * 128 / 2 * 6 / 5);
    }
  }
  expect_numbers(map, 1, 100);
  EXPECT_LE(bytes_of(map), 2 * small + 1024) << "the directory stays";
  ASSERT_EQ(erase(map, 1, 100), Status::ok);
  EXPECT_EQ(map.validate(), Status::ok);
  EXPECT_LE(bytes_of(map), 1024u) << "a bucket and the directory";
  ASSERT_EQ(insert(map, 1, 20'000), Status::ok);
  expect_numbers(map, 1, 20'000);
  EXPECT_LE(bytes_of(map), large + 1024);
}

// Both bounds would be the same without it.
TEST_F(HashMapTest, erases_and_inserts_in_turn_neither_split_nor_merge) {
  auto& map = root();
  for (const Number size : {500u, 1000u, 1003u}) {
    ASSERT_EQ(insert(map, map.size() + 1, size), Status::ok);
    std::uint64_t lines = 0;
    for (int i = 0; i < 50; ++i) {
      const pm::ModelCounts before = pm::thread_model_counts();
      ASSERT_EQ(erase(map, size, size), Status::ok);
      ASSERT_EQ(insert(map, size, size), Status::ok);
      if (i > 0) lines += (pm::thread_model_counts() - before).lines;
    }
    EXPECT_LE(lines, 49u * 14) << size;
  }
}

TEST_F(HashMapTest, an_erase_costs_three_fences_and_some_lines_more_when_it_merges) {
  auto& map = root();
  constexpr Number kCount = 4000;
  for (Number n = 1; n <= kCount; n += 100) ASSERT_EQ(insert(map, n, n + 99), Status::ok);
  pm::ModelCounts sum{};
  std::uint64_t lines_max = 0;
  for (Number n = 1; n <= kCount; ++n) {
    const pm::ModelCounts before = pm::thread_model_counts();
    ASSERT_EQ(erase(map, n, n), Status::ok);
    const pm::ModelCounts used = pm::thread_model_counts() - before;
    sum.fences += used.fences;
    sum.lines += used.lines;
    lines_max = std::max(lines_max, used.lines);
  }
  const double lines = static_cast<double>(sum.lines) / kCount;
  if (std::getenv("TENUTO_PRINT_COSTS") != nullptr) {
    std::printf("hashed, erased: %.3f fences, %.2f lines, at most %llu\n",
                static_cast<double>(sum.fences) / kCount, lines,
                static_cast<unsigned long long>(lines_max));
  }
  EXPECT_LE(sum.fences, kCount * 3 + kCount / 50 + 8) << "rarely some of the heap";
  EXPECT_LE(lines, 10.0);
  EXPECT_LE(lines_max, 60u);
}

TEST_F(HashMapTest, merges_keep_what_keys_and_values_own) {
  auto& map = root<HashMap<test::Boxed, test::Boxed, test::BoxedHash, test::BoxedEqual>>();
  ASSERT_EQ(insert(map, 1, 600), Status::ok);
  EXPECT_EQ(parts_.run([&](Transaction& tx) {
    for (Number n = 1; n <= 580; ++n) TENUTO_TRY(map.erase(tx, n));
    for (Number n = 1000; n <= 1300; ++n) TENUTO_TRY(map.insert(tx, n, n));
    return Status::conflict;
  }),
            Status::conflict);
  expect_numbers(map, 1, 600);
  ASSERT_EQ(erase(map, 1, 580), Status::ok);
  expect_numbers(map, 581, 600);
  std::size_t blocks = 1 + 2 * 20;
  map.for_each_block([&](const void*) { blocks += 1; });
  EXPECT_EQ(parts_.allocated_blocks().size(), blocks);
}

TEST_F(HashMapTest, fields_that_wait_move_with_their_bucket) {
  auto& map = root<HashMap<Number, p<Number>>>();
  ASSERT_EQ(insert(map, 1, 200), Status::ok);
  ASSERT_EQ(parts_.run([&](Transaction& tx) -> Status {
    for (Number n = 1; n <= 180; ++n) {
      for (Number m = 181; m <= 200; ++m) *map.get(m) += 1;
      TENUTO_TRY(map.erase(tx, n));
      if (n % 60 == 0) {
        for (Number m = 0; m < 30; ++m) TENUTO_TRY(map.insert(tx, 1000 + n + m, 0u));
      }
    }
    return Status::ok;
  }),
            Status::ok);
  ASSERT_EQ(map.validate(), Status::ok);
  for (Number m = 181; m <= 200; ++m) ASSERT_EQ(*map.get(m), m * 2 + 180);
}

// A pool that is full refuses the bucket behind another that a merge needs: the erase is done.
TEST_F(HashMapTest, an_erase_does_not_fail_when_its_merge_does) {
  struct SameBucket {
    std::uint64_t operator()(Number n) const { return n < 1000 ? 3 + 4 * (n % 2) : n; }
  };
  auto& map = root<HashMap<Number, Number, SameBucket>>();
  for (Number n = 1; n <= 15; ++n) ASSERT_EQ(insert(map, n, n), Status::ok);
  ASSERT_EQ(insert(map, 1000, 1013), Status::ok);
  while (parts_.heap->reserve(20'000, heap::Kind::logged)) continue;
  while (parts_.heap->reserve(128, heap::Kind::logged)) continue;
  ASSERT_EQ(erase(map, 1000, 1013), Status::ok);
  expect_numbers(map, 1, 15);
}

// What an insertion would store in the map, and where its entry would go, depends on how full the
// map is: the first one, one behind a full bucket, one that splits a full leaf.
template <class Map>
void expect_refused_outside_of_its_transaction(TxParts& parts, Map& map) {
  TempPath path("hashmap2");
  TxParts other;
  ASSERT_EQ(other.create(path.str()), Status::ok);
  for (Number n = 1; n <= 40; ++n) {
    SCOPED_TRACE(n);
    ASSERT_EQ(other.run([&](Transaction& tx) {
      EXPECT_EQ(map.insert(tx, n, n), Status::invalid_argument);
      EXPECT_EQ(map.get_or_insert(tx, n).error(), Status::invalid_argument);
      EXPECT_EQ(map.insert_or_assign(tx, n - 1, n), Status::invalid_argument);
      EXPECT_EQ(map.erase(tx, n - 1), n == 1 ? Status::not_found : Status::invalid_argument);
      return Status::ok;
    }),
              Status::ok);
    EXPECT_EQ(map.size(), n - 1);
    EXPECT_TRUE(other.allocated_blocks().empty());
    ASSERT_EQ(map.validate(), Status::ok);
    ASSERT_EQ(parts.run([&](Transaction& tx) { return map.insert(tx, n, n); }), Status::ok);
    EXPECT_EQ(*map.get(n), n);
  }
  ASSERT_EQ(other.close(), Status::ok);
}

TEST_F(HashMapTest, is_refused_outside_of_its_transaction) {
  expect_refused_outside_of_its_transaction(parts_, root<HashMap<Number, p<Number>>>());
}

TEST_F(HashMapTest, is_refused_outside_of_its_transaction_in_order) {
  expect_refused_outside_of_its_transaction(parts_, root<OrderedMap<Number, p<Number>>>());
}

template <class Map>
void expect_aligned_values(TxParts& parts, Map& map) {
  for (Number n = 1; n <= 200; ++n) {
    ASSERT_EQ(parts.run([&](Transaction& tx) { return map.insert(tx, n, n); }), Status::ok);
  }
  for (const auto& [key, value] : map) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&value) % alignof(decltype(value)), 0u) << key;
  }
  map.for_each_block(
      [&](const void* block) { EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u); });
}

TEST_F(HashMapTest, values_that_need_more_than_a_line_are_aligned) {
  struct alignas(256) Wide {
    Number n = 0;
    Wide() = default;
    explicit Wide(Number value) : n(value) {}
  };
  auto& map = root<HashMap<Number, Wide>>();
  expect_aligned_values(parts_, map);
  ASSERT_EQ(parts_.run([&](Transaction& tx) { return map.clear(tx); }), Status::ok);
  expect_aligned_values(parts_, parts_.make_root<OrderedMap<Number, Wide>>(1));
}

// Long phases of growth and of shrinking, from a few keys to thousands, beside std::map.
TEST(HashMapRandomly, grows_and_shrinks_as_std_map) {
  const std::uint64_t first = test::test_seed();
  for (std::uint64_t seed = first; seed < first + test::fewer_if_sanitized(3, 1); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    MapsRandom<Table> r(seed);
    for (int life = 0; life < 2; ++life) {
      const std::size_t large = r.phase(true, 1000, 250);
      const std::size_t small = r.phase(false, 1000, 400);
      if (::testing::Test::HasFatalFailure()) return;
      EXPECT_GT(large, 2 * small);
    }
  }
}

}  // namespace
}  // namespace tenuto
