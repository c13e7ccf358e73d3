// Stores and collections of one fence: how the choice is kept and told, what a clean and an unclean
// open make of such leaves, and what is damage. Crashes are one_fence_crash, costs kv_cost_test.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "store/one_fence.h"
#include "support/kv_fixture.h"
#include "tenuto/collection.h"
#include "tenuto/rescue.h"
#include "tenuto/snapshot.h"

namespace tenuto {
namespace {

using test::key_of;
constexpr CommitProtocol kOneFence = CommitProtocol::one_fence;

class OneFenceTest : public test::KvFixture {
 protected:
  using Model = std::map<std::string, std::string>;
  OneFenceTest() { options_.commit = kOneFence; }

  // In a process that ends without closing.
  void abandoned(const std::function<void(Store&)>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      options_.pool.recovery_threads = 1;
      Result<Store> s = Store::open(path_.str(), options_);
      if (!s) std::_Exit(1);
      work(*s);
      std::_Exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  template <class From>
  static Model all_of(const From& from) {
    Model m;
    Iterator it = from.iterator();
    for (it.seek_first(); it.valid(); it.next()) m.emplace(it.key(), it.value());
    EXPECT_EQ(it.status(), Status::ok);
    return m;
  }
};

TEST_F(OneFenceTest, the_choice_is_kept_and_told) {
  {
    Store s = opened();
    EXPECT_EQ(s.stats().commit, kOneFence);
    auto plain = s.collection("plain");
    auto tagged = s.collection("tagged", CollectionOptions{.commit = kOneFence});
    ASSERT_TRUE(plain && tagged);
    EXPECT_EQ(plain->stats().commit, CommitProtocol::two_fences);
    EXPECT_EQ(tagged->stats().commit, kOneFence);
    for (int i = 0; i < 500; ++i) {
      ASSERT_EQ(s.put(key_of(i), "main"), Status::ok);
      ASSERT_EQ(plain->put(key_of(i), "plain"), Status::ok);
      ASSERT_EQ(tagged->put(key_of(i), "tagged"), Status::ok);
    }
    ASSERT_EQ(s.rename("tagged", "renamed"), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  options_.commit = CommitProtocol::two_fences;
  Store s = opened();
  EXPECT_EQ(s.stats().commit, kOneFence);
  const auto plain = s.collection("plain", CollectionOptions{.commit = kOneFence});
  const auto tagged = s.collection("renamed");
  ASSERT_TRUE(plain && tagged);
  EXPECT_EQ(plain->stats().commit, CommitProtocol::two_fences);
  EXPECT_EQ(tagged->stats().commit, kOneFence);
  EXPECT_EQ(*tagged->get(key_of(77)), "tagged");
  EXPECT_EQ(all_of(*tagged).size(), 500u);
  expect_valid(s);
}

TEST_F(OneFenceTest, an_unclean_open_finds_what_was_acknowledged_and_counts_it) {
  const auto work = [](Store& s) {
    for (int i = 0; i < 4000; ++i) {
      const std::string key = key_of(i * 7919 % 1000);
      if (i % 5 == 4) {
        static_cast<void>(s.erase(key));
      } else if (s.put(key, "value " + std::to_string(i)) != Status::ok) {
        std::_Exit(2);
      }
    }
    WriteBatch b;
    for (int i = 0; i < 300; ++i) b.put(key_of(i * 3), "batch");
    if (s.write(b) != Status::ok) std::_Exit(3);
  };
  abandoned(work);
  Model expected;
  {
    test::TempPath other("twin");
    Result<Store> s = Store::open(other.str(), options_);
    ASSERT_TRUE(s);
    work(*s);
    expected = all_of(*s);
  }
  std::uint64_t bytes = 0;
  for (const auto& [k, v] : expected) bytes += k.size() + v.size();
  for (int round = 0; round < 2; ++round) {  // after the crash, and after a clean close
    Store s = opened();
    EXPECT_EQ(s.stats().records, expected.size());
    EXPECT_EQ(s.stats().record_bytes, bytes);
    EXPECT_EQ(all_of(s), expected);
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

TEST_F(OneFenceTest, leaves_stay_updatable_however_they_are_filled) {
  Store s = opened();
  Model expected;
  std::vector<BulkRecord> sorted;
  std::vector<std::string> keys;
  for (int i = 0; i < 5000; ++i) keys.push_back(key_of(2 * i));
  for (const std::string& k : keys) sorted.push_back({k, "bulk"});
  ASSERT_EQ(s.bulk_load(sorted), Status::ok);
  for (int i = 0; i < 12'000; ++i) {  // fills leaves, splits them, follows at the end
    ASSERT_EQ(s.put(key_of(i), "first"), Status::ok);
    expected[key_of(i)] = "first";
  }
  WriteBatch b;
  for (int i = 0; i < 12'000; i += 2) {
    b.put(key_of(i) + "x", "batch");
    expected[key_of(i) + "x"] = "batch";
  }
  ASSERT_EQ(s.write(b), Status::ok);
  for (auto& [key, value] : expected) {
    value = "again";
    ASSERT_EQ(s.put(key, value), Status::ok);
  }
  EXPECT_EQ(all_of(s), expected);
  expect_valid(s);
}

TEST_F(OneFenceTest, walks_stay_in_order_when_updates_change_slots) {
  Store s = opened();
  Model expected;
  for (int i = 0; i < 200; ++i) expected[key_of(i * 37 % 200)] = "old";
  for (const auto& [k, v] : expected) ASSERT_EQ(s.put(k, v), Status::ok);
  for (int round = 0; round < 300; ++round) {
    EXPECT_EQ(all_of(s), expected);  // leaves the order in the leaves
    const std::string a = key_of(round * 11 % 200);
    const std::string b = key_of(round * 17 % 200);
    ASSERT_EQ(s.put(a, std::to_string(round)), Status::ok);
    expected[a] = std::to_string(round);
    if (round % 3 == 0) {
      static_cast<void>(s.erase(b));
      expected.erase(b);
    }
  }
}

TEST_F(OneFenceTest, values_of_all_lengths_around_the_long_ones) {
  Model expected;
  {
    Store s = opened();
    for (const std::size_t n : {0u, 1u, 16'382u, 16'383u, 16'384u, 70'000u, 3'000'000u}) {
      const std::string key = "k" + std::to_string(n);
      expected[key] = std::string(n, static_cast<char>('a' + n % 26));
      ASSERT_EQ(s.put(key, expected[key]), Status::ok);
      ASSERT_EQ(s.put(key, expected[key]), Status::ok);
    }
    expected[""] = "empty key";
    expected[std::string(kKeyBytesMax, 'k')] = "long key";
    ASSERT_EQ(s.put("", "empty key"), Status::ok);
    ASSERT_EQ(s.put(std::string(kKeyBytesMax, 'k'), "long key"), Status::ok);
    expect_valid(s);
  }
  Store s = opened();
  EXPECT_EQ(all_of(s), expected);
}

// --- the format ---------------------------------------------------------------------------------

TEST_F(OneFenceTest, a_salt_always_changes_the_tag) {
  for (int i = 0; i < 20'000; ++i) {
    const std::string key = key_of(i);
    const std::string value(static_cast<std::size_t>(i % 50), 'v');
    const store::TaggedHead first = store::tagged_head(key, value, {0});
    const store::TaggedHead again = store::tagged_head(key, value, first);
    ASSERT_NE(first.tag(), again.tag());
    ASSERT_NE(first.tag(), 0);  // what zeros in a fresh block have
  }
}

TEST_F(OneFenceTest, zeros_are_no_record) {
  alignas(8) const std::byte block[64] = {};
  EXPECT_NE(store::make_tagged(store::record_crc({}, {}), store::TaggedHead{0}.fields()).raw,
            store::head_at(block));
}

TEST_F(OneFenceTest, a_scan_drops_one_torn_record_a_leaf_and_takes_two_for_damage) {
  abandoned([](Store& s) {
    for (int i = 0; i < 20; ++i) {
      if (s.put(key_of(i), "some value " + std::to_string(i)) != Status::ok) std::_Exit(1);
    }
  });
  std::ifstream in(path_.str(), std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(in)), {});
  const auto opens_with = [&](int damaged) {
    std::string image = sound;
    for (int i = 0; i < damaged; ++i) {
      const std::size_t at = image.find("some value " + std::to_string(10 + i));
      EXPECT_NE(at, std::string::npos);
      image[at] ^= 1;
    }
    std::ofstream(path_.str(), std::ios::binary | std::ios::trunc) << image;
    return Store::open(path_.str(), options_, &report_);
  };
  {
    Result<Store> s = opens_with(1);
    ASSERT_TRUE(s) << report_.text();
    EXPECT_EQ(s->stats().records, 19u);
    EXPECT_EQ(s->contains(key_of(10)), Status::not_found);
    expect_valid(*s);
  }
  const Result<Store> s = opens_with(2);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error(), Status::corrupt);
  EXPECT_NE(report_.text().find("slot of a leaf"), std::string::npos) << report_.text();
}

TEST_F(OneFenceTest, reads_find_a_record_that_changed_after_a_clean_close) {
  {
    Store s = opened();
    for (int i = 0; i < 20; ++i) ASSERT_EQ(s.put(key_of(i), "some value"), Status::ok);
    ASSERT_EQ(s.put("changed", "the one"), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  std::ifstream in(path_.str(), std::ios::binary);
  std::string image((std::istreambuf_iterator<char>(in)), {});
  const std::size_t at = image.find("the one");
  ASSERT_NE(at, std::string::npos);
  image[at] ^= 1;
  std::ofstream(path_.str(), std::ios::binary | std::ios::trunc) << image;
  {
    Store s = opened();
    EXPECT_EQ(s.get("changed").error(), Status::corrupt);
    EXPECT_EQ(*s.get(key_of(3)), "some value");
  }
  test::TempPath fresh("rescued");
  RescueResult result;
  EXPECT_EQ(rescue(path_.str(), fresh.str(), {}, result, &report_), Status::corrupt);
  EXPECT_EQ(result.commit, kOneFence);
  EXPECT_EQ(result.records, 20u);
  EXPECT_EQ(result.damaged, 1u);
  Result<Store> s = Store::open(fresh.str(), {}, &report_);
  ASSERT_TRUE(s) << report_.text();
  EXPECT_EQ(s->stats().commit, kOneFence);
  expect_valid(*s);
}

}  // namespace
}  // namespace tenuto
