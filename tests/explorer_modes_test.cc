// What a crash loses in each mode, crashes inside recovery of several depths, and checks that share
// a worker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "support/explorer_parts.h"

namespace tenuto::test {
namespace {

using testing::HasSubstr;

// Offsets of two words and of the count that promises them.
struct Layout {
  std::uint64_t value, count;
};
constexpr Layout kSameSector = {64, 128};
constexpr Layout kTwoSectors = {64, 512};
constexpr std::uint64_t kOperations = 4;

// Stores a value and then the count, with no flush in between and one fence for both.
CrashRunner::Workload unordered(Layout l, bool flushes) {
  return [=](CrashContext& c) {
    const RawPool pool(c.path());
    for (std::uint64_t n = 1; n <= kOperations; ++n) {
      c.invoke();
      store_ordered(pool.at<std::uint64_t>(l.value), n);
      store_ordered(pool.at<std::uint64_t>(l.count), n);
      if (flushes) {
        flush(pool.at<std::uint64_t>(l.value));
        flush(pool.at<std::uint64_t>(l.count));
      }
      fence("value and count", "operation returns");
      c.ack();
    }
  };
}

CrashRunner::Check value_follows_count(Layout l) {
  return [=](const CrashImage& image) -> std::string {
    const RawPool pool(image.path());
    const std::uint64_t n = pool.at<std::uint64_t>(l.count);
    if (n < image.acknowledged() || n > image.invoked()) return "count is " + std::to_string(n);
    return pool.at<std::uint64_t>(l.value) < n ? "count without its value" : "";
  };
}

bool survives(CrashMode mode, Layout l, bool flushes = true) {
  CrashOptions o = counting();
  o.mode = mode;
  o.lint = false;
  return CrashRunner(o).run(make_pool, unordered(l, flushes), value_follows_count(l)).ok();
}

TEST(explorer_modes, lines_of_a_sector_keep_their_order_only_where_pages_are_lost) {
  EXPECT_FALSE(survives(CrashMode::adr, kSameSector));
  EXPECT_TRUE(survives(CrashMode::page, kSameSector));
  EXPECT_FALSE(survives(CrashMode::page, kTwoSectors)) << "a page is torn between its sectors";
}

TEST(explorer_modes, with_eadr_nothing_needs_a_flush_but_order_still_counts) {
  EXPECT_TRUE(survives(CrashMode::eadr, kTwoSectors, false));
  EXPECT_FALSE(survives(CrashMode::adr, kTwoSectors, false));
  CrashOptions o = counting();
  o.mode = CrashMode::eadr;
  o.lint = false;
  const Layout swapped = {kTwoSectors.count, kTwoSectors.value};
  const CrashResult r = CrashRunner(o).run(
      make_pool, unordered(kTwoSectors, false), [=](const CrashImage& image) -> std::string {
        const RawPool pool(image.path());
        return pool.at<std::uint64_t>(swapped.value) < pool.at<std::uint64_t>(swapped.count)
                   ? "early"
                   : "";
      });
  EXPECT_FALSE(r.ok()) << "the first store may survive alone";
}

TEST(explorer_modes, a_killed_process_keeps_what_ended_operations_stored) {
  const auto run = [](CrashMode mode, bool in_order) {
    CrashOptions o = counting();
    o.mode = mode;
    return CrashRunner(o).run(
        make_pool,
        [=](CrashContext& c) {
          const RawPool pool(c.path());
          for (std::uint64_t n = 1; n <= kOperations; ++n) {
            c.invoke();
            store_ordered(pool.at<std::uint64_t>(in_order ? kTwoSectors.value : kTwoSectors.count),
                          n);
            store_ordered(pool.at<std::uint64_t>(in_order ? kTwoSectors.count : kTwoSectors.value),
                          n);
            c.ack();
          }
        },
        value_follows_count(kTwoSectors));
  };
  EXPECT_TRUE(run(CrashMode::kill, true).ok()) << run(CrashMode::kill, true).text();
  EXPECT_FALSE(run(CrashMode::kill, false).ok()) << "the first store may survive alone";
  EXPECT_FALSE(run(CrashMode::eadr, true).ok()) << "nothing waits for the last stores";
}

TEST(explorer_modes, a_flush_of_one_line_takes_its_sector_in_mode_page) {
  const auto run = [](CrashMode mode) {
    CrashOptions o = counting();
    o.mode = mode;
    o.lint = false;
    return CrashRunner(o).run(
        make_pool,
        [](CrashContext& c) {
          const RawPool pool(c.path());
          c.invoke();
          pool.at<std::uint64_t>(64) = 1;
          pool.at<std::uint64_t>(128) = 1;
          flush(pool.at<std::uint64_t>(128));
          fence("one line", "operation returns");
          c.ack();
        },
        [](const CrashImage& image) -> std::string {
          const RawPool pool(image.path());
          return pool.at<std::uint64_t>(64) < image.acknowledged() ? "lost" : "";
        });
  };
  EXPECT_TRUE(run(CrashMode::page).ok());
  EXPECT_FALSE(run(CrashMode::adr).ok());
}

// Recovery that counts its attempts, and fails at the third.
CrashResult attempts(std::uint32_t depth) {
  CrashOptions o = counting();
  o.recovery_depth = depth;
  return CrashRunner(o).run(
      make_pool,
      [](CrashContext& c) {
        const RawPool pool(c.path());
        c.invoke();
        publish(pool.at<std::uint64_t>(0), 1);
        fence("work", "operation returns");
        c.ack();
      },
      [](const CrashImage& image) -> std::string {
        const RawPool pool(image.path());
        auto& tries = pool.at<std::uint64_t>(64);
        if (tries == 2) return "third attempt";
        publish(tries, tries + 1);
        fence("attempt counted", "recovery goes on");
        publish(pool.at<std::uint64_t>(128), 1);
        fence("recovered", "use");
        return {};
      });
}

TEST(explorer_modes, a_bug_of_the_third_recovery_is_found_two_crashes_deep) {
  EXPECT_TRUE(attempts(0).ok());
  EXPECT_TRUE(attempts(1).ok());
  const CrashResult r = attempts(2);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].recovery, HasSubstr(", then before fence("));
}

