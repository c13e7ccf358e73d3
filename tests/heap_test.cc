// The heap through its interface: placement, malloc_to and free_from, derived blocks, extents, huge
// objects, recovery after a kill, a full pool, misuse.
#include "heap/heap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "heap/size_class.h"
#include "pm/media.h"
#include "support/pool_parts.h"
#include "support/seed.h"

namespace tenuto {
namespace {

using heap::Kind;
using test::PoolParts;
using test::TempPath;

// A block of pointer words, as destinations for a test.
struct Table {
  static constexpr std::size_t kWords = 1500;
  PtrWord word[kWords];
};

Table& table(PoolParts& p) {
  if (p.root(0).raw == 0) {
    EXPECT_EQ(p.heap->malloc_to(sizeof(Table), p.root(0)), Status::ok);
    auto* t = static_cast<Table*>(PtrWord::decode(&p.root(0), p.root(0).raw));
    zero_flush(t, sizeof *t);
    fence("test table", "test");
  }
  return *static_cast<Table*>(PtrWord::decode(&p.root(0), p.root(0).raw));
}

void* target(const PtrWord& w) { return PtrWord::decode(&w, w.raw); }

TEST(HeapTest, malloc_to_attaches_and_free_from_detaches) {
  TempPath path("heap1");
  PoolParts p;
  ASSERT_EQ(p.create(path.str()), Status::ok) << p.report.text();
  Table& t = table(p);
  ASSERT_EQ(p.heap->malloc_to(100, t.word[0]), Status::ok);
  ASSERT_NE(target(t.word[0]), nullptr);
  const PoolOffset o = p.file->offset_of(target(t.word[0]));
  EXPECT_EQ(p.heap->usable_size(o), 112u);
  EXPECT_EQ(p.heap->malloc_to(100, t.word[0]), Status::invalid_argument) << "dest in use";
  EXPECT_EQ(p.heap->free_from(t.word[0]), Status::ok);
  EXPECT_EQ(t.word[0].raw, 0u);
  EXPECT_EQ(p.heap->free_from(t.word[0]), Status::invalid_argument) << "null";
  EXPECT_EQ(p.heap->usable_size(o), 0u);
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

TEST(HeapTest, double_free_and_interior_pointers_are_refused) {
  TempPath path("heap2");
  PoolParts p;
  ASSERT_EQ(p.create(path.str()), Status::ok);
  Table& t = table(p);
  ASSERT_EQ(p.heap->malloc_to(64, t.word[0]), Status::ok);
  auto* block = static_cast<char*>(target(t.word[0]));
  t.word[1].raw = PtrWord::encode(&t.word[1], block);
  t.word[2].raw = PtrWord::encode(&t.word[2], block + 16);
  EXPECT_EQ(p.heap->free_from(t.word[2]), Status::invalid_argument);
  EXPECT_EQ(p.heap->free_from(t.word[0]), Status::ok);
  EXPECT_EQ(p.heap->free_from(t.word[1]), Status::invalid_argument);
  PtrWord outside{};
  EXPECT_EQ(p.heap->malloc_to(64, outside), Status::invalid_argument);
}

TEST(HeapTest, every_size_survives_a_kill_and_nothing_leaks) {
  TempPath path("heap3");
  PoolParts p;
  ASSERT_EQ(p.create(path.str()), Status::ok);
  const std::vector<std::uint64_t> sizes = {
      0,       1,     16,    17,    64,       100,      4096,
      16256,   16257, 20000, 65536, 1u << 20, 2u << 20, (2u << 20) + 1,
      5u << 20};
  Table& t = table(p);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_EQ(p.heap->malloc_to(sizes[i], t.word[i]), Status::ok) << sizes[i];
    std::memset(target(t.word[i]), static_cast<int>(i + 1), sizes[i]);
  }
  const auto stats = p.heap->stats();
  p.crash();
  ASSERT_EQ(p.open(path.str()), Status::ok) << p.report.text();
  EXPECT_EQ(p.leaked % 16, 0u);
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  Table& u = table(p);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto* bytes = static_cast<const unsigned char*>(target(u.word[i]));
    ASSERT_NE(bytes, nullptr);
    EXPECT_GE(p.heap->usable_size(p.file->offset_of(bytes)), sizes[i]);
    for (std::uint64_t k = 0; k < sizes[i]; k += 509) ASSERT_EQ(bytes[k], i + 1);
    ASSERT_EQ(p.heap->free_from(u.word[i]), Status::ok) << sizes[i];
  }
  EXPECT_LE(p.heap->stats().extents, stats.extents);
  p.crash();
  ASSERT_EQ(p.open(path.str()), Status::ok) << p.report.text();
  std::uint64_t left = 0;
  p.heap->for_each(Kind::logged, [&](PoolOffset, std::uint64_t) { left += 1; });
  EXPECT_EQ(left, 1u) << "only the table";
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

TEST(HeapTest, line_sized_requests_are_line_aligned) {
  for (std::uint64_t bytes = 64; bytes <= heap::kSmallBytesMax; bytes += 64) {
    EXPECT_EQ(heap::kClassBytes[heap::class_of(bytes).value] % 64, 0u) << bytes;
  }
  for (std::uint64_t bytes = 0; bytes <= heap::kSmallBytesMax; ++bytes) {
    ASSERT_GE(heap::kClassBytes[heap::class_of(bytes).value], bytes);
  }
}

TEST(HeapTest, consecutive_allocations_touch_different_bitmap_lines) {
  TempPath path("heap4");
  PoolParts p;
  PoolOptions o = PoolParts::small_options();
  o.medium = Medium::model;
  ASSERT_EQ(p.create(path.str(), o), Status::ok);
  Table& t = table(p);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(p.heap->malloc_to(64, t.word[i * 8]), Status::ok);
  // The slab exists and the cache is warm: from now on the cost is exactly the protocol's.
  for (int i = 20; i < 40; ++i) {
    const pm::ModelCounts before = pm::thread_model_counts();
    ASSERT_EQ(p.heap->malloc_to(64, t.word[i * 8]), Status::ok);
    const pm::ModelCounts cost = pm::thread_model_counts() - before;
    EXPECT_EQ(cost.fences, 2u);
    EXPECT_EQ(cost.lines, 4u);
  }
  for (int i = 20; i < 25; ++i) {
    const pm::ModelCounts before = pm::thread_model_counts();
    ASSERT_EQ(p.heap->free_from(t.word[i * 8]), Status::ok);
    const pm::ModelCounts cost = pm::thread_model_counts() - before;
    EXPECT_EQ(cost.fences, 1u);
    EXPECT_EQ(cost.lines, i == 20 ? 1u : 3u);  // the next free flushes the other two
  }
}

TEST(HeapTest, derived_blocks_follow_their_marks_after_a_kill_and_their_bits_after_a_close) {
  TempPath path("heap5");
  PoolParts p;
  ASSERT_EQ(p.create(path.str()), Status::ok);
  std::vector<PoolOffset> blocks;
  for (const std::uint64_t bytes : {64u, 64u, 128u, 512u, 30000u, 3u << 20}) {
    const auto b = p.heap->reserve(bytes, Kind::derived);
    ASSERT_TRUE(b);
    blocks.push_back(b->offset);
  }
  fence("derived", "crash");
  p.crash();
  ASSERT_EQ(p.begin_open(path.str()), Status::ok) << p.report.text();
  for (std::size_t i = 0; i < blocks.size(); i += 2) {
    ASSERT_EQ(p.heap->mark(blocks[i], &p.report), Status::ok) << p.report.text();
    EXPECT_EQ(p.heap->mark(blocks[i], &p.report), Status::corrupt) << "twice";
  }
  EXPECT_EQ(p.heap->mark(blocks[0] + 16, &p.report), Status::corrupt);
  ASSERT_EQ(p.end_open(), Status::ok) << p.report.text();
  const auto taken = [&] {
    std::set<std::uint64_t> all;
    p.heap->for_each(Kind::derived, [&](PoolOffset o, std::uint64_t) { all.insert(o.value); });
    return all;
  };
  const std::set<std::uint64_t> expected = {blocks[0].value, blocks[2].value, blocks[4].value};
  EXPECT_EQ(taken(), expected);
  ASSERT_EQ(p.close(), Status::ok);
  ASSERT_EQ(p.open(path.str()), Status::ok);
  EXPECT_TRUE(p.file->was_clean());
  EXPECT_EQ(taken(), expected);
  for (const std::uint64_t o : expected) p.heap->release({o});
  EXPECT_TRUE(taken().empty());
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

TEST(HeapTest, a_full_pool_says_so_and_stays_usable) {
  TempPath path("heap6");
  PoolParts p;
  PoolOptions o = PoolParts::small_options();
  o.size_max = o.size;
  ASSERT_EQ(p.create(path.str(), o), Status::ok);
  Table& t = table(p);
  std::size_t n = 0;
  while (n < Table::kWords) {
    const Status s = p.heap->malloc_to(64000, t.word[n]);
    if (s == Status::full) break;
    ASSERT_EQ(s, Status::ok);
    n += 1;
  }
  EXPECT_GT(n, 100u);
  ASSERT_LT(n, Table::kWords);
  EXPECT_EQ(p.heap->malloc_to(3u << 20, t.word[n]), Status::full);
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(p.heap->free_from(t.word[i]), Status::ok);
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(p.heap->malloc_to(64000, t.word[i]), Status::ok);
}

TEST(HeapTest, a_pool_grows_up_to_its_maximum) {
  TempPath path("heap7");
  PoolParts p;
  PoolOptions o = PoolParts::small_options();
  o.size_max = 128u << 20;
  ASSERT_EQ(p.create(path.str(), o), Status::ok);
  Table& t = table(p);
  std::size_t n = 0;
  while (p.heap->malloc_to(1u << 20, t.word[n]) == Status::ok) ++n;
  EXPECT_GT(n, 100u);
  EXPECT_GT(p.file->zone_count(), 1u);
  p.crash();
  ASSERT_EQ(p.open(path.str(), o), Status::ok) << p.report.text();
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(p.heap->free_from(table(p).word[i]), Status::ok);
}

// Random mallocs and frees of all sizes beside a model, with kills and clean closes between.
TEST(HeapTest, random_operations_agree_with_a_model_across_reopens) {
  const std::uint64_t seed = tenuto::test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 rng(seed);
  TempPath path("heap8");
  PoolParts p;
  ASSERT_EQ(p.create(path.str()), Status::ok);
  table(p);
  std::map<std::size_t, std::pair<std::uint64_t, unsigned char>> model;
  for (int session = 0; session < 8; ++session) {
    Table& t = table(p);
    for (int n = 0; n < 3000; ++n) {
      const std::size_t i = rng() % Table::kWords;
      if (model.contains(i)) {
        const auto [bytes, fill] = model[i];
        const auto* b = static_cast<unsigned char*>(target(t.word[i]));
        if (bytes > 0) {
          ASSERT_EQ(b[0], fill);
          ASSERT_EQ(b[bytes - 1], fill);
        }
        ASSERT_EQ(p.heap->free_from(t.word[i]), Status::ok);
        model.erase(i);
      } else {
        const std::uint64_t bytes = rng() % 50 == 0   ? rng() % (1u << 20)
                                    : rng() % 10 == 0 ? rng() % 40000
                                                      : rng() % 600;
        const Status s = p.heap->malloc_to(bytes, t.word[i]);
        ASSERT_EQ(s, Status::ok);
        const auto fill = static_cast<unsigned char>(rng());
        std::memset(target(t.word[i]), fill, bytes);
        model[i] = {bytes, fill};
      }
    }
    ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
    if (session % 2 == 0) {
      p.crash();
    } else {
      ASSERT_EQ(p.close(), Status::ok);
    }
    ASSERT_EQ(p.open(path.str()), Status::ok) << p.report.text();
    ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
    std::set<std::uint64_t> reachable = {p.file->offset_of(&table(p)).value};
    for (const auto& [i, what] : model) {
      reachable.insert(p.file->offset_of(target(table(p).word[i])).value);
    }
    std::set<std::uint64_t> allocated;
    p.heap->for_each(Kind::logged, [&](PoolOffset o, std::uint64_t) { allocated.insert(o.value); });
    ASSERT_EQ(allocated, reachable) << "leak or loss";
  }
}

TEST(HeapTest, more_threads_than_lanes_find_new_lanes) {
  TempPath path("heap9");
  PoolParts p;
  ASSERT_EQ(p.create(path.str()), Status::ok);
  Table& t = table(p);
  constexpr std::size_t kThreads = pm::kLanesPerSegment + 20;
  std::atomic<std::size_t> ready = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_EQ(p.heap->malloc_to(64, t.word[i]), Status::ok);
      ready += 1;
      while (ready < kThreads) std::this_thread::yield();  // all lanes held at once
    });
  }
  for (auto& th : threads) th.join();
  EXPECT_GT(p.lanes->count(), kThreads);
  p.crash();
  ASSERT_EQ(p.open(path.str()), Status::ok) << p.report.text();
  EXPECT_GT(p.lanes->count(), kThreads);
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

}  // namespace
}  // namespace tenuto
