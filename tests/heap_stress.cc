// Many threads on one heap: malloc_to, free_from, reserve and release of all sizes, blocks that
// another thread frees, threads that end and pass on their lanes, growth, and a pool that is mostly
// full. Afterwards, and again after a kill, the heap agrees with the model.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "heap/heap.h"
#include "support/pool_parts.h"
#include "support/seed.h"

namespace tenuto {
namespace {

using heap::Kind;
using test::PoolParts;
using test::TempPath;

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::size_t kThreads = 4;

// Destinations that all threads share, with their expected contents and some mutexes.
struct Board {
  static constexpr std::size_t kWords = 1200;
  static constexpr std::size_t kLocks = 37;
  struct Expected {
    std::uint64_t bytes = 0;  // a null word, if 0
    unsigned char fill = 0;
  };

  explicit Board(PoolParts& p) : pool(p) {
    EXPECT_EQ(p.heap->malloc_to(kWords * sizeof(PtrWord), p.root(0)), Status::ok);
    zero_flush(words(), kWords * sizeof(PtrWord));
    fence("board", "test");
  }
  PtrWord* words() const {
    return static_cast<PtrWord*>(PtrWord::decode(&pool.root(0), pool.root(0).raw));
  }
  std::mutex& lock_of(std::size_t i) { return locks[i % kLocks]; }

  PoolParts& pool;
  bool trims = false;  // one thread calls trim all the time
  std::array<Expected, kWords> expected{};
  std::array<std::mutex, kLocks> locks;
};

std::uint64_t any_size(std::mt19937_64& rng) {
  switch (rng() % 40) {
    case 0:
      return rng() % (3 * kMiB);
    case 1:
    case 2:
      return rng() % 100'000;
    case 3:
    case 4:
    case 5:
      return rng() % 16'000;
    default:
      return 1 + rng() % 400;
  }
}

struct Counts {
  std::atomic<std::uint64_t> mallocs = 0, frees = 0, full = 0, reserved = 0;
};

void flip(Board& b, std::mt19937_64& rng, std::uint64_t bytes_max, Counts& counts) {
  const std::size_t i = rng() % Board::kWords;
  const std::lock_guard lock(b.lock_of(i));
  PtrWord& w = b.words()[i];
  Board::Expected& e = b.expected[i];
  heap::Heap& heap = *b.pool.heap;
  if (e.bytes != 0) {
    const auto* bytes = static_cast<const unsigned char*>(PtrWord::decode(&w, w.raw));
    ASSERT_EQ(bytes[0], e.fill);
    ASSERT_EQ(bytes[e.bytes - 1], e.fill);
    ASSERT_EQ(heap.free_from(w), Status::ok);
    e = {};
    counts.frees += 1;
    return;
  }
  const std::uint64_t bytes = std::min(bytes_max, 1 + any_size(rng));
  const auto fill = static_cast<unsigned char>(rng());
  if (rng() % 4 == 0) {
    const auto block = heap.reserve(bytes, Kind::logged);
    if (!block) {
      ASSERT_EQ(block.error(), Status::full);
      counts.full += 1;
      return;
    }
    std::memset(b.pool.file->at<void>(block->offset), fill, bytes);
    counts.reserved += 1;
    if (rng() % 2 == 0) return heap.release(block->offset);
    ASSERT_EQ(heap.publish(*block, w), Status::ok);
  } else {
    const Status s = heap.malloc_to(bytes, w);
    if (s == Status::full) {
      counts.full += 1;
      return;
    }
    ASSERT_EQ(s, Status::ok);
    std::memset(PtrWord::decode(&w, w.raw), fill, bytes);
  }
  e = {bytes, fill};
  counts.mallocs += 1;
}

void expect_exact(PoolParts& p, const Board& b) {
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  std::set<std::uint64_t> reachable = {p.file->offset_of(b.words()).value};
  for (std::size_t i = 0; i < Board::kWords; ++i) {
    const PtrWord& w = b.words()[i];
    const Board::Expected& e = b.expected[i];
    ASSERT_EQ(w.raw != 0, e.bytes != 0) << i;
    if (e.bytes == 0) continue;
    const auto* bytes = static_cast<const unsigned char*>(PtrWord::decode(&w, w.raw));
    ASSERT_EQ(bytes[0], e.fill);
    ASSERT_EQ(bytes[e.bytes / 2], e.fill);
    ASSERT_EQ(bytes[e.bytes - 1], e.fill);
    ASSERT_TRUE(reachable.insert(p.file->offset_of(bytes).value).second) << "used twice";
  }
  std::set<std::uint64_t> allocated;
  p.heap->for_each(Kind::logged, [&](PoolOffset o, std::uint64_t) { allocated.insert(o.value); });
  ASSERT_EQ(allocated, reachable);
}

// Runs `generations` of threads one after the other. Each thread has its own lane or an inherited
// one.
void run(Board& b, std::uint64_t seed, unsigned generations, unsigned operations,
         std::uint64_t bytes_max, Counts& counts) {
  std::vector<std::thread> threads;
  std::atomic<bool> done = false;
  std::thread trimmer([&] {
    while (b.trims && !done) {
      b.pool.heap->trim();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned g = 0; g < generations; ++g) {
        std::thread([&, t, g] {
          std::mt19937_64 rng(seed * 1000 + t * 100 + g);
          for (unsigned n = 0; n < operations && !testing::Test::HasFatalFailure(); ++n) {
            flip(b, rng, bytes_max, counts);
          }
        }).join();
      }
    });
  }
  for (auto& t : threads) t.join();
  done = true;
  trimmer.join();
}

void stress(const char* name, const PoolOptions& options, unsigned generations, unsigned operations,
            std::uint64_t bytes_max, Counts& counts, bool trims = false) {
  const std::uint64_t seed = tenuto::test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  TempPath path(name);
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), options), Status::ok) << p.report.text();
  Board b(p);
  b.trims = trims;
  for (std::uint64_t session = 0; session < 3; ++session) {
    run(b, seed + session, generations, operations, bytes_max, counts);
    ASSERT_NO_FATAL_FAILURE(expect_exact(p, b));
    if (session == 1) {
      ASSERT_EQ(p.close(), Status::ok);
    } else {
      p.crash();
    }
    ASSERT_EQ(p.open(path.str(), options), Status::ok) << p.report.text();
    ASSERT_NO_FATAL_FAILURE(expect_exact(p, b));
  }
}

