// Fragmentation after a change of sizes, with morphing and without. It runs the four workloads of
// NVAlloc's Fragbench, scaled down: fixed and uniform sizes, with 0 to 90 % deleted before the
// sizes change. A further test fills a pool by one class after another.
//
// TENUTO_FRAG_MB sets the live bytes in MiB (default 3), and prints the table of
// src/heap/slabs.md: the peak of the frames in use over the peak of the live bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "heap/heap.h"
#include "support/pool_parts.h"

namespace tenuto {
namespace {

using test::PoolParts;
using test::TempPath;

constexpr std::uint64_t kMiB = 1u << 20;

struct Sizes {
  std::uint64_t least, most;
};
struct Workload {
  const char* name;
  Sizes before;
  double deleted;
  Sizes after;
};
constexpr Workload kWorkloads[] = {
    {"W1", {100, 100}, 0.9, {130, 130}},
    {"W2", {100, 150}, 0.0, {200, 250}},
    {"W3", {100, 150}, 0.9, {200, 250}},
    {"W4", {100, 200}, 0.5, {1000, 2000}},
};

const double kDefault = HeapOptions{}.morph_occupancy;

std::uint64_t live_bytes_max() {
  const char* text = std::getenv("TENUTO_FRAG_MB");
  return (text == nullptr ? 3 : std::strtoull(text, nullptr, 10)) * kMiB;
}

// Allocates and frees objects at random. At most `live_max` bytes are live.
class Fragbench {
 public:
  Fragbench(const Workload& w, double occupancy, std::uint64_t live_max)
      : workload_(w), live_max_(live_max) {
    PoolOptions o = PoolParts::small_options();
    o.size = kPoolBytesMin;
    o.heap.morph_occupancy = occupancy;
    EXPECT_EQ(pool_.create(path_.str(), o), Status::ok);
    const std::size_t words = live_max / 100 + 64;
    EXPECT_EQ(pool_.heap->malloc_to(words * sizeof(PtrWord), pool_.root(0)), Status::ok);
    auto* first = static_cast<PtrWord*>(PtrWord::decode(&pool_.root(0), pool_.root(0).raw));
    zero_flush(first, words * sizeof(PtrWord));
    fence("words", "test");
    for (std::size_t i = 0; i < words; ++i) free_words_.push_back({first + i, 0});
    frames_before_ = used();
  }

  // Returns the peak of bytes in used frames over the peak of live bytes.
  double run() {
    phase(workload_.before);
    const auto deleted =
        static_cast<std::size_t>(workload_.deleted * static_cast<double>(objects_.size()));
    for (std::size_t i = 0; i < deleted; ++i) erase();
    phase(workload_.after);
    EXPECT_EQ(pool_.heap->validate(&pool_.report), Status::ok) << pool_.report.text();
    return static_cast<double>(used_peak_) / static_cast<double>(live_peak_);
  }
  std::uint64_t morphed() const { return pool_.heap->stats().morphed_slabs; }

 private:
  struct Object {
    PtrWord* word;
    std::uint64_t bytes;
  };

  // Allocates 2.5 times the live bytes: a run of two phases allocates 5 times.
  void phase(const Sizes& sizes) {
    std::uniform_int_distribution<std::uint64_t> draw(sizes.least, sizes.most);
    for (std::uint64_t allocated = 0; allocated < 5 * live_max_ / 2;) {
      const std::uint64_t bytes = draw(rng_);
      while (live_ + bytes > live_max_) erase();
      Object o = free_words_.back();
      free_words_.pop_back();
      o.bytes = bytes;
      ASSERT_EQ(pool_.heap->malloc_to(bytes, *o.word), Status::ok);
      objects_.push_back(o);
      live_ += bytes;
      allocated += bytes;
      live_peak_ = std::max(live_peak_, live_);
      used_peak_ = std::max(used_peak_, used() - frames_before_);
    }
  }
  void erase() {
    std::swap(objects_[rng_() % objects_.size()], objects_.back());
    ASSERT_EQ(pool_.heap->free_from(*objects_.back().word), Status::ok);
    live_ -= objects_.back().bytes;
    free_words_.push_back(objects_.back());
    objects_.pop_back();
  }
  std::uint64_t used() const {
    const frame::FrameStats s = pool_.frames->stats();
    return (s.frames - s.frames_free) * kFrameBytes;
  }

