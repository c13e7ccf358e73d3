// Pools with canaries: what a program writes behind an object is found when the object is freed or
// resized, by validate, or when a free block that it hit is handed out. Morphing, extents that are
// cut anew, kills and closes never break a canary.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "pm/media.h"
#include "pm/plant.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

struct Root {
  Ptr<char> slot[2000];
  VPtr<char> versioned[16];
};

PoolOptions options(Consistency c = Consistency::as_is) {
  PoolOptions o = test::PoolParts::small_options();
  o.consistency = c;
  o.canaries = true;
  return o;
}

class Canary : public testing::TestWithParam<Consistency> {
 protected:
  void SetUp() override {
    pool_ = Pool::create(path_.str(), options(GetParam()), &report_);
    ASSERT_TRUE(pool_) << report_.text();
    root_ = *pool_->root<Root>("root");
  }
  void TearDown() override { unplant_all(); }
  // Closes the pool, which may be damaged, and opens it.
  void reopen(Status closed) {
    EXPECT_EQ(pool_->close(), closed);
    pool_ = Status::closed;
    pool_ = Pool::open(path_.str(), options(), &report_);
    ASSERT_TRUE(pool_) << report_.text();
    root_ = *pool_->root<Root>("root");
  }
  void expect_sound() {
    EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text();
    EXPECT_EQ(pool_->health(&report_), Status::ok) << report_.text();
  }
  void expect_told(const std::vector<std::string>& parts) {
    report_ = {};
    EXPECT_EQ(pool_->health(&report_), Status::corrupt);
    for (const std::string& part : parts) {
      EXPECT_NE(report_.text().find(part), std::string::npos) << part << ": " << report_.text();
    }
  }
  char* get(int i) { return root_->slot[i].get(); }

  TempPath path_{"canary"};
  Report report_;
  Result<Pool> pool_ = Status::closed;
  Root* root_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(All, Canary,
                         testing::Values(Consistency::log, Consistency::gc, Consistency::internal),
                         [](const auto& c) { return consistency_name(c.param); });

constexpr std::uint64_t kSizes[] = {1, 8, 9, 64, 100, 1000, 4096, 16'000, 16'250, 20'000, 3u << 20};

TEST_P(Canary, one_byte_behind_an_object_of_any_kind_is_found_at_its_free) {
  for (const std::uint64_t bytes : kSizes) {
    for (const std::uint64_t type : {0u, 7u}) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes, type " + std::to_string(type));
      ASSERT_EQ(pool_->malloc_to(bytes, root_->slot[0], {.type = type}), Status::ok);
      const std::uint64_t usable = pool_->usable_size(get(0));
      ASSERT_GE(usable, bytes);
      std::memset(get(0), 1, usable);
      expect_sound();
      get(0)[usable] ^= 1;
      EXPECT_EQ(pool_->validate(&report_), Status::corrupt);
      const std::uint64_t at = pool_->offset_of(get(0)).value;
      EXPECT_NE(report_.text().find("offset " + std::to_string(at)), std::string::npos);
      EXPECT_EQ(pool_->free_from(root_->slot[0], &report_), Status::corrupt);
      EXPECT_NE(report_.text().find("offset " + std::to_string(at)), std::string::npos);
      const std::string byte = std::to_string(usable);
      std::vector<std::string> parts = {
          path_.str(), "offset " + std::to_string(at), "block of " + byte + " bytes",
          "bytes " + byte + " to " + byte + " of the block changed", "mend the program"};
      if (type != 0) parts.emplace_back("type 7");
      expect_told(parts);
      EXPECT_NE(get(0), nullptr) << "nothing is done";
      reopen(Status::corrupt);
      expect_sound();
      EXPECT_EQ(pool_->free_from(root_->slot[0]), Status::ok) << "it was reported once";
    }
  }
}

TEST_P(Canary, every_way_to_free_an_object_looks) {
  const std::function<Status(Pool&, Root&)> ways[] = {
      [](Pool& p, Root& r) { return p.free_from(r.slot[0]); },
      [](Pool& p, Root& r) { return p.free_from(std::span<Ptr<char>>(r.slot, 2)); },
      [](Pool& p, Root& r) {
        return p.run([&](Transaction& tx) { return tx.free(r.slot[0].get()); });
      },
      [](Pool& p, Root& r) { return p.realloc_to(5000, r.slot[0].word()); },
      [](Pool& p, Root& r) { return p.free_from(r.versioned[0]); },
  };
  for (const auto& way : ways) {
    const bool versioned = &way == &ways[4];
    ASSERT_EQ(pool_->malloc_to(100, root_->slot[1]), Status::ok);
    if (versioned) {
      ASSERT_EQ(pool_->malloc_to(100, root_->versioned[0]), Status::ok);
    } else {
      ASSERT_EQ(pool_->malloc_to(100, root_->slot[0]), Status::ok);
    }
    char* const block = versioned ? root_->versioned[0].get() : get(0);
    std::memset(block + pool_->usable_size(block), 0, 8);
    EXPECT_EQ(way(*pool_, *root_), Status::corrupt) << &way - ways;
    reopen(Status::corrupt);
    EXPECT_EQ(way(*pool_, *root_), Status::ok) << &way - ways;
    if (get(0) != nullptr && &way != &ways[2]) {
      EXPECT_EQ(pool_->free_from(root_->slot[0]), Status::ok);
    }
    root_->slot[0] = nullptr;
    if (get(1) != nullptr) {
      EXPECT_EQ(pool_->free_from(root_->slot[1]), Status::ok);
    }
    expect_sound();
  }
  const Result<Reserved> block = pool_->reserve(100);
  ASSERT_TRUE(block);
  static_cast<char*>(block->data)[block->bytes] ^= 1;
  EXPECT_EQ(pool_->cancel(*block, &report_), Status::corrupt);
}

TEST_P(Canary, a_long_overflow_says_how_far_it_went) {
  std::map<char*, int> by_address;
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(pool_->malloc_to(100, root_->slot[i]), Status::ok);
    by_address[get(i)] = i;
  }
  // Of four neighbours the first is overrun.
  for (auto it = by_address.begin(); std::next(it, 4) != by_address.end(); ++it) {
    char* const block = it->first;
    if (std::next(it, 3)->first - block != 3 * 112) continue;
    std::memset(block, 0xee, 3 * 112);
    EXPECT_EQ(pool_->free_from(root_->slot[it->second]), Status::corrupt);
    expect_told({"bytes 104 to 111 of the block changed", "the canaries of the next 2 blocks"});
    return;
  }
  FAIL() << "no neighbours";
}

