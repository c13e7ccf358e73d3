// Recovery from a known set of owners, without the crash explorer. The upper layer is dropped at
// random times. Each line of the lower layer is set to a state that a power cut could have left.
// The owners then name their frames, and all others must come back, exactly. Prints its seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "frame/bitfield.h"
#include "frame_pool.h"
#include "support/seed.h"

namespace {

using namespace tenuto;
using namespace tenuto::frame;
using tests::FramePool;

constexpr std::uint64_t kMiB = 1u << 20;

std::uint64_t seed() {
  static const std::uint64_t value = tenuto::test::test_seed();
  return value;
}

struct Piece {
  FrameId first;
  std::uint64_t frames;
  bool run = false;
};

using Line = std::array<std::byte, kLineBytes>;

// A pool, and owners whose records are durable: a get is fenced before its record counts, and a
// record is erased before its put. Tracks the durable content of every line as the persistency
// model has it: a power cut may set a line back to its last fenced flush, or leave it.
class Owners {
 public:
  explicit Owners(std::uint64_t bytes) : pool(bytes), rng(seed()) { fence_all(); }

  ZoneGeometry geometry(std::size_t z) const {
    return *ZoneGeometry::of(pool.file->zone(z), z == 0 ? pm::kHeadBytes : 0);
  }
  template <class F>
  void each_line(F&& f) {
    std::size_t i = 0;
    for (std::size_t z = 0; z < pool.file->zone_count(); ++z) {
      const ZoneGeometry g = geometry(z);
      for (std::uint64_t o = g.children_offset(); o < g.state_end(); o += kLineBytes, ++i) {
        f(i, *pool.file->at<Line>({o}));
      }
    }
  }
  void fence_all() {
    durable.clear();
    each_line([&](std::size_t, const Line& line) { durable.push_back(line); });
  }
  // Makes only the lines durable that a get of this piece flushed.
  void fence_get(const Piece& p) {
    std::size_t i = 0;
    std::size_t z = pool.file->zone_count();
    while (geometry(--z).first_frame > p.first.value) {
    }
    for (std::size_t below = 0; below < z; ++below) {
      i += geometry(below).trees + geometry(below).children;
    }
    const ZoneGeometry g = geometry(z);
    const auto c = static_cast<std::uint32_t>((p.first.value - g.base) / kHugeFrames);
    const auto copy = [&](std::size_t line, std::uint64_t offset) {
      durable[i + line] = *pool.file->at<Line>({offset});
    };
    if (p.frames < kHugeFrames) {
      copy(g.trees + c, g.bitfields_offset() + std::uint64_t{c} * kLineBytes);
      return;
    }
    const auto last = static_cast<std::uint32_t>(c + p.frames / kHugeFrames - 1);
    for (std::uint32_t t = c / kTreeChildren; t <= last / kTreeChildren; ++t) {
      copy(t, g.children_offset() + std::uint64_t{t} * kLineBytes);
    }
  }
  // Each line goes back to its last durable content, or stays.
  void cut_power() {
    each_line([&](std::size_t i, Line& line) {
      if (rng() % 2 == 0) line = durable[i];
    });
  }

  void get(unsigned order) {
    const auto f = pool.frames->get(order, static_cast<unsigned>(rng() % 3));
    if (!f) return;
    held.push_back({*f, 1ull << order});
    fence_get(held.back());
  }
  void get_run(std::uint64_t count) {
    const auto f = pool.frames->get_run(count, 0);
    if (!f) return;
    held.push_back({*f, count * kHugeFrames, true});
    fence_get(held.back());
  }
  void put(std::size_t i) {
    std::swap(held[i], held.back());
    const Piece p = held.back();
    held.pop_back();
    const Status s = p.run ? pool.frames->put_run(p.first, p.frames / kHugeFrames, 0)
                           : pool.frames->put(p.first, order_of(p), 0);
    EXPECT_EQ(s, Status::ok);
  }
  static unsigned order_of(const Piece& p) {
    return static_cast<unsigned>(std::countr_zero(p.frames));
  }
  void work(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (rng() % 100 < 52) {
        const auto kind = rng() % 10;
        if (kind == 0) {
          get_run(1 + rng() % 3);
        } else {
          get(kind < 4 ? 7 + static_cast<unsigned>(rng() % 4) : static_cast<unsigned>(rng() % 8));
        }
      } else if (!held.empty()) {
        put(rng() % held.size());
      }
    }
  }
  // Names all frames that are held, in random order.
  std::string keep_held() {
    std::shuffle(held.begin(), held.end(), rng);
    for (const Piece& p : held) {
      if (pool.frames->keep(p.first, p.frames, &pool.report) != Status::ok) {
        return pool.report.text();
      }
    }
    return "";
  }
  void recover() {
    ASSERT_EQ(pool.open_frames(false), Status::ok) << pool.report.text();
    EXPECT_FALSE(pool.frames->get(0, 0)) << "nothing is handed out before recovery";
    pool.frames->begin_recovery();
    ASSERT_EQ(keep_held(), "");
    (void)pool.frames->end_recovery();
    expect_exact();
    fence_all();
  }
  // Exactly the frames without an owner are free.
  void expect_exact() {
    EXPECT_EQ(pool.disagreement(), "");
    std::uint64_t used = 0;
    for (const Piece& p : held) used += p.frames;
    for (std::size_t z = 0; z < pool.file->zone_count(); ++z) used += geometry(z).own;
    EXPECT_EQ(pool.free() + used, pool.frames->stats().frames);
    for (const Piece& p : held) {
      EXPECT_TRUE(pool.frames->taken(p.first, std::min(order_of(p), kOrderMax)) || p.run);
    }
  }

