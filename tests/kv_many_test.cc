// Many keys in one call: bulk loads into empty stores, and lookups of many keys at once.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "pm/media.h"
#include "pm/plant.h"
#include "support/kv_fixture.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;
using Model = std::map<std::string, std::string>;

class KvManyTest : public test::KvFixture {
 protected:
  static Model records(int count, const std::string& prefix = "") {
    Model m;
    for (int i = 0; i < count; ++i) m[prefix + key_of(3 * i)] = "value " + std::to_string(i);
    return m;
  }
  static std::vector<BulkRecord> sorted(const Model& m) {
    std::vector<BulkRecord> out;
    for (const auto& [key, value] : m) out.push_back({key, value});
    return out;
  }
  static void expect_same(const Store& s, const Model& model) {
    Iterator it = s.iterator();
    it.seek_first();
    for (const auto& [key, value] : model) {
      ASSERT_TRUE(it.valid()) << key;
      ASSERT_EQ(it.key(), key);
      ASSERT_EQ(it.value(), value);
      it.next();
    }
    EXPECT_FALSE(it.valid());
    std::uint64_t bytes = 0;
    for (const auto& [key, value] : model) bytes += key.size() + value.size();
    EXPECT_EQ(s.stats().records, model.size());
    EXPECT_EQ(s.stats().record_bytes, bytes);
  }
};

TEST_F(KvManyTest, bulk_load_of_any_size_is_a_sound_store) {
  for (const int count : {0, 1, 43, 44, 45, 1000, 20000}) {
    for (const std::string prefix :
         {"", "p", "long separators, longer than what stands in a leaf, need blocks: "}) {
      options_.pool.recovery_threads = count == 1000 ? 1 : 0;
      const test::TempPath path("bulk");
      Result<Store> s = Store::open(path.str(), options_, &report_);
      ASSERT_TRUE(s) << report_.text();
      Model model = records(count, prefix);
      ASSERT_EQ(s->bulk_load(sorted(model)), Status::ok) << count;
      expect_same(*s, model);
      expect_valid(*s);
      // The loaded store works like any other.
      for (int i = 0; i < 500; ++i) {
        const std::string key = prefix + key_of(i);
        if (i % 5 == 0) {
          ASSERT_EQ(s->erase(key), model.erase(key) != 0 ? Status::ok : Status::not_found);
        } else {
          ASSERT_EQ(s->put(key, "later"), Status::ok);
          model[key] = "later";
        }
      }
      ASSERT_EQ(s->put("", "empty"), Status::ok);
      model[""] = "empty";
      expect_same(*s, model);
      expect_valid(*s);
      ASSERT_EQ(s->close(), Status::ok);
      s = Store::open(path.str(), options_, &report_);
      ASSERT_TRUE(s) << report_.text();
      expect_same(*s, model);
    }
  }
}

TEST_F(KvManyTest, what_cannot_be_loaded_leaves_nothing) {
  Store s = opened();
  Model model = records(5000);
  std::vector<BulkRecord> all = sorted(model);
  std::swap(all[4000], all[4001]);
  EXPECT_EQ(s.bulk_load(all), Status::invalid_argument);
  all = sorted(model);
  all[3000].key = all[2999].key;
  EXPECT_EQ(s.bulk_load(all), Status::invalid_argument);
  all = sorted(model);
  all[0].key = "";
  EXPECT_EQ(s.bulk_load(all), Status::invalid_argument);
  const std::string long_key(kKeyBytesMax + 1, 'z');
  all = sorted(model);
  all.back().key = long_key;
  EXPECT_EQ(s.bulk_load(all), Status::too_large);
  expect_same(s, {});
  expect_valid(s);
  EXPECT_EQ(s.bulk_load(sorted(model)), Status::ok);
  expect_same(s, model);
  EXPECT_EQ(s.bulk_load(sorted(model)), Status::exists);
  expect_same(s, model);
  expect_valid(s);
}

TEST_F(KvManyTest, bulk_load_into_a_pool_too_small_says_full_and_leaves_nothing) {
  options_.pool.size = kPoolBytesMin;
  options_.pool.size_max = kPoolBytesMin;
  Store s = opened();
  Model model = records(2000);
  const std::string large(kPoolBytesMin / 1000, 'x');
  std::vector<BulkRecord> all = sorted(model);
  for (BulkRecord& r : all) r.value = large;
  EXPECT_EQ(s.bulk_load(all), Status::full);
  expect_same(s, {});
  expect_valid(s);
  EXPECT_EQ(s.put("a", "b"), Status::ok);
}

