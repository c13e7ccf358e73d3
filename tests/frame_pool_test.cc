// Frames on a real pool file: open, close and growth, which damage an open refuses and how it
// reports it, and what an operation costs in flushed lines and fences.
#include <gtest/gtest.h>

#include <fcntl.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "frame_pool.h"
#include "pm/media.h"

namespace {

using namespace tenuto;
using namespace tenuto::frame;
using tests::FramePool;

constexpr std::uint64_t kMiB = 1u << 20;

TEST(FramePoolFile, what_was_taken_is_taken_after_a_clean_close) {
  FramePool pool(64 * kMiB);
  std::vector<std::pair<FrameId, unsigned>> held;
  for (unsigned order = 0; order <= kOrderMax; ++order) {
    const auto f = pool.frames->get(order, order);
    ASSERT_TRUE(f);
    EXPECT_TRUE(pool.frames->taken(*f, order));
    held.emplace_back(*f, order);
  }
  const auto run = pool.frames->get_run(3, 0);
  ASSERT_TRUE(run);
  const std::uint64_t free = pool.free();
  ASSERT_EQ(pool.close(), Status::ok);
  ASSERT_EQ(pool.open(), Status::ok) << pool.report.text();
  EXPECT_TRUE(pool.file->was_clean());
  EXPECT_EQ(pool.free(), free);
  EXPECT_EQ(pool.disagreement(), "");
  for (const auto& [f, order] : held) {
    EXPECT_TRUE(pool.frames->taken(f, order));
    EXPECT_EQ(pool.frames->put(f, order, 0), Status::ok);
    EXPECT_FALSE(pool.frames->taken(f, order));
  }
  EXPECT_EQ(pool.frames->put_run(*run, 3, 0), Status::ok);
  EXPECT_EQ(pool.disagreement(), "");
}

// Also those that are stolen from other cores, and those of a zone that was opened again.
TEST(FramePoolFile, frames_come_from_zones_of_their_use_alone) {
  FramePool pool(16 * kMiB);
  EXPECT_FALSE(pool.frames->has(ZoneUse::records));
  EXPECT_EQ(pool.frames->get(kOrderSlab, 0, ZoneUse::records).error(), Status::full);
  ASSERT_EQ(pool.grow(16 * kMiB, ZoneUse::records), Status::ok);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_TRUE(pool.frames->has(ZoneUse::records));
    std::vector<std::pair<FrameId, ZoneUse>> held;
    for (const ZoneUse use : {ZoneUse::records, ZoneUse::any}) {
      for (unsigned core = 0; core < 2; ++core) {
        while (const auto f = pool.frames->get(kOrderSlab, core, use)) held.emplace_back(*f, use);
      }
      EXPECT_GT(held.size(), 100u);
    }
    for (const auto& [f, use] : held) {
      EXPECT_EQ(pool.frames->use_of(f), use);
      const bool behind = f.value >= pool.file->zone(1).offset / kFrameBytes;
      EXPECT_EQ(behind, use == ZoneUse::records);
      EXPECT_EQ(pool.frames->put(f, kOrderSlab, 1), Status::ok);
    }
    EXPECT_TRUE(pool.frames->get_run(1, 0));
    EXPECT_EQ(pool.frames->get_run(8, 0).error(), Status::full) << "huge frames of records";
    EXPECT_EQ(pool.disagreement(), "");
    ASSERT_EQ(pool.close(), Status::ok);
    ASSERT_EQ(pool.open(), Status::ok) << pool.report.text();
  }
}

TEST(FramePoolFile, frames_are_aligned_in_memory_and_behind_the_head) {
  FramePool pool(64 * kMiB);
  for (unsigned order = 0; order <= kOrderMax; ++order) {
    const auto f = pool.frames->get(order, 0);
    ASSERT_TRUE(f);
    const PoolOffset o = offset_of_frame(*f);
    const auto address = reinterpret_cast<std::uintptr_t>(pool.file->at<std::byte>(o));
    EXPECT_EQ(address % (kFrameBytes << order), 0u) << "order " << order;
    EXPECT_TRUE(pool.file->in_range(o, kFrameBytes << order));
  }
}