TEST(HeapStress, threads_free_each_others_blocks_and_hand_lanes_on) {
  PoolOptions o = PoolParts::small_options();
  Counts counts;
  stress("stress1", o, 8, 4'000, 100'000, counts);
  EXPECT_EQ(counts.full, 0u);
}

// The sizes change with the seasons. Slabs that the last season left sparse are morphed by threads
// that allocate, while others free the old blocks in them.
TEST(HeapStress, slabs_are_morphed_while_others_free_blocks_in_them) {
  constexpr std::array<std::uint64_t, 5> kSeasons = {60, 1000, 200, 3500, 100};
  constexpr std::uint64_t kSeasonMallocs = 1500;
  const std::uint64_t seed = tenuto::test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  TempPath path("stress6");
  PoolParts p;
  PoolOptions o = PoolParts::small_options();
  o.heap.morph_occupancy = 0.5;
  ASSERT_EQ(p.create(path.str(), o), Status::ok);
  Board b(p);
  std::atomic<std::uint64_t> mallocs = 0, morphed = 0;
  for (int session = 0; session < 3; ++session) {
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 rng(seed + static_cast<std::uint64_t>(session) * 100 + t);
        for (int n = 0; n < 8'000 && !testing::Test::HasFatalFailure(); ++n) {
          const std::size_t i = rng() % Board::kWords;
          const std::lock_guard lock(b.lock_of(i));
          PtrWord& w = b.words()[i];
          Board::Expected& e = b.expected[i];
          if (e.bytes != 0) {
            const auto* bytes = static_cast<const unsigned char*>(PtrWord::decode(&w, w.raw));
            ASSERT_EQ(bytes[0], e.fill);
            ASSERT_EQ(bytes[e.bytes - 1], e.fill);
            ASSERT_EQ(p.heap->free_from(w), Status::ok);
            e = {};
            continue;
          }
          const std::uint64_t season = mallocs.fetch_add(1) / kSeasonMallocs;
          const std::uint64_t bytes = kSeasons[season % kSeasons.size()] + rng() % 16;
          ASSERT_EQ(p.heap->malloc_to(bytes, w), Status::ok);
          e = {bytes, static_cast<unsigned char>(rng())};
          std::memset(PtrWord::decode(&w, w.raw), e.fill, bytes);
          if (n % 100 == 0) morphed += p.heap->stats().morphed_slabs;
        }
      });
    }
    for (auto& t : threads) t.join();
    ASSERT_NO_FATAL_FAILURE(expect_exact(p, b));
    if (session == 1) {
      ASSERT_EQ(p.close(), Status::ok);
    } else {
      p.crash();
    }
    ASSERT_EQ(p.open(path.str(), o), Status::ok) << p.report.text();
    ASSERT_NO_FATAL_FAILURE(expect_exact(p, b));
  }
  EXPECT_GT(morphed, 100u);
}

