// Wear levelling (heap/wear.h): the spread of writes with it and without, the rest of freed blocks,
// the counts over a close and after a crash. Each promise also fails with a planted mistake.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "heap/format.h"
#include "pm/plant.h"
#include "support/pool_parts.h"
#include "support/wear_load.h"

namespace tenuto {
namespace {

using heap::Block;
using heap::Kind;
using test::PoolParts;
using test::spread_of;
using test::TempPath;
using test::wear_load;
using test::wear_options;
using test::WearLoad;

// A pool whose time the test sets.
struct Wear : testing::Test {
  Wear() {
    options = wear_options(true);
    options.heap.wear_rest_ms = 100;
    options.heap.clock_ms = [this] { return now; };
  }
  ~Wear() override { unplant_all(); }
  void create() {
    p = {};
    ::unlink(path.str().c_str());
    ASSERT_EQ(p.create(path.str(), options), Status::ok);
  }
  void reopen() {
    p = {};
    ASSERT_EQ(p.open(path.str(), options), Status::ok) << p.report.text();
  }
  PoolOffset put(std::uint64_t bytes, std::size_t root = 0) {
    EXPECT_EQ(p.heap->malloc_to(bytes, p.root(root)), Status::ok);
    return p.file->offset_of(PtrWord::decode(&p.root(root), p.root(root).raw));
  }
  PoolOffset replace(std::uint64_t bytes) {
    EXPECT_EQ(p.heap->free_from(p.root(0)), Status::ok);
    return put(bytes);
  }
  void expect_valid() {
    Report report;
    EXPECT_EQ(p.heap->validate(&report), Status::ok) << report.text();
  }