TEST_P(Canary, a_free_block_that_was_written_to_is_found_when_it_is_taken) {
  for (int i = 0; i < 300; ++i) ASSERT_EQ(pool_->malloc_to(1000, root_->slot[i]), Status::ok);
  char* const block = get(150);
  ASSERT_EQ(pool_->free_from(root_->slot[150]), Status::ok);
  ASSERT_EQ(pool_->trim(), Status::ok);  // the block leaves the cache
  block[1016] ^= 1;
  EXPECT_EQ(pool_->validate(&report_), Status::corrupt);
  Status s = Status::ok;
  for (int i = 300; i < 2000 && s == Status::ok; ++i) s = pool_->malloc_to(1000, root_->slot[i]);
  EXPECT_EQ(s, Status::corrupt);
  expect_told({"offset " + std::to_string(pool_->offset_of(block).value), "after it was freed"});
  reopen(Status::corrupt);
  expect_sound();
}

TEST_P(Canary, usable_size_leaves_the_canary_out_and_lines_stay_aligned) {
  for (const std::uint64_t bytes : {64u, 128u, 1024u, 4096u, 16'192u}) {
    ASSERT_EQ(pool_->malloc_to(bytes, root_->slot[0]), Status::ok);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(get(0)) % kLineBytes, 0u) << bytes;
    EXPECT_GE(pool_->usable_size(get(0)), bytes);
    const Result<Reserved> r = pool_->reserve(bytes);
    ASSERT_TRUE(r);
    EXPECT_EQ(r->bytes, pool_->usable_size(get(0)));
    EXPECT_EQ(pool_->cancel(*r), Status::ok);
    // The same size again is the same block.
    const char* const before = get(0);
    EXPECT_EQ(pool_->realloc_to(pool_->usable_size(get(0)) - 1, root_->slot[0].word()), Status::ok);
    EXPECT_EQ(get(0) == before, true) << bytes;
    EXPECT_EQ(pool_->free_from(root_->slot[0]), Status::ok);
  }
  ASSERT_EQ(pool_->malloc_to(100, root_->slot[0]), Status::ok);
  EXPECT_EQ(pool_->usable_size(get(0)), 104u);
  ASSERT_EQ(pool_->malloc_to(1 << 20, root_->slot[1], {.align = 1 << 20}), Status::ok);
  EXPECT_EQ(pool_->offset_of(get(1)).value % (1 << 20), 0u);
  EXPECT_EQ(pool_->usable_size(get(1)) % 4096, 4088u);
  EXPECT_EQ(pool_->malloc_to(~0ull, root_->slot[2]), Status::too_large);
  EXPECT_EQ(pool_->realloc_to(~0ull - 4, root_->slot[1].word()), Status::too_large);
  expect_sound();
}