// After all keys are erased, one leaf is left below some inner nodes.
TEST_F(KvManyTest, an_emptied_store_can_be_loaded) {
  Store s = opened();
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(s.put(key_of(i), "v"), Status::ok);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(s.erase(key_of(i)), Status::ok);
  const Model model = records(3000);
  ASSERT_EQ(s.bulk_load(sorted(model)), Status::ok);
  expect_same(s, model);
  expect_valid(s);
}

// It splits leaves for its records before it meets the conflict, and the leaves stay.
void fail_a_commit(Store& s, const Model& model) {
  Result<Collection> other = s.collection("other");
  ASSERT_TRUE(other);
  auto tx = s.begin();
  std::string value;
  static_cast<void>(tx.get({*other, "read"}, value));
  for (const auto& [key, v] : model) ASSERT_EQ(tx.put(key, v), Status::ok);
  ASSERT_EQ(other->put("read", ""), Status::ok);
  ASSERT_EQ(tx.commit(), Status::conflict);
}

TEST_F(KvManyTest, a_store_that_a_failed_commit_left_empty_can_be_loaded) {
  const Model model = records(3000);
  for (const bool reopened : {false, true}) {
    const test::TempPath path("bulk-after-conflict");
    Result<Store> s = Store::open(path.str(), options_, &report_);
    ASSERT_TRUE(s) << report_.text();
    fail_a_commit(*s, model);
    ASSERT_GT(s->stats().leaves, 50u);
    if (reopened) {
      ASSERT_EQ(s->close(), Status::ok);
      s = Store::open(path.str(), options_, &report_);
      ASSERT_TRUE(s) << report_.text();
    }
    // What is not empty, or what a snapshot looks at, is refused as ever.
    ASSERT_EQ(s->put("~last", "v"), Status::ok);
    EXPECT_EQ(s->bulk_load(sorted(model)), Status::exists);
    ASSERT_EQ(s->erase("~last"), Status::ok);
    {
      const Result<Snapshot> snapshot = s->snapshot();
      EXPECT_EQ(s->bulk_load(sorted(model)), Status::busy);
    }
    if (!reopened) {
      fail_a_commit(*s, model);
      plant("store_bulk_load_refuses_empty_leaves");
      EXPECT_EQ(s->bulk_load(sorted(model)), Status::exists);
      unplant_all();
    }
    ASSERT_EQ(s->bulk_load(sorted(model)), Status::ok);
    expect_same(*s, model);
    expect_valid(*s);
  }
}

// Erases under a snapshot leave leaves with versions, which the snapshot still reads.
TEST_F(KvManyTest, leaves_that_only_a_snapshot_needs_do_not_refuse_a_load) {
  Store s = opened();
  const Model model = records(2000);
  ASSERT_EQ(s.bulk_load(sorted(model)), Status::ok);
  {
    const Result<Snapshot> snapshot = s.snapshot();
    for (const auto& [key, value] : model) ASSERT_EQ(s.erase(key), Status::ok);
    EXPECT_EQ(s.bulk_load(sorted(model)), Status::busy);
    std::string value;
    EXPECT_EQ(snapshot->get(key_of(0), value), Status::ok);
  }
  ASSERT_EQ(s.bulk_load(sorted(model)), Status::ok);
  expect_same(s, model);
  expect_valid(s);
}

TEST_F(KvManyTest, readers_see_nothing_or_all_of_a_bulk_load) {
  Store s = opened();
  const Model model = records(20000);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done.load()) {
      const Status first = s.contains(model.begin()->first);
      const Status last = s.contains(model.rbegin()->first);
      if (first == Status::ok) {
        EXPECT_EQ(last, Status::ok);
      }
    }
  });
  EXPECT_EQ(s.bulk_load(sorted(model)), Status::ok);
  done = true;
  reader.join();
  expect_same(s, model);
}