// The log of explorer_parts.h, checked in memory and by counts alone.
CrashResult counted_log(Bug bug, bool counted, bool in_memory) {
  CrashOptions o = counting();
  o.counted_model = counted;
  o.lint = false;
  return CrashRunner(o).run(
      make_pool, [=](CrashContext& c) { append_all(c, bug); },
      [=](const CrashImage& image) -> std::string {
        if (!in_memory) return check_log_file(image);
        std::byte* data = image.data().data();
        const std::string wrong = check_log(data, image);
        std::memset(data + kPoolBytes / 2, 0xff, kLineBytes);  // the runner must put this back
        return data[kPoolBytes / 2 - 1] == std::byte{0} ? wrong : "dirt of the check before";
      });
}

TEST(explorer_modes, a_shared_worker_and_a_check_in_memory_judge_the_same_states) {
  const CrashResult forked = counted_log(Bug::none, false, false);
  EXPECT_TRUE(forked.ok()) << forked.text();
  for (const bool in_memory : {false, true}) {
    const CrashResult r = counted_log(Bug::none, true, in_memory);
    EXPECT_TRUE(r.ok()) << r.text();
    EXPECT_EQ(r.states, forked.states);
    EXPECT_EQ(r.unique, forked.unique);
    EXPECT_EQ(r.checks, forked.checks);
    const CrashResult bad = counted_log(Bug::no_flush, true, in_memory);
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.findings[0].text(), counted_log(Bug::no_flush, false, false).findings[0].text());
  }
}

TEST(explorer_modes, a_shared_worker_that_dies_or_hangs_is_a_finding_and_replaced) {
  CrashOptions o = counting();
  o.counted_model = true;
  o.findings_max = 2;
  o.timeout = std::chrono::milliseconds(200);
  const CrashResult r = CrashRunner(o).run(make_pool, unordered(kTwoSectors, true),
                                           [](const CrashImage& image) -> std::string {
                                             const std::uint64_t n = image.acknowledged();
                                             if (n == 1) std::abort();
                                             while (n == 3) image.data();
                                             return {};
                                           });
  ASSERT_EQ(r.findings.size(), 2u) << r.text();
  EXPECT_THAT(r.findings[0].what, HasSubstr("died"));
  EXPECT_THAT(r.findings[1].what, HasSubstr("hung"));
}

}  // namespace
}  // namespace tenuto::test
