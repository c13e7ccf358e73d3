// What medium `model` counts, and that each of several open pools is flushed as its medium
// requires.
#include "pm/media.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "file/pool_file.h"
#include "support/pool_parts.h"
#include "tenuto/persist.h"

namespace tenuto {
namespace {

using pm::FlushPath;
using pm::ModelCounts;

FlushPath path() { return pm::flush_path.load(std::memory_order_relaxed); }

// Anonymous memory that is registered under a medium.
class Region {
 public:
  explicit Region(Medium medium, bool delays = false) {
    void* p = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(p, MAP_FAILED);
    base_ = static_cast<char*>(p);
    EXPECT_TRUE(pm::register_region(base_, kBytes, medium, delays));
  }
  ~Region() {
    pm::unregister_region(base_);
    ::munmap(base_, kBytes);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  const char* line(std::size_t i) const { return base_ + i * kLineBytes; }

 private:
  static constexpr std::size_t kBytes = 1u << 20;
  char* base_ = nullptr;
};

ModelCounts flush_lines(const Region& r, const std::vector<std::size_t>& lines) {
  const ModelCounts before = pm::thread_model_counts();
  for (const std::size_t i : lines) flush_bytes(r.line(i), 1);
  return pm::thread_model_counts() - before;
}

TEST(Media, lines_are_counted_by_the_bytes_they_hold) {
  const Region r(Medium::model);
  const auto lines = [&](std::size_t at, std::size_t n) {
    const ModelCounts before = pm::thread_model_counts();
    flush_bytes(r.line(0) + at, n);
    return (pm::thread_model_counts() - before).lines;
  };
  EXPECT_EQ(lines(0, 1), 1u);
  EXPECT_EQ(lines(0, 64), 1u);
  EXPECT_EQ(lines(0, 65), 2u);
  EXPECT_EQ(lines(63, 2), 2u);
  EXPECT_EQ(lines(1, 64), 2u);
  EXPECT_EQ(lines(0, 4096), 64u);
  const ModelCounts before = pm::thread_model_counts();
  fence("a", "b");
  fence("a", "b");
  EXPECT_EQ((pm::thread_model_counts() - before).fences, 2u);
}

// A reflush: a line is flushed again after fewer than four other lines.
TEST(Media, reflushes_are_counted_up_to_distance_three) {
  const Region r(Medium::model);
  const std::vector<std::size_t> elsewhere = {900, 910, 920, 930, 940};
  const auto reflushes = [&](const std::vector<std::size_t>& lines) {
    flush_lines(r, elsewhere);
    return flush_lines(r, lines).reflushes;
  };
  EXPECT_EQ(reflushes({0, 0}), 1u);
  EXPECT_EQ(reflushes({0, 1, 0}), 1u);
  EXPECT_EQ(reflushes({0, 1, 2, 0}), 1u);
  EXPECT_EQ(reflushes({0, 1, 2, 3, 0}), 1u);
  EXPECT_EQ(reflushes({0, 1, 2, 3, 4, 0}), 0u);
  EXPECT_EQ(reflushes({0, 1, 1, 1, 1, 0}), 4u) << "others are different lines";
  EXPECT_EQ(reflushes({0, 1, 2, 3, 4, 5, 6, 7}), 0u);
}

TEST(Media, writes_are_sequential_to_the_next_block_and_random_to_any_other) {
  const Region r(Medium::model);
  flush_lines(r, {1000});
  ModelCounts c = flush_lines(r, {0, 1, 2, 3});  // four lines of a 256-byte block: one device write
  EXPECT_EQ(c.writes_random, 1u);
  EXPECT_EQ(c.writes_sequential, 0u);
  c = flush_lines(r, {4, 5, 8, 12});  // the next three blocks
  EXPECT_EQ(c.writes_sequential, 3u);
  EXPECT_EQ(c.writes_random, 0u);
  c = flush_lines(r, {8, 40, 0});  // back, far away, back
  EXPECT_EQ(c.writes_sequential, 0u);
  EXPECT_EQ(c.writes_random, 3u);
}

TEST(Media, threads_count_for_themselves_and_all_together) {
  const Region r(Medium::model);
  const ModelCounts all = pm::model_counts();
  const ModelCounts mine = pm::thread_model_counts();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&r] {
      flush_lines(r, {1, 2, 3});
      fence("a", "b");
    });
  }
  for (auto& t : threads) t.join();
  flush_lines(r, {4});
  EXPECT_EQ((pm::model_counts() - all).lines, 10u) << "ended threads too";
  EXPECT_EQ((pm::model_counts() - all).fences, 3u);
  EXPECT_EQ((pm::thread_model_counts() - mine).lines, 1u);
}