// All classes, sizes that follow each other in slabs and extents, trims, transactions, closes and
// kills. The objects are filled to their last usable byte.
std::string churn(const std::string& path, Consistency c, std::uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  Report report;
  std::map<int, std::uint64_t> live;
  const auto open = [&]() -> Result<Pool> { return Pool::open(path, options(), &report); };
  for (int round = 0; round < rounds; ++round) {
    Result<Pool> opened = round == 0 ? Pool::create(path, options(c), &report) : open();
    if (!opened) return "open: " + report.text();
    Pool pool = std::move(*opened);
    const Result<Root*> root = pool.root<Root>("root", &report);
    if (!root) return std::string("root: ") + status_name(root.error());
    Root& r = **root;
    const std::uint64_t most = std::uint64_t{32} << random() % 12;
    for (int op = 0; op < 3000; ++op) {
      const int i = static_cast<int>(random() % 2000);
      const std::uint64_t bytes = random() % most + 1;
      Status s = Status::ok;
      if (r.slot[i].get() != nullptr) {
        s = random() % 4 == 0 ? pool.run([&](Transaction& tx) {
          TENUTO_TRY(tx.free(r.slot[i].get()));
          TENUTO_TRY(tx.add(r.slot[i]));
          r.slot[i] = nullptr;
          return Status::ok;
        })
                              : pool.free_from(r.slot[i], &report);
      } else if (random() % 2 == 0) {
        s = pool.malloc_to(bytes, r.slot[i], {.type = random() % 3 == 0 ? 5u : 0u});
        if (s == Status::ok) {
          std::memset(r.slot[i].get(), 0xab, pool.usable_size(r.slot[i].get()));
        }
        if (s == Status::full) s = Status::ok;
      }
      if (s != Status::ok) return std::string(status_name(s)) + ": " + report.text();
    }
    if (random() % 2 == 0) static_cast<void>(pool.trim());
    if (pool.validate(&report) != Status::ok) return "validate: " + report.text();
    if (pool.close() != Status::ok) return "close";
  }
  return {};
}

TEST_P(Canary, no_canary_breaks_by_itself) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    TempPath path("canary-churn");
    EXPECT_EQ(churn(path.str(), GetParam(), seed, 12), "") << "seed " << seed;
  }
}

TEST_P(Canary, a_killed_process_leaves_whole_canaries) {
  EXPECT_EQ(pool_->close(), Status::ok);
  for (int round = 0; round < 10; ++round) {
    int pipes[2];
    ASSERT_EQ(::pipe(pipes), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Result<Pool> pool = Pool::open(path_.str(), options());
      if (!pool) ::_exit(1);
      Root& r = **pool->root<Root>("root");
      std::mt19937_64 random(static_cast<std::uint64_t>(round));
      static_cast<void>(::write(pipes[1], "x", 1));
      for (;;) {
        auto& slot = r.slot[random() % 500];
        // What an application with Consistency::internal mends after a kill.
        if (pool->usable_size(slot.get()) == 0) slot = nullptr;
        if (slot.get() != nullptr && pool->free_from(slot) != Status::ok) ::_exit(2);
        if (pool->malloc_to(16 + random() % 900, slot) != Status::ok) ::_exit(3);
        std::memset(slot.get(), 0xab, pool->usable_size(slot.get()));
      }
    }
    char x = 0;
    ASSERT_EQ(::read(pipes[0], &x, 1), 1);
    ::close(pipes[0]);
    ::close(pipes[1]);
    ::usleep(20'000);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    pool_ = Pool::open(path_.str(), options(), &report_);
    ASSERT_TRUE(pool_) << report_.text();
    expect_sound();
    EXPECT_EQ(pool_->close(), Status::ok);
  }
}

TEST_P(Canary, garbage_is_found_as_ever) {
  for (int i = 0; i < 500; ++i)
    ASSERT_EQ(pool_->malloc_to(100, root_->slot[i], {.zero = true}), Status::ok);
  for (int i = 0; i < 500; i += 2) root_->slot[i] = nullptr;  // lost
  Result<Garbage> g = pool_->find_garbage({.free = true}, &report_);
  ASSERT_TRUE(g) << report_.text();
  EXPECT_EQ(g->freed_blocks, 250u);
  expect_sound();
}

TEST(CanaryOption, belongs_to_the_pool) {
  TempPath path("canary-option");
  Report report;
  PoolOptions without = test::PoolParts::small_options();
  {
    Result<Pool> pool = Pool::create(path.str(), without, &report);
    ASSERT_TRUE(pool);
    EXPECT_FALSE(pool->info().canaries);
  }
  EXPECT_EQ(Pool::open(path.str(), options(), &report).error(), Status::invalid_argument);
  EXPECT_NE(report.text().find("without canaries"), std::string::npos) << report.text();
  ::unlink(path.str().c_str());
  for (const Consistency c : {Consistency::log, Consistency::gc, Consistency::internal}) {
    // An open that changes the variant keeps the canaries.
    without.consistency = c;
    Result<Pool> pool = c == Consistency::log ? Pool::create(path.str(), options(c), &report)
                                              : Pool::open(path.str(), without, &report);
    ASSERT_TRUE(pool) << report.text();
    EXPECT_TRUE(pool->info().canaries);
    EXPECT_EQ(pool->info().consistency, c);
    EXPECT_EQ(pool->close(), Status::ok);
  }
  without.read_only = true;
  EXPECT_TRUE(Pool::open(path.str(), without, &report)->info().canaries);
}

TEST(CanaryOption, a_store_works_as_ever) {
  TempPath path("canary-store");
  Report report;
  StoreOptions o;
  o.pool = options();
  for (int round = 0; round < 2; ++round) {
    Result<Store> store = Store::open(path.str(), o, &report);
    ASSERT_TRUE(store) << report.text();
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(store->put("k" + std::to_string(i), std::string(i % 300, 'v')), Status::ok);
    }
    EXPECT_EQ(store->validate(&report), Status::ok) << report.text();
    EXPECT_EQ(store->close(), Status::ok);
  }
}

