// What malloc_to and similar calls cost on medium `model`: lines flushed, fences, and lines flushed
// again soon. The counts are exact, on a warm heap. The table of src/heap/README.md has these
// figures.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "heap/heap.h"
#include "pm/media.h"
#include "support/pool_parts.h"

namespace tenuto {
namespace {

using test::PoolParts;
using test::TempPath;

constexpr std::size_t kOps = 1000;

// An array of words, reachable from a root, and the cost of operations on it.
template <class Word>
class Costs {
 public:
  // `stride` is the distance between destinations, in words.
  explicit Costs(std::size_t stride, std::size_t count = kOps + 1)
      : stride_(stride), count_(count) {
    PoolOptions o = PoolParts::small_options();
    o.medium = Medium::model;
    EXPECT_EQ(p.create(path_.str(), o), Status::ok);
    const std::size_t words = stride * count;
    EXPECT_EQ(p.heap->malloc_to(words * sizeof(Word), p.root(0)), Status::ok);
    first_ = static_cast<Word*>(PtrWord::decode(&p.root(0), p.root(0).raw));
    zero_flush(first_, words * sizeof(Word));
    fence("words", "test");
  }
  Word& operator[](std::size_t i) { return first_[i * stride_]; }
  std::span<Word> span(std::size_t i, std::size_t n) { return {&(*this)[i], n}; }

  // The cost of all operations but the first, which also flushes what an earlier one left.
  pm::ModelCounts of(const std::function<void(std::size_t)>& operation, std::size_t n = kOps + 1) {
    operation(0);
    const pm::ModelCounts before = pm::thread_model_counts();
    for (std::size_t i = 1; i < n; ++i) operation(i);
    const pm::ModelCounts c = pm::thread_model_counts() - before;
    const auto each = [&](std::uint64_t v) { return static_cast<double>(v) / double(n - 1); };
    std::printf("%.2f lines, %.2f fences, %.2f reflushes\n", each(c.lines), each(c.fences),
                each(c.reflushes));
    return c;
  }
  // Takes slabs and fills caches.
  void warm(std::uint64_t bytes, std::uint64_t type = 0) {
    const AllocOptions o{.type = type};
    for (std::size_t i = 0; i < count_; ++i)
      EXPECT_EQ(p.heap->malloc_to(bytes, span(i, 1), o), Status::ok);
    for (std::size_t i = 0; i < count_; ++i) EXPECT_EQ(p.heap->free_from((*this)[i]), Status::ok);
  }

  PoolParts p;