TEST(Media, delays_take_at_least_what_they_say) {
  const Region r(Medium::model, true);
  const auto time_of = [&](const std::vector<std::size_t>& lines) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 200; ++i) flush_lines(r, lines);
    return std::chrono::steady_clock::now() - begin;
  };
  time_of({0});  // measures the clock
  // 800 ns each, less a tenth for the measurement of the clock.
  EXPECT_GE(time_of({0, 0, 0, 0, 0}), std::chrono::nanoseconds(200 * 5 * 720));
}

TEST(Media, several_media_at_once_flush_each_as_its_own) {
  EXPECT_EQ(path(), FlushPath::none) << "no pool is open";
  const bool clwb = pm::flush_instruction() == pm::FlushInstruction::clwb;
  auto cache = std::make_unique<Region>(Medium::cache);
  EXPECT_EQ(path(), FlushPath::none);
  auto line = std::make_unique<Region>(Medium::line);
  EXPECT_EQ(path(), FlushPath::cold);
  EXPECT_EQ(flush_lines(*cache, {1, 2}).lines, 0u);
  EXPECT_EQ(flush_lines(*line, {1, 2}).lines, 0u);
  cache.reset();
  EXPECT_EQ(path(), clwb ? FlushPath::clwb : FlushPath::cold);
  auto model = std::make_unique<Region>(Medium::model);
  EXPECT_EQ(path(), FlushPath::cold);
  EXPECT_EQ(flush_lines(*model, {1, 2}).lines, 2u);
  EXPECT_EQ(flush_lines(*line, {1, 2}).lines, 0u);
  int outside = 0;
  const ModelCounts before = pm::thread_model_counts();
  flush(outside);
  EXPECT_EQ((pm::thread_model_counts() - before).lines, 0u) << "memory of no pool";
  line.reset();
  model.reset();
  EXPECT_EQ(path(), FlushPath::none);
}

// Pools come and go while another thread flushes: all its lines are counted for its own pool.
TEST(Media, regions_that_come_and_go_take_no_flushes_from_others) {
  const Region steady(Medium::model);
  std::atomic<bool> end = false;
  std::thread churn([&] {
    while (!end.load(std::memory_order_relaxed)) {
      const Region a(Medium::cache), b(Medium::line), c(Medium::cache);
    }
  });
  std::uint64_t counted = 0;
  constexpr std::size_t kRounds = 20'000;
  for (std::size_t i = 0; i < kRounds; ++i) counted += flush_lines(steady, {i % 64}).lines;
  end = true;
  churn.join();
  EXPECT_EQ(counted, kRounds);
}

TEST(Media, pools_of_different_media_are_open_at_once) {
  test::TempPath a("media-a"), b("media-b");
  test::PoolParts model, cache;
  PoolOptions o = test::PoolParts::small_options();
  o.medium = Medium::model;
  ASSERT_EQ(model.create(a.str(), o), Status::ok);
  ASSERT_EQ(cache.create(b.str()), Status::ok);
  EXPECT_EQ(cache.file->medium(), Medium::cache);
  const ModelCounts before = pm::thread_model_counts();
  ASSERT_EQ(cache.heap->malloc_to(64, cache.root(0)), Status::ok);
  EXPECT_EQ((pm::thread_model_counts() - before).lines, 0u);
  ASSERT_EQ(model.heap->malloc_to(64, model.root(0)), Status::ok);
  EXPECT_GT((pm::thread_model_counts() - before).lines, 4u);
  model.crash();
  EXPECT_EQ(path(), FlushPath::none);
  ASSERT_EQ(cache.heap->free_from(cache.root(0)), Status::ok);
}

}  // namespace
}  // namespace tenuto