TEST(HeapStress, the_pool_grows_under_all_of_them) {
  PoolOptions o = PoolParts::small_options();
  o.size = kPoolBytesMin;
  o.size_max = 400 * kMiB;
  Counts counts;
  stress("stress2", o, 4, 1'500, 4 * kMiB, counts);
  EXPECT_EQ(counts.full, 0u);
}

TEST(HeapStress, a_pool_full_most_of_the_time_loses_nothing) {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = kPoolBytesMin;
  Counts counts;
  stress("stress3", o, 6, 3'000, 200'000, counts);
  EXPECT_GT(counts.full, 0u);
  EXPECT_GT(counts.frees, 100u);
}

// Threads allocate while pages are punched out of the file: at once, by a clock, and by trim. The
// log is compacted, and its segments come and go.
TEST(HeapStress, pages_are_given_back_while_others_allocate) {
  for (const std::int64_t decay_ms : {0, 20}) {
    PoolOptions o = PoolParts::small_options();
    o.size_max = 400 * kMiB;
    o.heap.decay_ms = decay_ms;
    o.heap.decay_tick_ms = 1;
    o.heap.book_chunks_least = o.heap.book_dead_factor = 1;
    Counts counts;
    stress("stress6", o, 3, 1'000, 4 * kMiB, counts, decay_ms != 0);
    EXPECT_EQ(counts.full, 0u);
  }
}

// Any thread also frees the containers of destinations, right after the blocks that they name.
TEST(HeapStress, containers_are_freed_with_frees_pending_in_them) {
  const std::uint64_t seed = tenuto::test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  TempPath path("stress4");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), PoolParts::small_options()), Status::ok);
  Board b(p);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 rng(seed + t);
      for (int n = 0; n < 20'000; ++n) {
        const std::size_t i = rng() % 40;
        const std::lock_guard lock(b.lock_of(i));
        PtrWord& w = b.words()[i];
        auto* inner = static_cast<PtrWord*>(PtrWord::decode(&w, w.raw));
        if (inner == nullptr) {
          ASSERT_EQ(p.heap->malloc_to(64, w), Status::ok);
          inner = static_cast<PtrWord*>(PtrWord::decode(&w, w.raw));
          publish(inner->raw, 0);
          fence("inner word", "test");
        } else if (inner->raw == 0) {
          ASSERT_EQ(p.heap->malloc_to(64, *inner), Status::ok);
        } else {
          ASSERT_EQ(p.heap->free_from(*inner), Status::ok);
          if (rng() % 2 == 0) {
            ASSERT_EQ(p.heap->free_from(w), Status::ok);
          }
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  p.crash();
  ASSERT_EQ(p.open(path.str()), Status::ok) << p.report.text();
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  std::size_t reachable = 1, allocated = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const PtrWord& w = b.words()[i];
    const auto* inner = static_cast<const PtrWord*>(PtrWord::decode(&w, w.raw));
    reachable += inner == nullptr ? 0 : inner->raw == 0 ? 1 : 2;
  }
  p.heap->for_each(Kind::logged, [&](PoolOffset, std::uint64_t) { allocated += 1; });
  EXPECT_EQ(allocated, reachable);
}