 private:
  TempPath path_{"costs"};
  std::size_t stride_, count_;
  Word* first_ = nullptr;
};

template <class Word>
void expect_costs(std::uint64_t malloc_lines, std::uint64_t malloc_fences) {
  Costs<Word> c(8);
  c.warm(64);
  const auto made =
      c.of([&](std::size_t i) { ASSERT_EQ(c.p.heap->malloc_to(64, c[i]), Status::ok); });
  const auto freed = c.of([&](std::size_t i) { ASSERT_EQ(c.p.heap->free_from(c[i]), Status::ok); });
  EXPECT_EQ(made.lines, malloc_lines * kOps);
  EXPECT_EQ(made.fences, malloc_fences * kOps);
  EXPECT_EQ(made.reflushes, 0u);
  EXPECT_EQ(freed.lines, 3 * kOps);
  EXPECT_EQ(freed.fences, kOps);
  EXPECT_EQ(freed.reflushes, 0u);
}

TEST(HeapCost, plain_malloc_to_takes_four_lines_and_two_fences_free_from_three_and_one) {
  expect_costs<PtrWord>(4, 2);
}
TEST(HeapCost, versioned_malloc_to_and_free_from_take_three_lines_and_one_fence) {
  expect_costs<VPtrWord>(3, 1);
}

TEST(HeapCost, a_versioned_swap_of_one_block_takes_four_lines_and_one_fence) {
  Costs<VPtrWord> c(8, 2 * kOps + 2);
  c.warm(64);
  for (std::size_t i = 0; i <= kOps; ++i) ASSERT_EQ(c.p.heap->malloc_to(64, c[i]), Status::ok);
  const auto moved =
      c.of([&](std::size_t i) { ASSERT_EQ(c.p.heap->swap(c[i], c[kOps + 1 + i]), Status::ok); });
  EXPECT_EQ(moved.lines, 4 * kOps);
  EXPECT_EQ(moved.fences, kOps);
  EXPECT_EQ(moved.reflushes, 0u);
}

// 16 neighbours: their words fill two lines, their bits one or two, their intents usually one.
template <class Word>
void expect_batch_costs(double malloc_lines, std::uint64_t malloc_fences, double free_lines,
                        std::uint64_t type = 0) {
  constexpr std::size_t kBatch = 16, kBatches = 59;
  Costs<Word> c(1, kBatch * (kBatches + 1));
  c.warm(64, type);
  const auto made = c.of(
      [&](std::size_t i) {
        ASSERT_EQ(c.p.heap->malloc_to(64, c.span(i * kBatch, kBatch), {.type = type}), Status::ok);
      },
      kBatches + 1);
  const auto freed = c.of(
      [&](std::size_t i) {
        ASSERT_EQ(c.p.heap->free_from(c.span(i * kBatch, kBatch)), Status::ok);
      },
      kBatches + 1);
  EXPECT_EQ(made.fences, malloc_fences * kBatches);
  EXPECT_EQ(freed.fences, kBatches);
  EXPECT_LE(static_cast<double>(made.lines), malloc_lines * kBatches);
  EXPECT_LE(static_cast<double>(freed.lines), free_lines * kBatches);
}

TEST(HeapCost, a_plain_batch_of_16_takes_two_fences) { expect_batch_costs<PtrWord>(6.3, 2, 5.3); }
TEST(HeapCost, a_versioned_batch_of_16_takes_one_fence) {
  expect_batch_costs<VPtrWord>(5.3, 1, 5.3);
}

// --- with a type: a line more to allocate, nothing more to free ----------------------------------

template <class Word>
void expect_typed_costs(std::uint64_t bytes, std::uint64_t malloc_lines,
                        std::uint64_t malloc_fences) {
  Costs<Word> c(8);
  c.warm(bytes, 7);
  const auto made = c.of([&](std::size_t i) {
    const Result<heap::Block> block = c.p.heap->reserve_typed(bytes, 7);
    ASSERT_TRUE(block);
    if constexpr (std::is_same_v<Word, VPtrWord>) {
      ASSERT_EQ(c.p.heap->publish_typed(*block, c[i]), Status::ok);
    } else {
      ASSERT_EQ(c.p.heap->publish(*block, c[i]), Status::ok);
    }
  });
  const auto freed = c.of([&](std::size_t i) { ASSERT_EQ(c.p.heap->free_from(c[i]), Status::ok); });
  EXPECT_EQ(made.lines, malloc_lines * kOps);
  EXPECT_EQ(made.fences, malloc_fences * kOps);
  EXPECT_EQ(made.reflushes, 0u);
  EXPECT_EQ(freed.lines, 3 * kOps);
  EXPECT_EQ(freed.fences, kOps);
  EXPECT_EQ(freed.reflushes, 0u);
}

TEST(HeapCost, a_type_costs_plain_malloc_to_a_line_and_no_fence) {
  expect_typed_costs<PtrWord>(64, 5, 2);
}
TEST(HeapCost, a_type_costs_versioned_malloc_to_a_line_and_no_fence) {
  expect_typed_costs<VPtrWord>(64, 4, 1);
}
// The blocks come from two slabs, because a slab holds 904.
TEST(HeapCost, the_types_of_a_batch_of_16_share_lines) {
  expect_batch_costs<PtrWord>(11.1, 2, 5.8, 7);
}
TEST(HeapCost, the_types_of_a_versioned_batch_take_a_fence_besides) {
  expect_batch_costs<VPtrWord>(10.1, 2, 5.8, 7);
}

}  // namespace
}  // namespace tenuto
