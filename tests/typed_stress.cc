// Walks by type while other threads allocate, free, move and roll back. A block that stays is shown
// once in every walk, and a block that was never allocated is never shown. TENUTO_STRESS_SCALE
// makes it longer.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "support/pool_parts.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

constexpr std::size_t kThreads = 3;
constexpr std::size_t kSlots = 300;  // of each thread
constexpr std::size_t kStaying = 400;
constexpr std::size_t kCommits = 2000;   // objects of type kCommitted that a thread makes at most
constexpr std::uint64_t kMixed = 3;      // types 1 to 3: of objects that stay or come and go
constexpr std::uint64_t kCommitted = 8;  // of transactions that commit: never freed
constexpr std::uint64_t kNever = 9;      // of blocks that are rolled back or cancelled

struct Root {
  Ptr<std::uint64_t> staying[kStaying];
  Ptr<std::uint64_t> slot[kThreads][kSlots];
  VPtr<std::uint64_t> versioned[kThreads][kSlots];
  Ptr<std::uint64_t> committed[kThreads][kCommits];
};

double scale() {
  const char* const text = std::getenv("TENUTO_STRESS_SCALE");
  return text == nullptr ? 1 : std::atof(text);
}

std::uint64_t any_size(std::mt19937_64& rng) {
  const auto kind = rng() % 40;
  if (kind == 0) return rng() % 200'000;
  return 8 + rng() % (kind < 6 ? 15'000 : 300);
}

class World {
 public:
  World() {
    PoolOptions o = test::PoolParts::small_options();
    o.size = 96u << 20;
    o.size_max = 256u << 20;
    pool = Pool::create(path_.str(), o, &report);
    EXPECT_TRUE(pool) << report.text();
    root = *pool->root<Root>("typed");
    std::mt19937_64 rng(7);
    for (std::size_t i = 0; i < kStaying; ++i) {
      const std::uint64_t type = 1 + i % kMixed;
      PtrWord& word = root->staying[i].word();
      EXPECT_EQ(pool->malloc_to(any_size(rng), word, {.type = type}), Status::ok);
      stays[type].insert(root->staying[i].get());
    }
  }

  // One random operation of those that change what a walk shows.
  void change(std::size_t thread, std::mt19937_64& rng) {
    const std::size_t i = rng() % kSlots;
    PtrWord& word = root->slot[thread][i].word();
    VPtrWord& versioned = root->versioned[thread][i].word();
    const AllocOptions mixed{.type = rng() % (kMixed + 1)};
    const auto some = [&](Status s) { ASSERT_EQ(s, Status::ok); };
    switch (rng() % 10) {
      case 0:
      case 1:
      case 2:
        if (root->slot[thread][i].get() != nullptr) return some(pool->free_from(word));
        return some(pool->malloc_to(any_size(rng), word, mixed));
      case 3:
      case 4:
        if (root->versioned[thread][i].get() != nullptr) return some(pool->free_from(versioned));
        return some(pool->malloc_to(any_size(rng), versioned, mixed));
      case 5: {
        const auto block = pool->reserve(any_size(rng), {.type = kNever});
        ASSERT_TRUE(block);
        return some(pool->cancel(*block));
      }
      case 6:
        return some(pool->realloc_to(any_size(rng), word, mixed));
      case 7:
        return roll_back(thread, i, any_size(rng));
      case 8:
        return commit(thread, any_size(rng) % 1000);
      default:
        if (rng() % 100 == 0) some(pool->trim());
    }
  }

  // Frees a block in a transaction that rolls back.
  void roll_back(std::size_t thread, std::size_t i, std::uint64_t bytes) {
    auto& staying = root->staying[i % kStaying / kThreads * kThreads + thread];
    const Status s = pool->run([&](Transaction& tx) {
      if (!tx.alloc(bytes, {.type = kNever})) return Status::full;
      TENUTO_TRY(tx.free(staying.get()));
      TENUTO_TRY(tx.add(staying));
      return Status::aborted;
    });
    EXPECT_EQ(s, Status::aborted);
  }

  void commit(std::size_t thread, std::uint64_t bytes) {
    if (made_[thread] == kCommits) return;
    auto& dest = root->committed[thread][made_[thread]];
    begun += 1;
    const Status s = pool->run([&](Transaction& tx) {
      const auto block = tx.alloc(bytes, {.type = kCommitted});
      if (!block) return block.error();
      TENUTO_TRY(tx.add(dest));
      dest = static_cast<std::uint64_t*>(*block);
      return Status::ok;
    });
    EXPECT_EQ(s, Status::ok);
    done += 1;
    made_[thread] += 1;
  }

  std::size_t walk(std::uint64_t type, std::set<void*>* shown = nullptr) {
    std::size_t n = 0;
    const std::set<void*>& all = stays[type];
    auto next = all.begin();
    void* before = nullptr;
    for (void* p = *pool->first(type); p != nullptr; p = *pool->next(p, type)) {
      EXPECT_LT(before, p);
      before = p;
      if (next != all.end() && *next == p) ++next;
      EXPECT_TRUE(next == all.end() || p < *next) << "one that stays was not shown";
      if (shown != nullptr) shown->insert(p);
      n += 1;
    }
    EXPECT_TRUE(next == all.end()) << "one that stays was not shown";
    return n;
  }

  // With no thread at work, a walk shows exactly the blocks that exist.
  void check_all() {
    std::map<std::uint64_t, std::set<void*>> want;
    const auto add = [&](void* p) {
      if (p != nullptr && pool->type_of(p) != 0) want[pool->type_of(p)].insert(p);
    };
    for (auto& p : root->staying) add(p.get());
    for (std::size_t t = 0; t < kThreads; ++t) {
      for (auto& p : root->slot[t]) add(p.get());
      for (auto& p : root->versioned[t]) add(p.get());
      for (auto& p : root->committed[t]) add(p.get());
    }
    for (const std::uint64_t type : {1u, 2u, 3u, 8u, 9u}) {
      std::set<void*> shown;
      walk(type, &shown);
      EXPECT_EQ(shown, want[type]) << type;
    }
    EXPECT_EQ(want[kCommitted].size(), done.load());
    EXPECT_EQ(pool->validate(&report), Status::ok) << report.text();
  }

  void reopen() {
    ASSERT_EQ(pool->close(), Status::ok);
    pool = Pool::open(path_.str(), test::PoolParts::small_options(), &report);
    ASSERT_TRUE(pool) << report.text();
    root = *pool->root<Root>("typed");
    stays.clear();
    for (std::size_t i = 0; i < kStaying; ++i) {
      stays[1 + i % kMixed].insert(root->staying[i].get());
    }
  }

  Report report;
  Result<Pool> pool = Status::closed;
  Root* root = nullptr;
  std::map<std::uint64_t, std::set<void*>> stays;
  std::atomic<std::size_t> begun = 0, done = 0;  // numbers of transactions that commit

 private:
  TempPath path_{"typed-stress"};
  std::size_t made_[kThreads] = {};
};

TEST(TypedStress, walks_show_what_stays_and_nothing_that_never_was) {
  World w;
  const auto steps = static_cast<std::size_t>(20'000 * scale());
  std::atomic<std::size_t> running = kThreads;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 rng(100 + t);
      for (std::size_t i = 0; i < steps; ++i) w.change(t, rng);
      running -= 1;
    });
  }
  std::size_t walks = 0, seen = 0;
  do {
    for (std::uint64_t type = 1; type <= kMixed; ++type) w.walk(type);
    EXPECT_EQ(w.walk(kNever), 0u);
    const std::size_t least = w.done;
    const std::size_t n = w.walk(kCommitted);
    EXPECT_GE(n, std::max(least, seen));
    EXPECT_LE(n, w.begun.load());
    seen = n;
    walks += 1;
  } while (running > 0);
  for (auto& t : threads) t.join();
  w.check_all();
  w.reopen();
  w.check_all();
  std::printf("%zu rounds of walks, %zu objects of transactions\n", walks, w.done.load());
}

}  // namespace
}  // namespace tenuto
