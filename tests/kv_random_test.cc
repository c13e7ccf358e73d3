// Random operations on a store beside std::map, for both orders of keys: reads, writes, batches,
// cursors both ways, clean reopens, and reopens after a process that ended without a close.
// TENUTO_SEED repeats a run.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "support/kv_fixture.h"
#include "support/seed.h"
#include "tenuto/kv.h"

namespace tenuto {
namespace {

using Model = std::map<std::string, std::string>;

struct Mix {
  KeyOrder order;
  int keys;  // number of keys to draw from: few keys make dense leaves
  int operations;
};

class KvRandomTest : public test::KvFixture, public testing::WithParamInterface<Mix> {
 protected:
  void SetUp() override {
    seed_ = test::test_seed();
    rng_.seed(seed_);
    options_.order = GetParam().order;
    options_.pool.size = 32u << 20;
  }

  std::uint64_t below(std::uint64_t n) { return rng_() % n; }

  // Kinds of byte keys: short; with a common prefix of 70 bytes, whose separators need their own
  // block; with one of 1000 bytes; of zeros and 0xff; of all lengths up to 12.
  std::string random_key() {
    const std::uint64_t n = below(static_cast<std::uint64_t>(GetParam().keys));
    if (GetParam().order == KeyOrder::u64) {
      const std::uint64_t number = n % 3 == 0 ? n : n % 3 == 1 ? ~n : n * 0x9e3779b97f4a7c15;
      return std::string(std::string_view(u64_key(number)));
    }
    switch (n % 6) {
      case 0:
        return test::key_of(static_cast<int>(n));
      case 1:
      case 2:
        return std::string(70, 'p') + test::key_of(static_cast<int>(n));
      case 3:
        return std::string(1000, 'q') + test::key_of(static_cast<int>(n * 7919 % 100'003));
      case 4: {
        std::string key;
        for (std::uint64_t bits = n; bits != 0; bits /= 3) key += "\x00\xff\x61"[bits % 3];
        return key;
      }
      default:
        return std::string(n % 13, 'r') + std::to_string(n);
    }
  }
  std::string random_value() {
    std::uint64_t bytes = below(120);
    if (below(20) == 0) bytes = below(3000);
    if (below(400) == 0) bytes = below(200'000);
    std::string v(bytes, static_cast<char>('a' + below(26)));
    if (!v.empty()) v[below(bytes)] = '\0';
    return v;
  }

  void step(Store& s, Model& model) {
    const std::uint64_t dice = below(100);
    const std::string key = random_key();
    if (dice < 40) {
      const std::string value = random_value();
      ASSERT_EQ(s.put(key, value), Status::ok);
      model[key] = value;
    } else if (dice < 70) {
      ASSERT_EQ(s.erase(key), model.erase(key) == 1 ? Status::ok : Status::not_found);
    } else if (dice < 85) {
      const Result<std::string> value = s.get(key);
      const auto at = model.find(key);
      ASSERT_EQ(value.has_value(), at != model.end());
      ASSERT_TRUE(!value || *value == at->second);
    } else if (dice < 92) {
      walk(s, model, key);
    } else if (dice < 99) {
      batch(s, model);
    } else {
      erase_range(s, model, key);
    }
  }

  void batch(Store& s, Model& model) {
    WriteBatch b;
    for (std::uint64_t n = below(below(10) == 0 ? 400 : 20); n > 0; --n) {
      const std::string key = random_key();
      if (below(5) < 2) {
        b.erase(key);
        model.erase(key);
      } else {
        model[key] = random_value();
        b.put(key, model[key]);
      }
    }
    ASSERT_EQ(s.write(b), Status::ok);
  }

  // Erases keys in order, which empties leaves.
  void erase_range(Store& s, Model& model, const std::string& from) {
    auto at = model.lower_bound(from);
    for (std::uint64_t n = below(200); n > 0 && at != model.end(); --n) {
      ASSERT_EQ(s.erase(at->first), Status::ok);
      at = model.erase(at);
    }
  }

  // Moves a cursor with random bounds and a position in the model together.
  void walk(Store& s, const Model& model, const std::string& key) {
    IteratorOptions o;
    if (below(4) == 0) o.lower = random_key();
    if (below(4) == 0) o.upper = random_key();
    if (below(4) == 0) o.prefix = key.substr(0, below(key.size() + 1));
    const Model inside = filtered(model, o);
    Iterator it = s.iterator(o);
    auto at = inside.end();
    switch (below(4)) {
      case 0:
        it.seek_first();
        at = inside.begin();
        break;
      case 1:
        it.seek_last();
        at = inside.empty() ? inside.end() : std::prev(inside.end());
        break;
      case 2:
        it.seek(key);
        at = inside.lower_bound(key);
        break;
      default:
        it.seek_for_prev(key);
        at = inside.upper_bound(key);
        at = at == inside.begin() ? inside.end() : std::prev(at);
    }
    const std::uint64_t drift = below(3);  // mostly forwards, mostly backwards, or both alike
    for (int moves = 0; moves < 150; ++moves) {
      ASSERT_EQ(it.valid(), at != inside.end());
      if (at == inside.end()) break;
      ASSERT_EQ(it.key(), at->first);
      ASSERT_TRUE(it.value() == at->second);
      const bool onwards = drift == 2 ? below(2) == 0 : (below(10) == 0) == (drift == 1);
      if (onwards) {
        it.next();
        ++at;
      } else {
        it.prev();
        at = at == inside.begin() ? inside.end() : std::prev(at);
      }
    }
    ASSERT_EQ(it.status(), Status::ok);
  }
  // The part of the model near the cursor that the bounds admit. Other checks compare the whole
  // model.
  static Model filtered(const Model& model, const IteratorOptions& o) {
    Model inside;
    for (auto at = model.lower_bound(o.lower.value_or(std::string())); at != model.end(); ++at) {
      if (o.upper && !(at->first < *o.upper)) break;
      if (at->first.compare(0, o.prefix.size(), o.prefix) == 0) inside.insert(*at);
    }
    return inside;
  }

  static void expect_equal(Store& s, const Model& model) {
    Iterator it = s.iterator();
    auto at = model.begin();
    for (it.seek_first(); it.valid(); it.next(), ++at) {
      ASSERT_NE(at, model.end());
      ASSERT_EQ(it.key(), at->first);
      ASSERT_TRUE(it.value() == at->second) << at->first;
    }
    ASSERT_EQ(at, model.end());
    for (it.seek_last(); it.valid(); it.prev()) ASSERT_EQ(it.key(), (--at)->first);
    ASSERT_EQ(at, model.begin());
    std::uint64_t bytes = 0;
    for (const auto& [key, value] : model) bytes += key.size() + value.size();
    ASSERT_EQ(s.stats().records, model.size());
    ASSERT_EQ(s.stats().record_bytes, bytes);
    expect_valid(s);
  }

  // A child does the steps and ends without a close. Its parent does them on the model only.
  void child_steps(Model& model, int steps) {
    const std::uint64_t seed = rng_();
    const ::pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      rng_.seed(seed);
      std::optional<Store> s(opened());
      for (int i = 0; i < steps && !HasFailure(); ++i) write_step(&*s, model);
      std::_Exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    std::mt19937_64 kept = rng_;
    rng_.seed(seed);
    for (int i = 0; i < steps; ++i) write_step(nullptr, model);
    rng_ = kept;
  }
  void write_step(Store* s, Model& model) {
    const std::string key = random_key();
    if (below(3) == 0) {
      const Status expected = model.erase(key) == 1 ? Status::ok : Status::not_found;
      ASSERT_EQ(s != nullptr ? s->erase(key) : expected, expected);
    } else {
      model[key] = random_value();
      ASSERT_EQ(s != nullptr ? s->put(key, model[key]) : Status::ok, Status::ok);
    }
  }

  std::uint64_t seed_ = 0;
  std::mt19937_64 rng_;
};

TEST_P(KvRandomTest, store_and_map_agree) {
  Model model;
  for (int round = 0; round < 6; ++round) {
    {
      Store s = opened();
      ASSERT_NO_FATAL_FAILURE(expect_equal(s, model)) << "clean reopen " << round;
      for (int i = 0; i < GetParam().operations; ++i) {
        ASSERT_NO_FATAL_FAILURE(step(s, model)) << "round " << round << " step " << i;
        if (i % (GetParam().operations / 4) == 0) expect_valid(s);
      }
      ASSERT_NO_FATAL_FAILURE(expect_equal(s, model)) << "round " << round;
      ASSERT_EQ(s.close(), Status::ok);
    }
    ASSERT_NO_FATAL_FAILURE(child_steps(model, 1500));
    Store s = opened();
    ASSERT_FALSE(s.pool().info().was_clean);
    ASSERT_NO_FATAL_FAILURE(expect_equal(s, model)) << "reopen after _Exit " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(Mixes, KvRandomTest,
                         testing::Values(Mix{KeyOrder::bytes, 300, 1500},
                                         Mix{KeyOrder::bytes, 6000, 3000},
                                         Mix{KeyOrder::u64, 300, 1500},
                                         Mix{KeyOrder::u64, 6000, 3000}),
                         [](const testing::TestParamInfo<Mix>& i) {
                           return std::string(i.param.order == KeyOrder::u64 ? "u64_" : "bytes_") +
                                  std::to_string(i.param.keys);
                         });

}  // namespace
}  // namespace tenuto
