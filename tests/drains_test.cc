// A locked instruction waits for the flushes before it, as a fence does. So the fences that the
// cost tests count are what an operation waits for only if locked instructions drain no flush of
// their own. This counts all drains by single steps, on medium `line`. There are no more than
// fences, with one exception: the flush of a new record runs while its leaf is looked for, and what
// of it is left is waited for by the lock of the leaf.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "bench/support/step_counter.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/persist.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

bool flushes_with_clwb() { return pm::flush_path.load() == pm::FlushPath::clwb; }

struct Counted {
  std::uint64_t fences = 0;
  std::uint64_t drains = 0;
};
std::ostream& operator<<(std::ostream& out, const Counted& c) {
  return out << c.fences << " fences, " << c.drains << " drains";
}

// The median of each figure: now and then an operation takes or gives back a slab.
Counted usual(const std::function<Status(int)>& operation) {
  constexpr int kRuns = 31;
  bench::StepCounter steps;
  std::vector<std::uint64_t> fences, drains;
  for (int i = 0; i < kRuns; ++i) {
    Status s = Status::ok;
    const bench::StepCounts c = steps.count([&] { s = operation(i); });
    EXPECT_EQ(s, Status::ok);
    fences.push_back(c.fences);
    drains.push_back(c.drains);
  }
  for (auto* all : {&fences, &drains}) std::sort(all->begin(), all->end());
  return {fences[kRuns / 2], drains[kRuns / 2]};
}

struct Words {
  PtrWord plain[64 * 8];
  VPtrWord versioned[64 * 8];
  std::uint64_t line[64][8];
};

class Drains : public testing::Test {
 protected:
  void SetUp() override {
    PoolOptions o;
    o.medium = Medium::line;
    Result<Pool> made = Pool::create(path_.str(), o);
    ASSERT_TRUE(made);
    pool_.emplace(std::move(*made));
    if (!flushes_with_clwb()) GTEST_SKIP() << "this processor has no CLWB";
    const Result<void*> root = pool_->root("words", sizeof(Words));
    ASSERT_TRUE(root);
    words_ = static_cast<Words*>(*root);
    for (int turn = 0; turn < 2; ++turn) {
      for (auto& w : words_->plain) ASSERT_EQ(pool_->malloc_to(64, w), Status::ok);
      for (auto& w : words_->plain) ASSERT_EQ(pool_->free_from(w), Status::ok);
      for (auto& w : words_->versioned) ASSERT_EQ(pool_->malloc_to(64, w), Status::ok);
      for (auto& w : words_->versioned) ASSERT_EQ(pool_->free_from(w), Status::ok);
    }
  }
  PtrWord& plain(int i) { return words_->plain[8 * i]; }
  VPtrWord& versioned(int i) { return words_->versioned[8 * i]; }
  void expect(const char* what, std::uint64_t fences, const std::function<Status(int)>& operation) {
    const Counted c = usual(operation);
    EXPECT_EQ(c.fences, fences) << what << ": " << c;
    EXPECT_EQ(c.drains, fences) << what << ": " << c;
  }

  TempPath path_{"locked"};
  std::optional<Pool> pool_;
  Words* words_ = nullptr;
};

TEST_F(Drains, one_behind_a_flush_is_counted) {
  std::atomic<std::uint64_t> word = 0;
  const Counted c = usual([&](int) {
    flush_bytes(&word, sizeof word);
    word.fetch_add(1);
    word.fetch_add(1);
    fence("nothing", "the test");
    word.fetch_add(1);
    return Status::ok;
  });
  EXPECT_EQ(c.drains, 1u);  // the fence has nothing left to wait for
  EXPECT_EQ(c.fences, 1u);
}

TEST_F(Drains, one_between_two_flushes_is_one_drain_more_than_fences) {
  std::atomic<std::uint64_t> word = 0;
  const Counted c = usual([&](int) {
    flush_bytes(&word, sizeof word);
    word.fetch_add(1);
    flush_bytes(&word, sizeof word);
    fence("the word", "the test");
    return Status::ok;
  });
  EXPECT_EQ(c.drains, 2u);
  EXPECT_EQ(c.fences, 1u);
}

TEST_F(Drains, of_the_heap) {
  expect("malloc_to", 2, [&](int i) { return pool_->malloc_to(64, plain(i)); });
  expect("free_from", 1, [&](int i) { return pool_->free_from(plain(i)); });
  expect("versioned malloc_to", 1, [&](int i) { return pool_->malloc_to(64, versioned(i)); });
  expect("versioned free_from", 1, [&](int i) { return pool_->free_from(versioned(i)); });
}

TEST_F(Drains, of_transactions) {
  expect("a word", 3, [&](int i) {
    return pool_->run([&](Transaction& tx) {
      std::uint64_t& word = words_->line[i][0];
      TENUTO_TRY(tx.add(word));
      word += 1;
      return Status::ok;
    });
  });
}

TEST(DrainsOfStore, put_and_erase) {
  const TempPath path("lockedkv");
  StoreOptions o;
  o.pool.medium = Medium::line;
  Result<Store> store = Store::open(path.str(), o);
  ASSERT_TRUE(store);
  if (!flushes_with_clwb()) GTEST_SKIP() << "this processor has no CLWB";
  const std::string value(100, 'v');
  const auto key = [](int i) { return "key-" + std::to_string(1000 + i); };
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < 500; ++i) ASSERT_EQ(store->put(key(i), value), Status::ok);
    for (int i = 0; i < 500; i += 2) ASSERT_EQ(store->erase(key(i)), Status::ok);
  }
  std::vector<std::string> keys;
  for (int i = 0; i < 500; ++i) keys.push_back(key(i));
  const auto expect = [&](const char* what, std::uint64_t fences, std::uint64_t drains,
                          const std::function<Status(int)>& operation) {
    const Counted c = usual(operation);
    EXPECT_EQ(c.fences, fences) << what << ": " << c;
    EXPECT_EQ(c.drains, drains) << what << ": " << c;
  };
  expect("update", 2, 2, [&](int i) { return store->put(keys[2 * i + 1], value); });
  expect("insert", 2, 3, [&](int i) { return store->put(keys[2 * i], value); });
  expect("erase", 1, 1, [&](int i) { return store->erase(keys[2 * i + 1]); });
}

}  // namespace
}  // namespace tenuto