// What malloc_to and free_from cost on a warm heap is what they cost without canaries. A new slab
// flushes a line for each block, or all its lines.
TEST(CanaryCost, no_line_and_no_fence_on_a_warm_heap) {
  pm::ModelCounts counts[2];
  for (const bool canaries : {false, true}) {
    TempPath path("canary-cost");
    PoolOptions o = options();
    o.medium = Medium::model;
    o.canaries = canaries;
    Result<Pool> pool = Pool::create(path.str(), o);
    ASSERT_TRUE(pool);
    Root& r = **pool->root<Root>("root");
    const auto round = [&] {
      for (int i = 0; i < 2000; i += 8) ASSERT_EQ(pool->malloc_to(100, r.slot[i]), Status::ok);
      for (int i = 0; i < 2000; i += 8) ASSERT_EQ(pool->free_from(r.slot[i]), Status::ok);
    };
    const pm::ModelCounts begin = pm::thread_model_counts();
    round();
    const pm::ModelCounts before = pm::thread_model_counts();
    round();
    counts[canaries ? 1 : 0] = pm::thread_model_counts() - before;
    const pm::ModelCounts cold = before - begin;
    std::printf("%s: first round %llu lines, %llu fences\n", canaries ? "canaries" : "none",
                static_cast<unsigned long long>(cold.lines),
                static_cast<unsigned long long>(cold.fences));
  }
  EXPECT_EQ(counts[0].lines, counts[1].lines);
  EXPECT_EQ(counts[0].fences, counts[1].fences);
}

// --- planted mistakes ----------------------------------------------------------------------------

TEST(CanaryPlanted, mistakes_break_canaries) {
  for (const char* mistake : {"heap_slab_without_canaries", "heap_slab_cut_anew_without_canaries",
                              "heap_morphed_canaries_missing", "heap_extent_without_canary"}) {
    plant(mistake);
    std::string found;
    for (std::uint64_t seed = 1; seed <= 3 && found.empty(); ++seed) {
      TempPath path("canary-planted");
      found = churn(path.str(), Consistency::log, seed, 12);
    }
    unplant_all();
    EXPECT_NE(found, "") << mistake;
    std::printf("%s: %s\n", mistake, found.c_str());
  }
}

TEST(CanaryPlanted, a_canary_that_is_not_compared_finds_nothing) {
  plant("heap_canary_believed");
  TempPath path("canary-believed");
  Result<Pool> pool = Pool::create(path.str(), options());
  ASSERT_TRUE(pool);
  Root& r = **pool->root<Root>("root");
  ASSERT_EQ(pool->malloc_to(100, r.slot[0]), Status::ok);
  r.slot[0].get()[104] ^= 1;
  EXPECT_EQ(pool->free_from(r.slot[0]), Status::ok) << "the tests above would fail";
  unplant_all();
}

}  // namespace
}  // namespace tenuto