TEST(FramePoolFile, stats_count_frames_huge_frames_and_zones) {
  FramePool pool(16 * kMiB);
  const FrameStats s = pool.frames->stats();
  EXPECT_EQ(s.frames, 4096u);
  EXPECT_EQ(s.zones, 1u);
  EXPECT_EQ(s.huge_free, 7u) << "the head lies in the first";
  ASSERT_TRUE(pool.frames->get(9, 0));
  ASSERT_TRUE(pool.frames->get(4, 0));
  EXPECT_EQ(pool.frames->stats().frames_free, s.frames_free - 512 - 16);
  EXPECT_LE(pool.frames->stats().huge_free, 6u);
}

TEST(FramePoolFile, impossible_arguments_are_refused) {
  FramePool pool(16 * kMiB);
  EXPECT_EQ(pool.frames->get(11, 0).error(), Status::invalid_argument);
  EXPECT_EQ(pool.frames->put({1000}, 11, 0), Status::invalid_argument);
  EXPECT_EQ(pool.frames->get_run(0, 0).error(), Status::invalid_argument);
  EXPECT_EQ(pool.frames->get_run(~0ull, 0).error(), Status::full);
  EXPECT_EQ(pool.frames->put_run({1024}, ~0ull, 0), Status::corrupt);
  EXPECT_FALSE(pool.frames->taken({0}, 0)) << "the head's frames are nobody's";
  EXPECT_FALSE(pool.frames->taken({1 << 30}, 0));
  EXPECT_FALSE(pool.frames->taken({0}, 99));
}

TEST(FramePoolFile, a_certain_frame_is_given_if_it_is_free) {
  FramePool pool(16 * kMiB);
  const std::uint64_t free = pool.free();
  EXPECT_EQ(pool.frames->get_at({0}, 4), Status::invalid_argument) << "the head's";
  EXPECT_EQ(pool.frames->get_at({1024 + 1}, 4), Status::invalid_argument) << "not aligned";
  EXPECT_EQ(pool.frames->get_at({1024}, 7), Status::invalid_argument) << "of several words";
  ASSERT_EQ(pool.frames->get_at({1024 + 32}, 4), Status::ok);
  EXPECT_EQ(pool.frames->get_at({1024 + 32}, 4), Status::full);
  EXPECT_EQ(pool.frames->get_at({1024 + 40}, 3), Status::full) << "a part of it";
  EXPECT_EQ(pool.frames->get_at({1024}, 6), Status::full) << "it is a part";
  EXPECT_EQ(pool.frames->get_huge({1024}), Status::full);
  EXPECT_TRUE(pool.frames->taken({1024 + 32}, 4));
  EXPECT_EQ(pool.free(), free - 16);
  ASSERT_EQ(pool.frames->get_huge({1536}), Status::ok);
  EXPECT_EQ(pool.frames->get_at({1536}, 4), Status::full) << "taken as a whole";
  EXPECT_EQ(pool.frames->put({1024 + 32}, 4, 0), Status::ok);
  EXPECT_EQ(pool.frames->put_run({1536}, 1, 0), Status::ok);
  EXPECT_EQ(pool.free(), free);
  EXPECT_EQ(pool.disagreement(), "");
}