// One fence for each part, one for the chain, and those of the heap's slabs, instead of two a
// record.
TEST_F(KvManyTest, bulk_load_costs_a_handful_of_fences) {
  options_.pool.medium = Medium::model;
  options_.pool.recovery_threads = 1;
  Store s = opened();
  const Model model = records(20000);
  const std::vector<BulkRecord> all = sorted(model);
  const pm::ModelCounts before = pm::thread_model_counts();
  ASSERT_EQ(s.bulk_load(all), Status::ok);
  const pm::ModelCounts used = pm::thread_model_counts() - before;
  EXPECT_LT(used.fences, all.size() / 100);
  EXPECT_LT(used.lines, all.size() * 2);
}

TEST_F(KvManyTest, get_into_memory_copies_what_fits_and_tells_the_size) {
  Store s = opened();
  Collection plain = s;
  Collection pairs = *s.collection("pairs", {.duplicates = true});
  Collection lifetimes = *s.collection("lifetimes", {.expires = true});
  for (Collection* c : {&plain, &pairs, &lifetimes}) {
    ASSERT_EQ(c->put("key", "value"), Status::ok);
    for (const std::size_t room : {0u, 1u, 5u, 9u}) {
      std::string memory(10, '-');
      const Result<std::size_t> bytes = c->get("key", std::span<char>(memory.data(), room));
      ASSERT_TRUE(bytes);
      EXPECT_EQ(*bytes, 5u);
      const std::string copied = std::string("value").substr(0, room);
      EXPECT_EQ(memory, copied + std::string(10 - copied.size(), '-'));
    }
    EXPECT_EQ(c->get("other", std::span<char>()).error(), Status::not_found);
    const std::string long_key(kKeyBytesMax + 1, 'z');
    std::string value;
    EXPECT_EQ(c->get(long_key, std::span<char>()).error(), c->get(long_key, value));
  }
  ASSERT_EQ(lifetimes.put("short", "value", {.ttl_ms = 1}), Status::ok);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(lifetimes.get("short", std::span<char>()).error(), Status::not_found);
  ASSERT_EQ(s.close(), Status::ok);
  EXPECT_EQ(plain.get("key", std::span<char>()).error(), Status::closed);
}

TEST_F(KvManyTest, multi_get_agrees_with_get) {
  Store s = opened();
  std::mt19937_64 rng(20261121);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(s.put(key_of(static_cast<int>(rng() % 4000)), std::to_string(i)), Status::ok);
  }
  const std::string long_key(kKeyBytesMax + 1, 'z');
  for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 64u, 65u, 1000u}) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < count; ++i) keys.push_back(key_of(static_cast<int>(rng() % 4000)));
    if (count > 16) keys[3] = long_key;
    if (count > 16) keys[4] = "";
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    std::size_t called = 0;
    ASSERT_EQ(s.multi_get(views,
                          [&](std::size_t i, Status status, std::string_view value) {
                            ASSERT_EQ(i, called++);
                            std::string expected;
                            ASSERT_EQ(status, s.get(keys[i], expected)) << keys[i];
                            if (status == Status::ok) {
                              ASSERT_EQ(value, expected);
                            }
                          }),
              Status::ok);
    EXPECT_EQ(called, count);
  }
}

TEST_F(KvManyTest, multi_get_finds_all_while_leaves_split_and_vanish) {
  Store s = opened();
  for (int i = 0; i < 4000; i += 2) ASSERT_EQ(s.put(key_of(i), "kept"), Status::ok);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int round = 0; round < 6; ++round) {
      for (int i = 1; i < 4000; i += 2) EXPECT_EQ(s.put(key_of(i), "passing"), Status::ok);
      for (int i = 1; i < 4000; i += 2) EXPECT_EQ(s.erase(key_of(i)), Status::ok);
    }
    done = true;
  });
  std::mt19937_64 rng(7);
  while (!done.load()) {
    std::vector<std::string> keys;
    for (int i = 0; i < 32; ++i) keys.push_back(key_of(static_cast<int>(rng() % 2000) * 2));
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const Status all =
        s.multi_get(views, [&](std::size_t i, Status status, std::string_view value) {
          EXPECT_EQ(status, Status::ok) << keys[i];
          EXPECT_EQ(value, "kept") << keys[i];
        });
    EXPECT_EQ(all, Status::ok);
  }
  writer.join();
}

}  // namespace
}  // namespace tenuto