  FramePool pool;
  std::mt19937_64 rng;
  std::vector<Piece> held;
  std::vector<Line> durable;
};

TEST(FrameRecovery, owned_frames_survive_any_mixture_of_lines_and_all_else_comes_back) {
  Owners o(24 * kMiB);
  ASSERT_EQ(o.pool.grow(10 * kMiB), Status::ok);
  o.fence_all();
  for (int crash = 0; crash < 400; ++crash) {
    o.work(static_cast<int>(o.rng() % 120));
    o.cut_power();
    o.recover();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(FrameRecovery, a_crash_inside_recovery_is_recovered_from) {
  Owners o(24 * kMiB);
  for (int crash = 0; crash < 200; ++crash) {
    o.work(100);
    o.cut_power();
    o.fence_all();  // recovery starts from this image
    ASSERT_EQ(o.pool.open_frames(false), Status::ok);
    o.pool.frames->begin_recovery();
    ASSERT_EQ(o.keep_held(), "");
    (void)o.pool.frames->end_recovery();
    o.cut_power();  // as if recovery had not reached its fence
    o.recover();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(FrameRecovery, frames_without_owner_are_given_back_and_counted) {
  Owners o(32 * kMiB);
  o.work(300);
  while (o.held.empty()) o.work(1);
  std::uint64_t lost = 0;
  for (std::size_t i = o.held.size() / 2; i < o.held.size(); ++i) lost += o.held[i].frames;
  o.held.resize(o.held.size() / 2);
  ASSERT_GT(lost, 0u);
  ASSERT_EQ(o.pool.open_frames(false), Status::ok);
  o.pool.frames->begin_recovery();
  ASSERT_EQ(o.keep_held(), "");
  EXPECT_EQ(o.pool.frames->end_recovery(), lost);
  o.expect_exact();
  ASSERT_EQ(o.pool.open_frames(false), Status::ok);
  o.pool.frames->begin_recovery();
  ASSERT_EQ(o.keep_held(), "");
  EXPECT_EQ(o.pool.frames->end_recovery(), 0u) << "a second recovery finds nothing to do";
  o.expect_exact();
  for (int i = 0; i < 3000; ++i) o.work(1);
  o.expect_exact();
}

TEST(FrameRecovery, a_recovered_pool_closes_and_opens_clean) {
  Owners o(24 * kMiB);
  o.work(200);
  o.cut_power();
  o.recover();
  o.work(50);
  ASSERT_EQ(o.pool.close(), Status::ok);
  ASSERT_EQ(o.pool.open(), Status::ok) << o.pool.report.text();
  o.expect_exact();
}

// States of the lower layer that a crash can leave, made by hand.
struct StaleLines : testing::Test {
  FramePool pool{24 * kMiB};
  ZoneGeometry g = *ZoneGeometry::of(pool.file->zone(0), pm::kHeadBytes);

  ChildPair& pair(std::uint32_t c) {
    return pool.file->at<ChildPair>({g.children_offset()})[c / 2];
  }
  void set_child(std::uint32_t c, Child to) { pair(c) = pair(c).with(c % 2, to); }
  Bitfield& bits(std::uint32_t c) { return pool.file->at<Bitfield>({g.bitfields_offset()})[c]; }
  void begin() {
    ASSERT_EQ(pool.open_frames(false), Status::ok) << pool.report.text();
    pool.frames->begin_recovery();
  }
  Status keep(std::uint64_t first, std::uint64_t frames) {
    return pool.frames->keep({first}, frames, &pool.report);
  }
};

TEST_F(StaleLines, pieces_are_kept_under_a_whole_that_was_given_back) {
  set_child(3, Child::make_whole());
  bits(3).words[0].raw = 0xff0f;
  begin();
  EXPECT_TRUE(pool.frames->taken({3 * 512 + 8}, 3));
  EXPECT_EQ(keep(3 * 512 + 8, 8), Status::ok);
  (void)pool.frames->end_recovery();
  EXPECT_EQ(pool.disagreement(), "");
  EXPECT_EQ(bits(3).words[0].raw, 0xff00u);
  EXPECT_EQ(pool.frames->put({3 * 512 + 8}, 3, 0), Status::ok);
}

TEST_F(StaleLines, a_whole_is_kept_over_bits_that_were_given_back) {
  set_child(3, Child::make_whole());
  bits(3).words[5].raw = 0x1234;
  begin();
  EXPECT_EQ(keep(3 * 512, 512), Status::ok);
  (void)pool.frames->end_recovery();
  EXPECT_EQ(pool.disagreement(), "");
  EXPECT_TRUE(pool.frames->taken({3 * 512}, 9));
  EXPECT_EQ(bits(3).words[5].raw, 0u);
  EXPECT_EQ(pool.frames->put({3 * 512}, 9, 0), Status::ok);
}

TEST_F(StaleLines, a_whole_without_owner_is_given_back_with_its_bits) {
  const std::uint64_t free = pool.free();
  set_child(3, Child::make_whole());
  bits(3).words[5].raw = 0x1234;
  begin();
  EXPECT_EQ(pool.frames->end_recovery(), 512u);
  EXPECT_EQ(pool.disagreement(), "");
  EXPECT_EQ(pool.free(), free);
}

TEST_F(StaleLines, owners_of_what_is_not_taken_are_corrupt) {
  set_child(3, Child::make_whole());
  bits(4).words[0].raw = 0xff;
  begin();
  EXPECT_EQ(keep(3 * 512, 1), Status::corrupt) << "a piece, but no bit";
  EXPECT_NE(pool.report.text().find("not taken"), std::string::npos);
  EXPECT_EQ(keep(4 * 512, 512), Status::corrupt) << "a huge frame, but not whole";
  EXPECT_EQ(keep(4 * 512 + 8, 8), Status::corrupt);
  EXPECT_EQ(keep(4 * 512, 16), Status::corrupt) << "half of it";
  EXPECT_EQ(keep(3 * 512, 1024), Status::corrupt) << "half of the run";
  EXPECT_EQ(keep(5 * 512, 512), Status::corrupt);
  EXPECT_EQ(keep(3 * 512, 512), Status::ok);
  EXPECT_EQ(keep(4 * 512, 8), Status::ok);
}

TEST_F(StaleLines, two_owners_of_one_frame_are_corrupt) {
  set_child(3, Child::make_whole());
  bits(3).words[0].raw = 0xff;
  bits(4).words[0].raw = 0xff;
  begin();
  EXPECT_EQ(keep(4 * 512, 8), Status::ok);
  EXPECT_EQ(keep(4 * 512, 8), Status::corrupt);
  EXPECT_NE(pool.report.text().find("two owners"), std::string::npos);
  EXPECT_EQ(keep(4 * 512 + 4, 4), Status::corrupt);
  EXPECT_EQ(keep(3 * 512, 512), Status::ok);
  EXPECT_EQ(keep(3 * 512, 1), Status::corrupt) << "a piece of an owned huge frame";
  EXPECT_EQ(keep(3 * 512, 512), Status::corrupt);
}

TEST_F(StaleLines, impossible_owners_are_corrupt_and_named) {
  begin();
  for (const auto& [first, frames] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 1},
                                                            {g.own - 1, 1},
                                                            {1024, 0},
                                                            {1024, 3},
                                                            {1024, 513},
                                                            {1025, 2},
                                                            {1024 + 16, 512},
                                                            {g.frames, 1},
                                                            {g.frames - 512, 1024},
                                                            {1024, ~0ull},
                                                            {~0ull, 1},
                                                            {1024, 1ull << 63}}) {
    EXPECT_EQ(keep(first, frames), Status::corrupt) << first << " " << frames;
    EXPECT_NE(pool.report.where.find(pool.path), std::string::npos);
    EXPECT_FALSE(pool.report.expected.empty());
  }
  (void)pool.frames->end_recovery();
  EXPECT_EQ(pool.disagreement(), "");
}

TEST(FrameRecovery, many_threads_name_their_frames_at_once) {
  FramePool pool(64 * kMiB);
  std::vector<FrameId> held;
  for (int i = 0; i < 6000; ++i) held.push_back(*pool.frames->get(0, 0));
  for (int i = 0; i < 5; ++i) held.push_back(*pool.frames->get(9, 0));
  const std::uint64_t free = pool.free();
  ASSERT_EQ(pool.open_frames(false), Status::ok);
  pool.frames->begin_recovery();
  std::atomic<unsigned> refused = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < held.size(); i += 4) {
        if (pool.frames->keep(held[i], i < 6000 ? 1 : 512, nullptr) != Status::ok) ++refused;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(refused.load(), 0u);
  EXPECT_EQ(pool.frames->end_recovery(), 0u);
  EXPECT_EQ(pool.free(), free);
  EXPECT_EQ(pool.disagreement(), "");
}

TEST(FrameRecovery, of_racing_owners_of_one_frame_one_is_refused) {
  FramePool pool(16 * kMiB);
  std::vector<FrameId> held;
  for (int i = 0; i < 1000; ++i) held.push_back(*pool.frames->get(0, 0));
  ASSERT_EQ(pool.open_frames(false), Status::ok);
  pool.frames->begin_recovery();
  std::atomic<unsigned> refused = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (const FrameId f : held) {
        if (pool.frames->keep(f, 1, nullptr) != Status::ok) ++refused;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(refused.load(), 2000u);
}

}  // namespace