  const Workload& workload_;
  const std::uint64_t live_max_;
  TempPath path_{std::string("frag") + workload_.name};
  PoolParts pool_;
  std::mt19937_64 rng_{1};
  std::vector<Object> objects_, free_words_;
  std::uint64_t frames_before_ = 0, live_ = 0, live_peak_ = 0, used_peak_ = 0;
};

TEST(HeapFragmentation, morphing_lowers_the_peak_when_sizes_change) {
  const std::uint64_t live = live_bytes_max();
  double gained = 0;
  for (const Workload& w : kWorkloads) {
    const double off = Fragbench(w, 0, live).run();
    const double on = Fragbench(w, kDefault, live).run();
    EXPECT_LT(on, off * 1.03) << w.name;
    gained = std::max(gained, off / on);
  }
  EXPECT_GT(gained, 1.1);
}

TEST(HeapFragmentation, table_of_thresholds) {
  // Only prints figures for the README. The tests above check the bounds.
  if (std::getenv("TENUTO_FRAG_MB") == nullptr) GTEST_SKIP() << "set TENUTO_FRAG_MB";
  std::printf("| peak / live | off | 10 %% | 20 %% | 30 %% | 50 %% |\n|---|---|---|---|---|---|\n");
  for (const Workload& w : kWorkloads) {
    std::printf("| %s |", w.name);
    for (const double occupancy : {0.0, 0.1, 0.2, 0.3, 0.5}) {
      Fragbench f(w, occupancy, live_bytes_max());
      std::printf(" %.2f |", f.run());
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

// For each size in turn: fills the pool with objects of that size, counts them, and frees all but
// one in `stays` (0: all).
std::vector<std::size_t> fill_in_turn(double occupancy, std::size_t stays,
                                      const std::vector<std::uint64_t>& sizes) {
  const TempPath path("frag_turn");
  PoolParts p;
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = 16 * kMiB;
  o.heap.morph_occupancy = occupancy;
  EXPECT_EQ(p.create(path.str(), o), Status::ok);
  constexpr std::size_t kWords = 250'000;
  EXPECT_EQ(p.heap->malloc_to(kWords * sizeof(PtrWord), p.root(0)), Status::ok);
  auto* words = static_cast<PtrWord*>(PtrWord::decode(&p.root(0), p.root(0).raw));
  zero_flush(words, kWords * sizeof(PtrWord));
  fence("words", "test");
  std::mt19937_64 rng(1);
  std::vector<PtrWord*> unused;
  for (std::size_t i = 0; i < kWords; ++i) unused.push_back(words + i);
  std::vector<std::size_t> counts;
  for (const std::uint64_t bytes : sizes) {
    std::vector<PtrWord*> mine;
    while (p.heap->malloc_to(bytes, *unused.back()) == Status::ok) {
      mine.push_back(unused.back());
      unused.pop_back();
    }
    counts.push_back(mine.size());
    std::shuffle(mine.begin(), mine.end(), rng);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (stays != 0 && i % stays == 0) continue;
      EXPECT_EQ(p.heap->free_from(*mine[i]), Status::ok);
      unused.push_back(mine[i]);
    }
  }
  EXPECT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  return counts;
}

// Only the memory of the remaining objects and of headers is lost.
TEST(HeapFragmentation, a_full_pool_of_sparse_slabs_is_filled_again_by_another_class) {
  const std::vector<std::uint64_t> sizes = {64, 96};
  const auto off = fill_in_turn(0, 100, sizes);
  const auto on = fill_in_turn(kDefault, 100, sizes);
  std::printf("%zu of 64, then %zu of 96 with morphing and %zu without\n", on[0], on[1], off[1]);
  EXPECT_EQ(on[0], off[0]);
  EXPECT_GT(on[1], on[0] * 64 / 96 * 9 / 10);
  EXPECT_LT(off[1], on[1] / 10);
}

// A slab holds blocks of at most two classes: a third class finds no room, but each of the two
// does.
TEST(HeapFragmentation, classes_take_turns_in_a_full_pool_of_sparse_slabs) {
  const auto on = fill_in_turn(kDefault, 100, {64, 96, 64, 96});
  for (std::size_t i = 2; i < on.size(); ++i) EXPECT_GT(on[i], on[i - 2] * 8 / 10) << i;
}

TEST(HeapFragmentation, a_pool_filled_and_emptied_by_one_class_serves_all_others) {
  const std::vector<std::uint64_t> sizes = {64, 1000, 96, 5000, 200, 64};
  const auto on = fill_in_turn(kDefault, 0, sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_GE(on[i], fill_in_turn(kDefault, 0, {sizes[i]})[0] * 95 / 100) << sizes[i];
  }
}

}  // namespace
}  // namespace tenuto
