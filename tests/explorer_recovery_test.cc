// What the explorer finds in recovery: crashes inside it, its own crashes and hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "support/explorer_parts.h"

namespace tenuto::test {
namespace {

using testing::HasSubstr;

// A word pair with a redo record: a, b, then {valid, a', b'} in lines of their own.
struct Pair {
  RawPool pool;
  bool clears_early, adds;

  explicit Pair(const std::string& path, bool clears = false, bool adding = false)
      : pool(path), clears_early(clears), adds(adding) {
    recover();
  }
  std::uint64_t& word(std::uint64_t line) const { return pool.at<std::uint64_t>(64 * line); }

  void set(std::uint64_t v) {
    pool.at<std::uint64_t>(64 * 2 + 8) = v;
    publish(word(2), 1u);
    fence("redo record", "words in place");
    recover();
  }
  void recover() {
    if (word(2) == 0) return;
    const std::uint64_t v = pool.at<std::uint64_t>(64 * 2 + 8);
    if (clears_early) publish(word(2), 0u);
    publish(word(0), adds ? word(0) + 1 : v);
    publish(word(1), adds ? word(1) + 1 : v);
    fence("words in place", "redo record cleared");
    if (!clears_early) publish(word(2), 0u);
    fence("redo record cleared", "next record");
  }
};

CrashResult explore_pair(bool clears_early_in_recovery, bool adds_in_recovery,
                         const CrashOptions& options) {
  return CrashRunner(options).run(
      make_pool,
      [](CrashContext& c) {
        Pair pair(c.path());
        for (std::uint64_t v = 1; v <= 3; ++v) {
          c.invoke();
          pair.set(v);
          c.ack();
        }
      },
      [=](const CrashImage& image) -> std::string {
        const Pair pair(image.path(), clears_early_in_recovery, adds_in_recovery);
        if (pair.word(0) != pair.word(1)) return "the words differ";
        if (pair.word(0) < image.acknowledged() || pair.word(0) > image.invoked()) {
          return "a value that is too old or too new";
        }
        return {};
      });
}

TEST(explorer_recovery, sound_recovery_survives_crashes_inside_it) {
  const CrashResult r = explore_pair(false, false, {});
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_GT(r.recovery_states, 0u);
}

TEST(explorer_recovery, a_record_cleared_before_its_words_is_found_inside_recovery) {
  CrashOptions o;
  const CrashResult r = explore_pair(true, false, o);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].recovery,
              HasSubstr("recovery after recovery crashed before fence(\"words in"));
  o.recovery_depth = 0;
  EXPECT_TRUE(explore_pair(true, false, o).ok()) << "only a crash inside recovery shows it";
}

TEST(explorer_recovery, recovery_that_adds_instead_of_setting_is_found) {
  EXPECT_FALSE(explore_pair(false, true, {}).ok());
}

TEST(explorer_recovery, a_check_that_changes_the_pool_says_when_recovery_is_over) {
  const auto run = [](bool says) {
    return CrashRunner().run(
        make_pool,
        [](CrashContext& c) {
          RawPool pool(c.path());
          c.invoke();
          publish(pool.at<std::uint64_t>(0), 1u);
          fence("word", "the end");
          c.ack();
        },
        [says](const CrashImage& image) -> std::string {
          RawPool pool(image.path());
          const std::uint64_t v = pool.at<std::uint64_t>(0);
          if (v > 1) return "an image of the check's own changes";
          if (says) image.recovered();
          publish(pool.at<std::uint64_t>(0), 2u);
          fence("change", "checked");
          publish(pool.at<std::uint64_t>(0), v);
          fence("changed back", "checked");
          return {};
        });
  };
  EXPECT_TRUE(run(true).ok());
  EXPECT_FALSE(run(false).ok());
}

TEST(explorer_recovery, a_crash_of_recovery_is_a_finding_of_its_state) {
  const CrashResult r = CrashRunner().run(
      make_pool, [](CrashContext& c) { append_all(c, Bug::none); },
      [](const CrashImage& image) -> std::string {
        const AppendLog log(image.path());
        if (log.count() == 2) {
          std::fprintf(stderr, "two entries are too many\n");
          std::raise(SIGSEGV);
        }
        return {};
      });
  ASSERT_EQ(r.findings.size(), 1u) << r.text();
  EXPECT_THAT(r.findings[0].what, HasSubstr("died: Segmentation fault"));
  EXPECT_THAT(r.findings[0].what, HasSubstr("two entries are too many"));
}

TEST(explorer_recovery, a_check_that_ends_the_process_is_a_finding) {
  const CrashResult r = CrashRunner().run(
      make_pool, [](CrashContext& c) { append_all(c, Bug::none); },
      [](const CrashImage&) -> std::string { ::_exit(0); });
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.findings[0].what, "the check ended the process");
}

TEST(explorer_recovery, a_hang_of_recovery_is_a_finding) {
  CrashOptions o;
  o.timeout = std::chrono::milliseconds(100);
  o.findings_max = 1;
  o.minimise = false;
  const CrashResult r = CrashRunner(o).run(
      make_pool, [](CrashContext& c) { append_all(c, Bug::none); },
      [](const CrashImage& image) -> std::string {
        const AppendLog log(image.path());
        volatile bool stuck = log.count() == 3;
        while (stuck) continue;
        return {};
      });
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].what, HasSubstr("hung: no answer in 100 ms"));
}

TEST(explorer_recovery, the_check_sees_the_model_as_it_was_at_the_crash) {
  std::vector<std::uint64_t> model;
  const CrashResult r = CrashRunner().run(
      make_pool,
      [&](CrashContext& c) {
        AppendLog log(c.path());
        model.clear();
        for (std::uint64_t i = 0; i < kAppends; ++i) {
          log.append(i);
          c.update([&] { model.push_back(i); });
        }
      },
      [&](const CrashImage& image) -> std::string {
        const std::uint64_t n = AppendLog(image.path()).count();
        return n == model.size() || n == model.size() + 1 ? "" : "model and log differ";
      });
  EXPECT_TRUE(r.ok()) << r.text();
}

}  // namespace
}  // namespace tenuto::test
