// Closes of a heap: what they write of derived blocks, and that the next open finds exactly the
// blocks that were in use.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "heap/heap.h"
#include "pm/media.h"
#include "pm/plant.h"
#include "support/pool_parts.h"

namespace tenuto {
namespace {

using heap::Kind;
using test::PoolParts;
using test::TempPath;

class HeapClose : public testing::Test {
 protected:
  HeapClose() : path_("heap-close") { options_.medium = Medium::model; }
  void SetUp() override {
    ASSERT_EQ(pool_.create(path_.str(), options_), Status::ok) << pool_.report.text();
  }
  void TearDown() override { unplant_all(); }

  void reserve(unsigned blocks) {
    for (unsigned i = 0; i < blocks; ++i) {
      const auto block = pool_.heap->reserve(kBytes, Kind::derived);
      ASSERT_TRUE(block);
      mine_.insert(block->offset.value);
    }
  }
  void release_one() {
    pool_.heap->release({*mine_.begin()});
    mine_.erase(mine_.begin());
  }
  // Returns the lines that it flushed.
  std::uint64_t close() {
    const std::uint64_t before = pm::thread_model_counts().lines;
    EXPECT_EQ(pool_.close(), Status::ok);
    return pm::thread_model_counts().lines - before;
  }
  Status open() {
    pool_.report = {};
    TENUTO_TRY(pool_.begin_open(path_.str(), options_));
    if (!pool_.file->was_clean()) {
      for (const std::uint64_t o : mine_) TENUTO_TRY(pool_.heap->mark({o}, &pool_.report));
    }
    return pool_.end_open();
  }
  void open_well() { ASSERT_EQ(open(), Status::ok) << pool_.report.text(); }
  // The blocks in use that the heap knows.
  std::set<std::uint64_t> found() {
    std::set<std::uint64_t> all;
    pool_.heap->for_each(Kind::derived, [&](PoolOffset o, std::uint64_t) { all.insert(o.value); });
    return all;
  }

  static constexpr std::uint64_t kBytes = 512;
  static constexpr unsigned kBlocks = 2000;  // of some twenty slabs
  TempPath path_;
  PoolOptions options_ = PoolParts::small_options();
  PoolParts pool_;
  std::set<std::uint64_t> mine_;
};

TEST_F(HeapClose, slabs_with_the_blocks_of_the_last_close_are_left_alone) {
  plant("heap_closed_without_slab_table");  // which is written as a whole
  reserve(kBlocks);
  const std::uint64_t all = close();
  open_well();
  const std::uint64_t none = close();
  open_well();
  release_one();
  const std::uint64_t one = close();
  open_well();
  EXPECT_EQ(found(), mine_);
  EXPECT_GT(one, none);
  EXPECT_LT((one - none) * 10, all - none);
}

// A kill leaves the stripes of the close before it, with their seal.
TEST_F(HeapClose, after_a_kill_all_slabs_are_written) {
  reserve(kBlocks);
  close();
  open_well();
  reserve(1);
  release_one();
  pool_.crash();
  open_well();
  close();
  open_well();
  EXPECT_EQ(found(), mine_);
}

TEST_F(HeapClose, after_a_kill_stripes_that_are_believed_are_found) {
  plant("heap_close_believes_stripes_after_crash");
  plant("heap_closed_without_slab_table");  // which stands for the stripes
  reserve(kBlocks);
  close();
  open_well();
  reserve(1);
  pool_.crash();
  open_well();
  close();
  const Status s = open();
  EXPECT_TRUE(s == Status::corrupt || found() != mine_);
}

// The shadow of a slab that was given back serves another slab.
TEST_F(HeapClose, a_slab_that_is_new_is_written) {
  for (int round = 0; round < 4; ++round) {
    reserve(kBlocks);
    close();
    open_well();
    while (!mine_.empty()) release_one();
    reserve(kBlocks / 2);
    close();
    open_well();
    ASSERT_EQ(found(), mine_);
    ASSERT_EQ(pool_.heap->validate(&pool_.report), Status::ok) << pool_.report.text();
  }
}

}  // namespace
}  // namespace tenuto