// Rows of versioned words, one lock each. All threads use batches, single calls and swaps. No
// caller fences or uses a locked instruction, also for words inside containers that are freed.
TEST(HeapStress, versioned_words_change_hands_without_a_seal) {
  const std::uint64_t seed = tenuto::test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  TempPath path("stress6");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), PoolParts::small_options()), Status::ok);
  constexpr std::size_t kRow = 24, kRows = 12, kRowBytes = kRow * sizeof(VPtrWord);
  Board b(p);  // word i names row i
  std::array<std::atomic<bool>, kRows> held{};
  const auto row_of = [&](std::size_t i) {
    return static_cast<VPtrWord*>(PtrWord::decode(&b.words()[i], b.words()[i].raw));
  };
  const auto full = [](const VPtrWord& w) { return VPtrWord::decode(&w, w.raw) != nullptr; };
  const auto clear = [&](VPtrWord* row) {
    std::vector<VPtrWord*> some;
    for (std::size_t i = 0; i < kRow; ++i) {
      if (full(row[i])) some.push_back(&row[i]);
    }
    ASSERT_EQ(p.heap->free_from(Words<VPtrWord>(std::span<VPtrWord* const>(some))), Status::ok);
  };
  const auto work = [&](std::mt19937_64& rng, std::size_t i) {
    VPtrWord* row = row_of(i);
    if (row == nullptr) {
      ASSERT_EQ(p.heap->malloc_to(kRowBytes, b.words()[i]), Status::ok);
      zero_flush(row_of(i), kRowBytes);
      fence("row", "test");
      return;
    }
    const std::size_t at = rng() % kRow, other = rng() % kRow;
    switch (rng() % 8) {
      case 0: {
        std::size_t n = 0;
        while (at + n < kRow && !full(row[at + n])) ++n;
        const std::span<VPtrWord> words(row + at, n);
        ASSERT_EQ(p.heap->malloc_to(any_size(rng) % 400, Words<VPtrWord>(words)), Status::ok);
        break;
      }
      case 1: {
        clear(row);
        if (rng() % 3 == 0) {
          ASSERT_EQ(p.heap->free_from(b.words()[i]), Status::ok);
        }
        break;
      }
      case 2:
      case 3:
        if (at != other) {
          ASSERT_EQ(p.heap->swap(row[at], row[other]), Status::ok);
        }
        break;
      default:
        ASSERT_EQ(full(row[at]) ? p.heap->free_from(row[at])
                                : p.heap->malloc_to(rng() % 30 == 0 ? 20'000 : 64, row[at]),
                  Status::ok);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 rng(seed + t);
      for (int n = 0; n < 15'000 && !testing::Test::HasFatalFailure(); ++n) {
        const std::size_t i = rng() % kRows;
        if (held[i].exchange(true, std::memory_order_acquire)) continue;
        work(rng, i);
        held[i].store(false, std::memory_order_release);
      }
    });
  }
  for (auto& t : threads) t.join();
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  p.crash();
  ASSERT_EQ(p.open(path.str()), Status::ok) << p.report.text();
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  std::set<const void*> reachable = {b.words()};
  for (std::size_t i = 0; i < kRows; ++i) {
    const VPtrWord* row = row_of(i);
    if (row == nullptr) continue;
    EXPECT_TRUE(reachable.insert(row).second);
    for (std::size_t k = 0; k < kRow; ++k) {
      const void* block = VPtrWord::decode(&row[k], row[k].raw);
      if (block != nullptr) {
        EXPECT_TRUE(reachable.insert(block).second);
      }
    }
  }
  std::set<const void*> allocated;
  p.heap->for_each(Kind::logged,
                   [&](PoolOffset o, std::uint64_t) { allocated.insert(p.file->at<void>(o)); });
  EXPECT_EQ(allocated, reachable);
}

// Threads reserve and release derived blocks, each its own, beside logged blocks.
TEST(HeapStress, derived_blocks_of_many_threads_survive_by_their_marks) {
  TempPath path("stress5");
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), PoolParts::small_options()), Status::ok);
  std::vector<std::vector<PoolOffset>> held(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      for (int n = 0; n < 20'000; ++n) {
        if (held[t].size() > 30 || (!held[t].empty() && rng() % 2 == 0)) {
          const std::size_t i = rng() % held[t].size();
          p.heap->release(held[t][i]);
          held[t].erase(held[t].begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          const auto block =
              p.heap->reserve(rng() % 30 == 0 ? 20'000 : rng() % 2000, Kind::derived);
          ASSERT_TRUE(block);
          held[t].push_back(block->offset);
        }
      }
      fence("records", "test");
    });
  }
  for (auto& t : threads) t.join();
  p.crash();
  ASSERT_EQ(p.begin_open(path.str()), Status::ok) << p.report.text();
  std::set<std::uint64_t> marked;
  for (const auto& list : held) {
    for (const PoolOffset o : list) {
      ASSERT_EQ(p.heap->mark(o, &p.report), Status::ok) << p.report.text();
      ASSERT_TRUE(marked.insert(o.value).second) << "given twice";
    }
  }
  ASSERT_EQ(p.end_open(), Status::ok) << p.report.text();
  std::set<std::uint64_t> taken;
  p.heap->for_each(Kind::derived, [&](PoolOffset o, std::uint64_t) { taken.insert(o.value); });
  EXPECT_EQ(taken, marked);
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
}

}  // namespace
}  // namespace tenuto
