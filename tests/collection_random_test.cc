// Random operations on collections beside a map of maps: records, batches over several collections,
// collections that are made, dropped, renamed and replaced, clean reopens, and processes that end
// without a close. TENUTO_SEED repeats a run.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <string>

#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "support/seed.h"
#include "tenuto/collection.h"

namespace tenuto::test {
namespace {

using World = std::map<std::string, Records>;

class CollectionRandomTest : public KvFixture {
 protected:
  void SetUp() override {
    seed_ = test_seed();
    rng_.seed(seed_);
    options_.pool.size = 32u << 20;
  }

  std::uint64_t below(std::uint64_t n) { return rng_() % n; }
  std::string any_name() { return "c" + std::to_string(below(7)); }
  std::string any_key() { return key_of(static_cast<int>(below(400))); }
  std::string any_value() { return std::string(below(150), static_cast<char>('a' + below(26))); }
  // The name of a collection that exists: mostly a named one.
  std::string there(const World& world) {
    auto at = world.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(below(world.size())));
    return at->first;
  }
  static Collection find(Store& s, const std::string& name) {
    if (name.empty()) return s;
    Result<Collection> c = s.collection(name, CollectionOptions{.create_if_missing = false});
    EXPECT_TRUE(c) << name;
    return *c;
  }

  // One random step, on the model and, unless `s` is null, on the store.
  void step(Store* s, World& world) {
    const std::uint64_t dice = below(100);
    if (dice < 45) {
      const std::string name = there(world), key = any_key(), value = any_value();
      world[name][key] = value;
      if (s != nullptr) {
        ASSERT_EQ(find(*s, name).put(key, value), Status::ok);
      }
    } else if (dice < 65) {
      const std::string name = there(world), key = any_key();
      const Status expected = world[name].erase(key) == 1 ? Status::ok : Status::not_found;
      if (s != nullptr) {
        ASSERT_EQ(find(*s, name).erase(key), expected);
      }
    } else if (dice < 85) {
      WriteBatch b;
      for (std::uint64_t n = below(below(8) == 0 ? 300 : 15); n > 0; --n) {
        const std::string name = there(world), key = any_key(), value = any_value();
        const bool erase = below(3) == 0;
        if (erase) world[name].erase(key);
        if (!erase) world[name][key] = value;
        if (s == nullptr) continue;
        if (erase) {
          b.erase({find(*s, name), key});
        } else {
          b.put({find(*s, name), key}, value);
        }
      }
      if (s != nullptr) {
        ASSERT_EQ(s->write(b), Status::ok);
      }
    } else if (dice < 92) {
      const std::string name = any_name();
      world[name];
      if (s != nullptr) {
        ASSERT_TRUE(s->collection(name));
      }
    } else if (dice < 96) {
      const std::string name = any_name();
      const Status expected = world.erase(name) == 1 ? Status::ok : Status::not_found;
      if (s != nullptr) {
        ASSERT_EQ(s->drop(name), expected);
      }
    } else {
      const std::string from = any_name(), to = any_name();
      const bool replace = below(2) == 0;
      Status expected = Status::ok;
      if (!world.contains(from)) {
        expected = Status::not_found;
      } else if (from != to && world.contains(to) && !replace) {
        expected = Status::exists;
      } else if (from != to) {
        world[to] = world[from];
        world.erase(from);
      }
      if (s != nullptr) {
        ASSERT_EQ(s->rename(from, to, {.replace = replace}), expected);
      }
    }
  }

  static void expect_equal(Store& s, const World& world) {
    const auto names = s.collections();
    ASSERT_TRUE(names);
    ASSERT_EQ(names->size() + 1, world.size());
    for (const auto& [name, records] : world) {
      const Collection c = find(s, name);
      Iterator it = c.iterator();
      auto at = records.begin();
      std::uint64_t bytes = 0;
      for (it.seek_first(); it.valid(); it.next(), ++at) {
        ASSERT_NE(at, records.end()) << name;
        ASSERT_EQ(it.key(), at->first) << name;
        ASSERT_TRUE(it.value() == at->second) << name << ": " << at->first;
        bytes += it.key().size() + it.value().size();
      }
      ASSERT_EQ(at, records.end()) << name;
      ASSERT_EQ(c.stats().records, records.size()) << name;
      ASSERT_EQ(c.stats().record_bytes, bytes) << name;
    }
    expect_valid(s);
  }

  std::uint64_t seed_ = 0;
  std::mt19937_64 rng_;
};

TEST_F(CollectionRandomTest, store_and_map_agree) {
  World world;
  world[""];
  for (int round = 0; round < 6; ++round) {
    {
      Store s = opened();
      if (round % 2 == 0) {
        ASSERT_NO_FATAL_FAILURE(expect_equal(s, world)) << "clean " << round;
      }
      for (int i = 0; i < 1500; ++i) {
        ASSERT_NO_FATAL_FAILURE(step(&s, world)) << "round " << round << " step " << i;
        if (i % 500 == 250) expect_valid(s);
      }
      ASSERT_NO_FATAL_FAILURE(expect_equal(s, world)) << "round " << round;
      ASSERT_EQ(s.close(), Status::ok);
    }
    const std::uint64_t seed = rng_();
    run_and_kill([&] {
      rng_.seed(seed);
      auto* s = new Store(opened());
      for (int i = 0; i < 800 && !HasFailure(); ++i) step(s, world);
      return !HasFailure();
    });
    std::mt19937_64 kept = rng_;
    rng_.seed(seed);
    for (int i = 0; i < 800; ++i) step(nullptr, world);
    rng_ = kept;
    Store s = opened();
    ASSERT_FALSE(s.pool().info().was_clean);
    ASSERT_NO_FATAL_FAILURE(expect_equal(s, world)) << "reopen after the end " << round;
  }
}

}  // namespace
}  // namespace tenuto::test
