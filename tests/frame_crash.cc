// Power cuts at every fence while frames change owners (support/frame_world.h).
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "support/frame_world.h"
#include "tenuto/crash.h"

namespace tenuto::test {
namespace {

TEST(FrameCrash, owners_keep_their_frames_and_nobody_else_any) {
  const CrashResult r = explore_frames({.seed = 1}, frames_handed_over);
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_TRUE(r.unexplored().empty()) << r.unexplored().front();
  EXPECT_TRUE(r.explored("frame taken", "owner recorded"));
  EXPECT_TRUE(r.explored("frames given back", "frames handed out again"));
  EXPECT_TRUE(r.explored("frame counters", "clean close"));
  std::printf("%s\n", r.text().c_str());
}

TEST(FrameCrash, random_histories_of_all_orders_on_two_threads) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CrashOptions options{.seed = seed};
    options.recovery_states_max = 4;
    const CrashResult r = explore_frames(options, [&](FrameSession& s) {
      std::uint64_t x = seed * 0x9e3779b97f4a7c15;
      for (int step = 0; step < 24; ++step) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        const std::uint64_t dice = x * 0x2545f4914f6cdd1d >> 33;
        const std::size_t i = dice % kFrameRecords;
        const auto thread = static_cast<unsigned>(dice >> 8 & 1);
        if (s.owns(i)) {
          s.put(i, thread);
        } else if (s.pool.frames->stats().huge_free >= 2) {
          s.get(i, static_cast<unsigned>((dice >> 10) % 10), thread);
        } else {
          s.get(i, static_cast<unsigned>((dice >> 10) % 5), thread);
        }
      }
      s.close();
    });
    EXPECT_TRUE(r.ok()) << "seed " << seed << ": " << r.text();
  }
}

TEST(FrameCrash, a_zone_is_there_whole_or_not_at_all) {
  const CrashResult r = explore_frames({.seed = 1}, frames_of_a_new_zone);
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_TRUE(r.unexplored().empty()) << r.unexplored().front();
}

// Losses that no crash state can show, because the owners decide. put and end_recovery flush bits,
// but a frame that looks taken and has no owner is given back anyway. So the fence of end_recovery
// cannot matter, either.
bool needless(const Mutation& m) { return m.first == "frames given back"; }

TEST(FrameCrash, every_flush_of_get_and_every_fence_is_needed) {
  FrameModel model;
  CrashOptions options{.seed = 1};
  options.recovery_depth = 0;
  options.recover_twice = false;
  const auto outcomes = CrashRunner(options).mutants(
      make_frame_world,
      [&](CrashContext& c) {
        FrameSession s(c, model);
        s.get(0, 8, 0);
        s.get(1, 9, 0);
        s.get_run(2, 1, 0);
        s.put(1, 0);
        s.get(3, 9, 1);
        s.put(0, 1);
        s.get(0, 8, 0);
        s.get(4, 0, 0);
        s.put(4, 1);  // the thread that closes does not fence it
        s.close();
      },
      [&](const CrashImage& image) { return check_frame_world(image, model); });
  std::size_t found = 0;
  for (const MutantOutcome& o : outcomes) {
    EXPECT_TRUE(o.found || needless(o.mutation)) << o.mutation.text();
    found += o.found ? 1 : 0;
  }
  EXPECT_GE(found, 8u);
}

}  // namespace
}  // namespace tenuto::test