// Some threads ask for certain frames, others for any: no frame is given twice or lost.
TEST(FramePoolFile, certain_frames_under_threads) {
  FramePool pool(8 * kMiB);
  const std::uint64_t free = pool.free();
  std::vector<std::thread> threads;
  std::vector<std::atomic<int>> owners(pool.file->bytes() / kFrameBytes);
  std::atomic<unsigned> wrong = 0;
  std::atomic<unsigned> certain = 0;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 4000; ++i) {
        FrameId f{(i * 37 + t * 11) * 16 % owners.size()};
        if (t % 2 == 0) {
          if (pool.frames->get_at(f, 4) != Status::ok) continue;
          ++certain;
        } else {
          const auto got = pool.frames->get(4, t);
          if (!got) continue;
          f = *got;
        }
        wrong += owners[f.value].exchange(1) != 0 ? 1 : 0;
        owners[f.value].store(0);
        wrong += pool.frames->put(f, 4, t) != Status::ok ? 1 : 0;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(certain.load(), 100u);
  EXPECT_EQ(pool.free(), free);
  EXPECT_EQ(pool.disagreement(), "");
}

TEST(FramePoolFile, a_grown_zone_serves_at_once_and_after_reopening) {
  FramePool pool(8 * kMiB);
  while (pool.frames->get(0, 0)) {
  }
  EXPECT_EQ(pool.frames->get_run(20, 0).error(), Status::full);
  ASSERT_EQ(pool.grow(Frames::zone_bytes_for(20)), Status::ok);
  const auto run = pool.frames->get_run(20, 0);
  ASSERT_TRUE(run) << "zone_bytes_for promises room for the run";
  EXPECT_TRUE(pool.frames->get(0, 1));
  EXPECT_EQ(pool.disagreement(), "");
  const std::uint64_t free = pool.free();
  ASSERT_EQ(pool.close(), Status::ok);
  ASSERT_EQ(pool.open(), Status::ok) << pool.report.text();
  EXPECT_EQ(pool.frames->stats().zones, 2u);
  EXPECT_EQ(pool.free(), free);
  EXPECT_TRUE(pool.frames->taken(*run, 9));
}

TEST(FramePoolFile, zone_bytes_for_is_enough_from_any_offset_and_for_order_10) {
  for (const std::uint64_t count : {1ull, 2ull, 31ull, 100ull, 5000ull, 40000ull}) {
    for (const std::uint64_t huge_offset : {4ull, 5ull}) {
      const pm::ZoneEntry entry{huge_offset * kHugeBytes, Frames::zone_bytes_for(count)};
      const auto g = ZoneGeometry::of(entry, 0);
      ASSERT_TRUE(g);
      const std::uint64_t begin = round_up(g->first_frame + g->own, 1024);
      EXPECT_GE(g->first_frame + g->frames - begin, count * 512) << count;
    }
  }
}

TEST(FramePoolFile, zones_grow_under_threads_until_the_limit) {
  FramePool pool(8 * kMiB);
  std::atomic<unsigned> failures = 0;
  std::vector<std::thread> threads;
  std::vector<std::vector<FrameId>> got(4);
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        auto f = pool.frames->get(4, t);
        // The other threads may empty a new zone before this one comes to it.
        while (!f && pool.grow(kMiB) == Status::ok) f = pool.frames->get(4, t);
        if (!f) {
          ++failures;
          return;
        }
        got[t].push_back(*f);
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(failures.load(), 0u);
  std::set<std::uint64_t> distinct;
  for (const auto& v : got) {
    for (const FrameId f : v) distinct.insert(f.value);
  }
  EXPECT_EQ(distinct.size(), 1200u);
  EXPECT_GE(pool.frames->stats().zones, 2u);
  EXPECT_EQ(pool.disagreement(), "");
}

TEST(FramePoolFile, a_read_only_pool_answers_read_only) {
  FramePool pool(8 * kMiB);
  const auto f = pool.frames->get(0, 0);
  ASSERT_TRUE(f);
  ASSERT_EQ(pool.close(), Status::ok);
  pool.options.read_only = true;
  ASSERT_EQ(pool.open(), Status::ok) << pool.report.text();
  EXPECT_EQ(pool.frames->get(0, 0).error(), Status::read_only);
  EXPECT_EQ(pool.frames->put(*f, 0, 0), Status::read_only);
  EXPECT_EQ(pool.frames->get_run(1, 0).error(), Status::read_only);
  EXPECT_EQ(pool.frames->put_run({512}, 1, 0), Status::read_only);
  EXPECT_TRUE(pool.frames->taken(*f, 0));
  EXPECT_EQ(pool.disagreement(), "");
  EXPECT_EQ(pool.open_frames(false), Status::read_only) << "recovery would have to write";
}