  TempPath path{"wear"};
  PoolOptions options;
  std::int64_t now = 1000;
  PoolParts p;
};

// --- spread --------------------------------------------------------------------------------------

double spread(const WearLoad& load, bool on, const char* mistake = nullptr) {
  TempPath path("spread");
  unplant_all();
  if (mistake != nullptr) plant(mistake);
  const double s = spread_of(wear_load(path.str(), wear_options(on), load));
  unplant_all();
  std::printf("%s, %s%s: max / mean %.2f\n", load.name, on ? "on" : "off",
              mistake == nullptr ? "" : mistake, s);
  return s;
}

TEST(WearSpread, is_at_most_2_for_blocks_of_64_to_1024_bytes) {
  EXPECT_LE(spread(test::kSmall, true), 2.0);
  EXPECT_GT(spread(test::kSmall, false), 4.0);
}
TEST(WearSpread, is_at_most_2_for_extents) {
  EXPECT_LE(spread(test::kLarge, true), 2.0);
  EXPECT_GT(spread(test::kLarge, false), 4.0);
}
TEST(WearSpread, is_at_most_2_for_derived_blocks) {
  EXPECT_LE(spread(test::kDerived, true), 2.0);
  EXPECT_GT(spread(test::kDerived, false), 4.0);
}

// Objects that live on keep most frames out of it. Only moving them would help.
TEST(WearSpread, is_smaller_with_the_option_where_a_third_lives_on) {
  EXPECT_LE(3 * spread(test::kFuller, true), spread(test::kFuller, false));
}

TEST(WearSpread, planted_mistakes_are_found) {
  for (const char* mistake : {"heap_wear_stays_in_its_slabs", "heap_wear_takes_the_first_block",
                              "heap_wear_takes_the_first_slab",
                              "heap_wear_takes_the_most_worn_frame", "heap_wear_not_counted"}) {
    EXPECT_GT(spread(test::kSmall, true, mistake), 2.0) << mistake;
  }
  WearLoad more = test::kLarge;  // so that several free extents fit
  more.objects = 80;
  more.pool_bytes = 32 * test::kMiB;
  EXPECT_GT(spread(more, true, "heap_wear_takes_the_best_fit"), spread(more, true));
}

// --- rest ----------------------------------------------------------------------------------------

TEST_F(Wear, a_freed_block_rests) {
  for (const std::uint64_t bytes : {64ull, 1024ull, 20'000ull, 3ull << 20}) {
    create();
    const PoolOffset first = put(bytes);
    std::vector<PoolOffset> early;
    // More replacements than any cache holds, and less time than a rest.
    for (int i = 0; i < 300; ++i) {
      if (bytes > 1u << 20 && i == 3) break;  // they would fill the pool
      early.push_back(replace(bytes));
    }
    EXPECT_EQ(std::count(early.begin(), early.end(), first), 0) << bytes;
    EXPECT_EQ(p.heap->stats().wear_rested, 0u);
    EXPECT_EQ(p.heap->stats().wear_forced, 0u);
    now += 99;
    put(bytes, 1);
    EXPECT_EQ(p.heap->stats().wear_rested, 0u) << bytes;
    now += 1;
    put(20'000, 2);  // asks the extents, and looks at the clock
    EXPECT_GT(p.heap->stats().wear_rested, 0u) << bytes;
    expect_valid();
    p.crash();
  }
}

// Also by way of the caches of derived blocks, whose frees have no limbo.
TEST_F(Wear, a_freed_derived_block_rests_and_is_not_taken) {
  create();
  const Block b = *p.heap->reserve(64, Kind::derived);
  const std::uint64_t held = p.heap->stats().allocated_bytes;
  p.heap->release(b.offset);
  EXPECT_FALSE(p.heap->find_taken(b.offset, Kind::derived));
  EXPECT_EQ(p.heap->stats().allocated_bytes, held - 64);
  p.heap->for_each(Kind::derived, [&](PoolOffset o, std::uint64_t) { EXPECT_NE(o, b.offset); });
  for (int i = 0; i < 500; ++i) EXPECT_NE(p.heap->reserve(64, Kind::derived)->offset, b.offset);
  expect_valid();
  p.heap->release(b.offset);  // twice: reported as without wear levelling
  EXPECT_EQ(p.file->poisoned(), Status::corrupt);
}

TEST_F(Wear, a_full_pool_ends_rests_early_and_counts_them) {
  options.size_max = options.size;
  create();
  // More bytes than the pool has, in no time.
  put(64);
  for (int i = 0; i < 400'000; ++i) {
    ASSERT_EQ(p.heap->free_from(p.root(0)), Status::ok);
    ASSERT_EQ(p.heap->malloc_to(64, p.root(0)), Status::ok) << i;
  }
  EXPECT_GT(p.heap->stats().wear_forced, 0u);
  EXPECT_EQ(p.heap->stats().wear_rested, 0u);
  expect_valid();
  // The same for extents, which need what the small blocks have.
  const std::uint64_t forced = p.heap->stats().wear_forced;
  put(1u << 20, 1);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(p.heap->free_from(p.root(1)), Status::ok);
    ASSERT_EQ(p.heap->malloc_to(1u << 20, p.root(1)), Status::ok) << i;
  }
  EXPECT_GT(p.heap->stats().wear_forced, forced);
  expect_valid();
}

TEST_F(Wear, mistakes_with_rests_are_found) {
  create();
  plant("heap_wear_rests_too_short");
  put(64);
  for (int i = 0; i < 300; ++i) replace(64);
  now += 60;
  put(20'000, 2);
  EXPECT_GT(p.heap->stats().wear_rested, 0u);  // a_freed_block_rests expects 0
  unplant_all();
  p.crash();

  create();
  plant("heap_wear_no_rest");
  const PoolOffset first = put(1024);
  bool again = false;
  for (int i = 0; i < 20'000 && !again; ++i) again = replace(1024) == first;
  EXPECT_TRUE(again);
  unplant_all();
  p.crash();

  options.size_max = options.size;
  create();
  plant("heap_wear_full_while_blocks_rest");
  put(64);
  Status s = Status::ok;
  for (int i = 0; i < 400'000 && s == Status::ok; ++i) {
    ASSERT_EQ(p.heap->free_from(p.root(0)), Status::ok);
    s = p.heap->malloc_to(64, p.root(0));
  }
  EXPECT_EQ(s, Status::full);
}

TEST_F(Wear, a_thread_that_stops_holds_nothing_back) {
  create();
  std::thread([&] {
    put(64, 1);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(p.heap->free_from(p.root(1)), Status::ok);
      ASSERT_EQ(p.heap->malloc_to(64, p.root(1)), Status::ok);
    }
  }).join();
  now += 100;
  put(20'000);
  for (int i = 0; i < 20; ++i) replace(20'000);
  EXPECT_GE(p.heap->stats().wear_rested, 900u);
}

// --- figures -------------------------------------------------------------------------------------

TEST_F(Wear, counts_what_is_handed_out) {
  create();
  const auto before = p.heap->stats();
  EXPECT_EQ(before.wear_lines, 0u);
  const PoolOffset b = put(20'480);
  EXPECT_EQ(p.heap->stats().wear_lines, 320u);
  EXPECT_EQ(p.heap->stats().wear_max, 64u);
  EXPECT_EQ(b.value % kFrameBytes, 0u);
  put(64, 1);
  ASSERT_EQ(p.heap->validate(nullptr), Status::ok);  // empties the caches
  // One block; its bit twice; the header and six stripes.
  EXPECT_EQ(p.heap->stats().wear_lines, 321u);
  EXPECT_EQ(p.heap->stats().wear_bits_lines, 2u + 7u);

  plant("heap_wear_counts_unused_blocks");
  put(128, 2);
  ASSERT_EQ(p.heap->validate(nullptr), Status::ok);
  EXPECT_GT(p.heap->stats().wear_lines, 323u);
  plant("heap_wear_not_counted");
  const std::uint64_t lines = p.heap->stats().wear_lines;
  put(20'480, 3);
  EXPECT_EQ(p.heap->stats().wear_lines, lines);
}

// --- the table -----------------------------------------------------------------------------------

struct WearTable : Wear {
  void churn(int n) {
    if (p.root(0).raw == 0) put(1024);
    for (int i = 0; i < n; ++i) {
      replace(1024);
      now += 1;
    }
  }
};

TEST_F(WearTable, counts_survive_a_close_and_grow_from_there) {
  create();
  churn(5000);
  ASSERT_EQ(p.heap->validate(nullptr), Status::ok);
  const heap::HeapStats before = p.heap->stats();
  ASSERT_GT(before.wear_lines, 5000u * 16);
  const std::uint64_t objects = before.objects;
  ASSERT_EQ(p.close(), Status::ok);
  reopen();
  const heap::HeapStats after = p.heap->stats();
  EXPECT_EQ(after.wear_lines, before.wear_lines);
  EXPECT_EQ(after.wear_max, before.wear_max);
  EXPECT_EQ(after.wear_bits_lines, before.wear_bits_lines);
  EXPECT_EQ(after.objects, objects) << "the table is no object of the application";
  EXPECT_TRUE(p.heap->wear_table());
  churn(100);
  EXPECT_GT(p.heap->stats().wear_lines, after.wear_lines);
  expect_valid();
  // Many lives: one table, and no growth.
  for (int i = 0; i < 20; ++i) {
    churn(10);
    ASSERT_EQ(p.close(), Status::ok);
    reopen();
  }
  EXPECT_EQ(p.heap->stats().extents, 1u);
  EXPECT_EQ(p.file->bytes(), options.size);
}

TEST_F(WearTable, a_life_without_changes_writes_nothing) {
  create();
  churn(10);
  ASSERT_EQ(p.close(), Status::ok);
  reopen();
  const PoolOffset table = p.heap->wear_table();
  ASSERT_EQ(p.close(), Status::ok);
  reopen();
  EXPECT_EQ(p.heap->wear_table(), table);
}

TEST_F(WearTable, after_a_crash_at_most_an_eighth_of_the_pool_is_lost) {
  for (const Consistency c : {Consistency::log, Consistency::gc, Consistency::internal}) {
    options.consistency = c;
    create();
    churn(40'000);
    const heap::HeapStats before = p.heap->stats();
    EXPECT_GT(before.wear_tables, 10u);
    p.crash();
    reopen();
    const heap::HeapStats after = p.heap->stats();
    EXPECT_LE(after.wear_lines, before.wear_lines);
    const std::uint64_t step = p.file->bytes() / kLineBytes / 8;
    EXPECT_GE(after.wear_lines + after.wear_bits_lines + 2 * step,
              before.wear_lines + before.wear_bits_lines);
    EXPECT_EQ(after.extents, 1u) << consistency_name(c);
    expect_valid();
    p.crash();
  }
}

TEST_F(WearTable, an_open_without_the_option_reports_what_is_there_and_keeps_it) {
  create();
  churn(5000);
  ASSERT_EQ(p.close(), Status::ok);
  PoolOptions off = options;
  off.heap.wear_levelling = false;
  p = {};
  ASSERT_EQ(p.open(path.str(), off), Status::ok);
  const heap::HeapStats seen = p.heap->stats();
  EXPECT_GT(seen.wear_lines, 5000u * 16);
  EXPECT_EQ(seen.objects, 1u);
  for (int i = 0; i < 1000; ++i) replace(1024);
  EXPECT_EQ(p.heap->stats().wear_lines, seen.wear_lines);
  p.crash();  // and a recovery without it
  ASSERT_EQ(p.open(path.str(), off), Status::ok);
  EXPECT_EQ(p.heap->stats().wear_lines, seen.wear_lines);
  ASSERT_EQ(p.close(), Status::ok);
  off.read_only = true;
  ASSERT_EQ(p.open(path.str(), off), Status::ok);
  EXPECT_EQ(p.heap->stats().wear_lines, seen.wear_lines);
  EXPECT_EQ(p.heap->reserve(64, Kind::derived).error(), Status::read_only);
  p.crash();
  reopen();
  EXPECT_EQ(p.heap->stats().wear_lines, seen.wear_lines);
}

TEST_F(WearTable, a_read_only_open_with_the_option_changes_nothing) {
  create();
  churn(100);
  ASSERT_EQ(p.close(), Status::ok);
  options.read_only = true;
  reopen();
  EXPECT_GT(p.heap->stats().wear_lines, 1600u);
  EXPECT_EQ(p.heap->stats().wear_rested, 0u);
}

TEST_F(WearTable, a_damaged_table_is_not_believed_and_not_kept) {
  for (const bool believed : {false, true}) {
    create();
    churn(100);
    ASSERT_EQ(p.close(), Status::ok);
    p = {};
    ASSERT_EQ(p.open(path.str(), options), Status::ok);
    const PoolOffset table = p.heap->wear_table();
    p.file->at<std::uint32_t>(table)[1000] = 77'000'000;
    p.crash();
    if (believed) plant("heap_wear_believes_a_damaged_table");
    reopen();
    EXPECT_EQ(p.heap->stats().wear_lines >= 77'000'000u, believed);
    EXPECT_EQ(static_cast<bool>(p.heap->wear_table()), believed);
    now += 100;
    put(20'000, 2);  // ends the rest of what recovery freed
    EXPECT_EQ(p.heap->stats().extents, believed ? 2u : 1u);
    churn(10);
    p.crash();
  }
}

// An object of the application with the same type is not ours.
TEST_F(WearTable, an_object_of_others_with_its_type_is_left_alone) {
  create();
  PtrWord& word = p.root(3);
  ASSERT_EQ(p.heap->malloc_to(20'000, std::span(&word, 1), {.type = heap::kWearType}), Status::ok);
  churn(100);
  ASSERT_EQ(p.close(), Status::ok);
  reopen();
  p.crash();
  reopen();
  EXPECT_EQ(p.heap->stats().extents, 2u);
  EXPECT_EQ(p.heap->free_from(p.root(3)), Status::ok);
}

TEST_F(WearTable, planted_mistakes_are_found) {
  const auto lives = [&](const char* mistake) {
    plant(mistake);
    create();
    churn(20'000);
    EXPECT_EQ(p.heap->validate(nullptr), Status::ok);
    const std::uint64_t lines = p.heap->stats().wear_lines;
    EXPECT_EQ(p.close(), Status::ok);
    EXPECT_EQ(p.open(path.str(), options), Status::ok);
    const heap::HeapStats s = p.heap->stats();
    p.crash();
    unplant_all();
    return std::pair(s.wear_lines == lines, s.extents);
  };
  EXPECT_FALSE(lives("heap_wear_starts_anew").first);
  EXPECT_FALSE(lives("heap_wear_table_never_written").first);
  EXPECT_GT(lives("heap_wear_old_tables_stay").second, 1u);
  // A collection after a crash.
  options.consistency = Consistency::gc;
  create();
  churn(20'000);
  plant("heap_wear_table_is_garbage");
  p.crash();
  reopen();
  EXPECT_EQ(p.heap->stats().wear_lines, 0u);
}

TEST_F(Wear, a_close_frees_what_rests) {
  for (const bool forgotten : {false, true}) {
    create();
    for (int i = 0; i < 100; ++i) {
      const Block b = *p.heap->reserve(64, Kind::derived);
      p.heap->release(b.offset);
    }
    if (forgotten) plant("heap_wear_close_forgets_resting_blocks");
    ASSERT_EQ(p.close(), Status::ok);
    unplant_all();
    reopen();
    std::size_t taken = 0;
    p.heap->for_each(Kind::derived, [&](PoolOffset, std::uint64_t) { ++taken; });
    EXPECT_EQ(taken, forgotten ? 100u : 0u);
    p.crash();
  }
}

}  // namespace
}  // namespace tenuto
