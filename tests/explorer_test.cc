// The crash explorer on a log with known bugs: what it must find, what it must not find, and how it
// reports a finding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/explorer_parts.h"

namespace tenuto::test {
namespace {

using testing::HasSubstr;

TEST(explorer_log, correct_append_log_survives_every_crash) {
  const CrashResult r = explore_log(Bug::none);
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_EQ(r.points, kAppends * 3 + 1);
  EXPECT_THAT(r.unexplored(), testing::IsEmpty());
  EXPECT_TRUE(r.explored("log entry", "log count"));
  EXPECT_TRUE(r.explored("log count", "append returns"));
}

struct BugCase {
  Bug bug;
  const char* what;
};

class explorer_bugs : public testing::TestWithParam<BugCase> {};

TEST_P(explorer_bugs, are_found) {
  const CrashResult r = explore_log(GetParam().bug);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].what, HasSubstr(GetParam().what)) << r.text();
  EXPECT_EQ(r.findings[0].lost.size(), 1u) << "one line is the culprit\n" << r.text();
}

INSTANTIATE_TEST_SUITE_P(all, explorer_bugs,
                         testing::Values(BugCase{Bug::no_flush, "a broken entry"},
                                         BugCase{Bug::no_fence, "a broken entry"},
                                         BugCase{Bug::count_first, "a broken entry"},
                                         BugCase{Bug::no_last_fence,
                                                 "an acknowledged entry is lost"}));

TEST(explorer_log, a_two_word_value_tears) {
  const CrashResult r = CrashRunner().run(
      make_pool, [](CrashContext& c) { append_all(c, Bug::torn_entry); },
      [](const CrashImage& image) -> std::string {
        const AppendLog log(image.path());
        for (std::uint64_t i = 0; i < kAppends; ++i) {
          if (log.entry(i).value != log.entry(i).copy) return "torn";
        }
        return {};
      });
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.findings[0].what, "torn");
}

TEST(explorer_log, a_finding_names_the_fence_and_the_place_of_the_lost_store) {
  const CrashResult r = explore_log(Bug::no_flush);
  ASSERT_FALSE(r.ok());
  const std::string text = r.text();
  EXPECT_THAT(text, HasSubstr("crash before fence(\"log count\", \"append returns\")"));
  EXPECT_THAT(text, HasSubstr("stores to the line at 0x40, ")) << "and of no file, as there is one";
  EXPECT_THAT(text, HasSubstr("append explorer_parts.h:")) << "the place of the store";
  EXPECT_THAT(text, HasSubstr("TENUTO_CRASH_REPLAY="));
}

TEST(explorer_log, a_finding_is_replayed_alone) {
  const CrashResult r = explore_log(Bug::no_flush);
  ASSERT_FALSE(r.ok());
  const CrashFinding& f = r.findings[0];
  const std::string place = std::to_string(f.point) + ":" + std::to_string(f.state);
  ::setenv("TENUTO_CRASH_REPLAY", place.c_str(), 1);
  const CrashResult again = explore_log(Bug::no_flush);
  ::unsetenv("TENUTO_CRASH_REPLAY");
  ASSERT_EQ(again.findings.size(), 1u);
  EXPECT_EQ(again.findings[0].what, f.what);
  EXPECT_EQ(again.unique, 1u);
}

TEST(explorer_log, dropped_flushes_and_fences_are_all_found_by_name) {
  const auto report = CrashRunner().mutants(
      make_pool, [](CrashContext& c) { append_all(c, Bug::none); }, check_log_file);
  EXPECT_EQ(report.mutants.size(), 4u);  // two fences, one flush each
  EXPECT_THAT(report.survivors(), testing::IsEmpty()) << report.text();
}

TEST(explorer_log, no_mutant_is_tried_where_the_sound_code_fails) {
  const auto report = CrashRunner().mutants(
      make_pool, [](CrashContext& c) { append_all(c, Bug::no_fence); }, check_log_file);
  EXPECT_EQ(report.mutants.size(), 0u);
  EXPECT_THAT(report.survivors(), testing::ElementsAre(HasSubstr("the sound code: crash")));
}

TEST(explorer_log, a_needless_fence_is_a_mutant_that_survives) {
  const auto report = CrashRunner().mutants(
      make_pool,
      [](CrashContext& c) {
        append_all(c, Bug::none);
        fence("nothing", "nothing");
      },
      check_log_file);
  EXPECT_THAT(report.survivors(), testing::ElementsAre("without fence(\"nothing\", \"nothing\")"));
}

TEST(explorer_log, a_planted_bug_is_found_and_counted) {
  CrashOptions o;
  o.plants = {"append without flush"};
  const CrashResult r = explore_log(Bug::none, o);
  EXPECT_FALSE(r.ok());
  EXPECT_TRUE(explore_log(Bug::none).ok()) << "the plant is off again";
}

TEST(explorer_log, the_same_seed_gives_the_same_run) {
  const auto run = [](std::uint64_t seed) {
    CrashOptions o;
    o.seed = seed;
    o.product_max = 10;
    o.samples_max = 20;
    CrashResult r = explore_log(Bug::no_fence, o);
    r.seconds = 0;
    return r.text();
  };
  EXPECT_EQ(run(7), run(7));
}

}  // namespace
}  // namespace tenuto::test