// Changes one byte of the closed pool's file.
void damage(const FramePool& pool, std::uint64_t offset, unsigned char xor_with) {
  const int fd = ::open(pool.path.c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  unsigned char byte = 0;
  ASSERT_EQ(::pread(fd, &byte, 1, static_cast<off_t>(offset)), 1);
  byte = static_cast<unsigned char>(byte ^ xor_with);
  ASSERT_EQ(::pwrite(fd, &byte, 1, static_cast<off_t>(offset)), 1);
  ::close(fd);
}

TEST(FramePoolFile, damage_is_refused_with_place_expected_and_found) {
  FramePool pool(8 * kMiB);
  ASSERT_EQ(pool.close(), Status::ok);
  const std::uint64_t state = pm::kHeadBytes;
  for (const std::uint64_t at : {state, state + 16, state + 60, state + 64, state + 67, state + 128,
                                 state + 128 + 64 * 3 + 5}) {
    damage(pool, at, 0x10);
    EXPECT_EQ(pool.open(), Status::corrupt) << "byte " << at;
    EXPECT_NE(pool.report.where.find(pool.path), std::string::npos) << pool.report.text();
    EXPECT_NE(pool.report.where.find("zone"), std::string::npos) << pool.report.text();
    EXPECT_FALSE(pool.report.expected.empty());
    EXPECT_FALSE(pool.report.found.empty());
    pool.file.reset();
    damage(pool, at, 0x10);
  }
  EXPECT_EQ(pool.open(), Status::ok) << pool.report.text();
}

// What one operation flushes and fences, as medium `model` counts it.
struct FrameCosts : testing::Test {
  FramePool pool{64 * kMiB, Medium::model};

  template <class F>
  pm::ModelCounts cost(F&& f) {
    const pm::ModelCounts before = pm::thread_model_counts();
    f();
    return pm::thread_model_counts() - before;
  }
};

TEST_F(FrameCosts, get_and_put_flush_one_line_and_never_fence) {
  for (unsigned order = 0; order <= kOrderMax; ++order) {
    Result<FrameId> f = Status::full;
    const pm::ModelCounts get = cost([&] { f = pool.frames->get(order, 0); });
    ASSERT_TRUE(f);
    EXPECT_EQ(get.lines, 1u) << "order " << order;
    EXPECT_EQ(get.fences, 0u);
    const pm::ModelCounts put =
        cost([&] { EXPECT_EQ(pool.frames->put(*f, order, 0), Status::ok); });
    EXPECT_EQ(put.lines, 1u) << "order " << order;
    EXPECT_EQ(put.fences, 0u);
    const pm::ModelCounts again =
        cost([&] { EXPECT_EQ(pool.frames->put(*f, order, 0), Status::corrupt); });
    EXPECT_EQ(again.lines, 0u) << "a refused put writes nothing";
  }
}

TEST_F(FrameCosts, a_run_flushes_its_children_once) {
  const auto f = pool.frames->get_run(20, 0);
  ASSERT_TRUE(f);
  const pm::ModelCounts put = cost([&] { EXPECT_EQ(pool.frames->put_run(*f, 20, 0), Status::ok); });
  EXPECT_LE(put.lines, 2u);
  EXPECT_EQ(put.fences, 0u);
}

TEST_F(FrameCosts, recovery_and_close_fence_once) {
  ASSERT_EQ(pool.open_frames(false), Status::ok);
  pool.frames->begin_recovery();
  EXPECT_EQ(cost([&] { (void)pool.frames->end_recovery(); }).fences, 1u);
  EXPECT_EQ(cost([&] { pool.frames->close(); }).fences, 1u);
}

}  // namespace
