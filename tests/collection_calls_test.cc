// Calls on a collection, and through the store on the default one, beyond get, put and erase:
// conditional writes, several keys at once, bounds, and counts from the index.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/collection.h"

namespace tenuto {
namespace {

using test::key_of;

class CollectionCallsTest : public test::KvFixture {
 protected:
  void SetUp() override {
    options_.pool.size = 64u << 20;
    store_.emplace(opened());
    Result<Collection> c = store_->collection("c");
    ASSERT_TRUE(c);
    c_ = *c;
  }
  void TearDown() override { expect_valid(*store_); }
  void fill(int from, int to, int stride = 1) {
    for (int i = from; i < to; i += stride) ASSERT_EQ(c_.put(key_of(i), "v"), Status::ok);
  }

  std::optional<Store> store_;
  Collection c_;
};

TEST_F(CollectionCallsTest, conditional_writes) {
  EXPECT_EQ(c_.put_if_absent("a", "1"), Status::ok);
  EXPECT_EQ(c_.put_if_absent("a", "2"), Status::exists);
  EXPECT_EQ(c_.compare_and_swap("a", "2", "3"), Status::conflict);
  EXPECT_EQ(c_.compare_and_swap("a", "1", "3"), Status::ok);
  EXPECT_EQ(c_.compare_and_swap("b", std::nullopt, "new"), Status::ok);
  EXPECT_EQ(c_.compare_and_swap("b", "new", std::nullopt), Status::ok);
  EXPECT_EQ(c_.contains("b"), Status::not_found);
  const MergeFunction append = [](std::optional<std::string_view> old) {
    return std::optional(std::string(old.value_or("")) + "+");
  };
  EXPECT_EQ(c_.merge("a", append), Status::ok);
  EXPECT_EQ(c_.merge("m", append), Status::ok);
  EXPECT_EQ(*c_.get("a"), "3+");
  EXPECT_EQ(*c_.get("m"), "+");
  EXPECT_EQ(c_.merge("m", [](auto) { return std::optional<std::string>(); }), Status::ok);
  EXPECT_EQ(c_.contains("m"), Status::not_found);
  EXPECT_EQ(store_->contains("a"), Status::not_found);  // the default collection has its own
  EXPECT_EQ(store_->put_if_absent("a", "main"), Status::ok);
  EXPECT_EQ(store_->compare_and_swap("a", "main", "m"), Status::ok);
  EXPECT_EQ(store_->merge("a", append), Status::ok);
  EXPECT_EQ(*store_->get("a"), "m+");
  ASSERT_EQ(store_->drop("c"), Status::ok);
  EXPECT_EQ(c_.put_if_absent("z", "1"), Status::not_found);
  EXPECT_EQ(c_.merge("z", append), Status::not_found);
}

TEST_F(CollectionCallsTest, merges_of_many_threads_all_count) {
  constexpr int kThreads = 4, kEach = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        ASSERT_EQ(c_.merge("n",
                           [](std::optional<std::string_view> old) {
                             const int n = old ? std::atoi(std::string(*old).c_str()) : 0;
                             return std::optional(std::to_string(n + 1));
                           }),
                  Status::ok);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(*c_.get("n"), std::to_string(kThreads * kEach));
}

// The loop walks what the temporary held.
TEST_F(CollectionCallsTest, a_loop_over_the_value_of_a_call) {
  std::vector<std::string> names;
  for (const CollectionInfo& c : *store_->collections()) names.push_back(c.name);
  for (const CollectionInfo& c : store_->collections().value()) names.push_back(c.name);
  EXPECT_EQ(names, std::vector<std::string>(2, "c"));
}

TEST_F(CollectionCallsTest, several_keys_at_once) {
  fill(0, 100, 2);
  const std::string a = key_of(4), b = key_of(5), large(kKeyBytesMax + 1, 'x');
  const std::vector<std::string_view> keys{a, b, large, a};
  const auto got = c_.multi_get(keys);
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(*got[0], "v");
  EXPECT_EQ(got[1].error(), Status::not_found);
  EXPECT_EQ(got[2].error(), Status::too_large);
  EXPECT_EQ(*got[3], "v");
  EXPECT_EQ(store_->multi_get(keys)[0].error(), Status::not_found);
}

TEST_F(CollectionCallsTest, bounds) {
  fill(0, 1000, 10);
  EXPECT_EQ(c_.lower_bound(key_of(50))->key, key_of(50));
  EXPECT_EQ(c_.lower_bound(key_of(51))->key, key_of(60));
  EXPECT_EQ(c_.upper_bound(key_of(50))->key, key_of(60));
  EXPECT_EQ(c_.upper_bound(key_of(50))->value, "v");
  EXPECT_EQ(c_.lower_bound("")->key, key_of(0));
  EXPECT_EQ(c_.upper_bound(key_of(990)).error(), Status::not_found);
  EXPECT_EQ(c_.lower_bound(std::string(kKeyBytesMax + 1, 'k')).error(), Status::too_large);
  EXPECT_EQ(store_->lower_bound("").error(), Status::not_found);
}

TEST_F(CollectionCallsTest, a_range_goes_at_once) {
  fill(0, 3000);
  Result<std::uint64_t> n = c_.erase_range(key_of(500), key_of(2500));
  ASSERT_TRUE(n);
  EXPECT_EQ(*n, 2000u);
  EXPECT_EQ(c_.stats().records, 1000u);
  EXPECT_EQ(c_.contains(key_of(500)), Status::not_found);
  EXPECT_EQ(c_.contains(key_of(2500)), Status::ok);
  EXPECT_EQ(*c_.erase_range(key_of(500), key_of(2500)), 0u);
  EXPECT_EQ(*c_.erase_range(key_of(9), key_of(3)), 0u);
  EXPECT_EQ(*c_.erase_range(key_of(2990), std::nullopt), 10u);
  EXPECT_EQ(*c_.erase_range("", std::nullopt), 990u);
  EXPECT_EQ(c_.stats().records, 0u);
}

// A record that two calls want to erase is counted by the one that erased it.
TEST_F(CollectionCallsTest, ranges_that_go_at_once_share_the_count) {
  constexpr int kRounds = 50;
  constexpr int kKeys = 500;
  std::uint64_t counted = 0;
  for (int round = 0; round < kRounds; ++round) {
    fill(0, kKeys);
    std::uint64_t other = 0;
    std::thread beside([&] { other = c_.erase_range({}, {}).value_or(0); });
    counted += c_.erase_range({}, {}).value_or(0);
    beside.join();
    counted += other;
  }
  EXPECT_EQ(counted, static_cast<std::uint64_t>(kRounds) * kKeys);
}

// The error is at most a third of the real count, plus a few leaves at each end.
TEST_F(CollectionCallsTest, counts_from_the_index_are_near) {
  EXPECT_EQ(c_.approximate_count("", std::nullopt), 0u);
  constexpr int kKeys = 60'000;
  for (int i = 0; i < kKeys; ++i) {
    ASSERT_EQ(c_.put(key_of(static_cast<int>(i * 7919ll % kKeys)), "v"), Status::ok);
  }
  EXPECT_EQ(c_.approximate_count("", std::nullopt), static_cast<std::uint64_t>(kKeys));
  for (const auto& [from, to] : {std::pair{0, 30'000},
                                 {1000, 59'000},
                                 {20'000, 21'000},
                                 {59'000, 60'000},
                                 {5, 6},
                                 {7000, 7000},
                                 {100, 50}}) {
    const std::string end = key_of(to);
    const auto told = static_cast<double>(c_.approximate_count(key_of(from), end));
    const double real = std::max(0, to - from);
    EXPECT_LE(std::abs(told - real), real / 3 + 100) << from << " " << to << ": " << told;
  }
}

}  // namespace
}  // namespace tenuto
