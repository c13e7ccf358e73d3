// kv_bench's tables of markdown, and which rounds are played for them.
#include "bench/kv/table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/kv/point.h"
#include "bench/support/process.h"

namespace bench {
namespace {

// A point on which two engines had these speeds in A, round by round; only the first one was
// opened.
Played made(unsigned threads, std::vector<double> mine, std::vector<double> theirs) {
  Played p;
  p.setting.threads = threads;
  p.setting.records = 10;
  p.figures.contestants = {{find_engine("tenuto"), "line", "tenuto/line"},
                           {find_engine("null"), "", "null"}};
  p.figures.cases = {Workload::a, Workload::open};
  p.figures.figures[{0, Workload::a}].ops_per_second = std::move(mine);
  p.figures.figures[{1, Workload::a}].ops_per_second = std::move(theirs);
  p.figures.figures[{0, Workload::open}].open_ms = {4, 1, 2};
  return p;
}

const Table kSpeeds{"Speeds", {{"", {Workload::a, Workload::b}, speed_cell}}};

TEST(Table, has_a_row_for_each_figure_and_a_column_for_each_engine) {
  EXPECT_EQ(table_text(kSpeeds, {made(1, {2000, 1000, 4000}, {500, 500, 500})}),
            "Speeds:\n\n"
            "| | tenuto/line | null |\n"
            "|---|---|---|\n"
            "| a | 2.00 (1.00..4.00) | 0.500 |\n\n");
}

TEST(Table, names_in_each_row_what_its_points_do_not_share) {
  const std::string text = table_text(kSpeeds, {made(1, {1000}, {500}), made(2, {3000}, {700})});
  EXPECT_NE(text.find("| a, 1 thread | 1.00 | 0.500 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| a, 2 threads | 3.00 | 0.700 |"), std::string::npos) << text;
}

TEST(Table, leaves_out_what_nobody_measured) {
  const Table opens{"Opens",
                    {{"open", {Workload::open}, open_cell},
                     {"after SIGKILL", {Workload::open}, open_killed_cell}}};
  EXPECT_EQ(table_text(opens, {made(1, {1}, {1})}),
            "Opens:\n\n| | tenuto/line |\n|---|---|\n| open | 2.00 (1.00..4.00) |\n\n")
      << "columns and rows without a figure";
  EXPECT_EQ(table_text({"Killed", {{"", {Workload::open}, open_killed_cell}}}, {made(1, {1}, {1})}),
            "");
}

TEST(Table, has_percentiles_of_one_kind_and_bytes_of_a_record) {
  Played p = made(1, {1}, {1});
  CaseFigures& f = p.figures.figures[{0, Workload::a}];
  f.ops = 10;
  f.memory_bytes = {400};
  for (int i = 0; i < 100; ++i) f.by_kind[static_cast<std::size_t>(OpKind::update)].record(1);
  const std::string one = short_number(microseconds(1));
  const Table table{"T",
                    {{"gets", {Workload::a}, reads_cell},
                     {"updates", {Workload::a}, updates_cell},
                     {"memory", {Workload::a}, memory_cell}}};
  const std::string text = table_text(table, {p});
  EXPECT_EQ(text.find("gets"), std::string::npos) << text;
  EXPECT_NE(text.find("| updates | " + one + " / " + one + " / " + one + " / " + one + " |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| memory | 40.0 |"), std::string::npos) << text;
}

TEST(Table, has_ratios_of_rounds_that_pair_up) {
  const Table ratios{"Ratios", {{"", {Workload::a}, ratio_cell}}};
  const std::string text = table_text(ratios, {made(1, {2, 9, 4}, {1, 3, 4})});
  EXPECT_NE(text.find("| a | 2.00 (1.00..3.00) |"), std::string::npos) << text;
  EXPECT_EQ(table_text(ratios, {made(1, {2, 9}, {1})}), "");
}

TEST(Table, states_data_and_machine) {
  const std::string text = setting_text({made(1, {1}, {1}), made(2, {1}, {1})});
  const std::vector<std::string> parts = {"10 records of",
                                          "threads: 1, 2;",
                                          processor_name(),
                                          "pages of ",
                                          "large pages: ",
                                          "commit ",
                                          "`tenuto/line`: medium line"};
  for (const std::string& words : parts) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " in " << text;
  }
}

// Rounds that `null` was given.
std::size_t rounds_of(const Point& point) {
  Scratch scratch;
  EXPECT_TRUE(scratch.create(testing::TempDir(), "kv-table-test"));
  ContestFigures figures;
  play_point(point, setting_of(point, scratch.path()), scratch, figures);
  const CaseFigures* f = figures.find(0, point.workloads.front());
  return f == nullptr ? 0 : f->file_bytes.size();
}

Point point_of(const char* engine, Workload w) {
  Point p;
  p.contestants = {{find_engine(engine), "", engine}};
  p.workloads = {w};
  p.records = 100;
  p.rounds = 3;
  return p;
}

TEST(Rounds, end_early_when_their_time_is_over) {
  Point p = point_of("null", Workload::load);
  EXPECT_EQ(rounds_of(p), 3u);
  p.seconds_max = 1e-9;
  EXPECT_EQ(rounds_of(p), 1u);
}

TEST(Rounds, of_an_opening_are_counted_apart) {
  Point p = point_of("null", Workload::open);
  p.kill_after_ms = 1;
  p.opens = 2;
  EXPECT_EQ(rounds_of(p), 2u);
}

TEST(Rounds, that_open_again_or_sync_are_not_for_maps_that_keep_nothing) {
  EXPECT_EQ(rounds_of(point_of("volatile-map", Workload::load)), 3u);
  EXPECT_EQ(rounds_of(point_of("volatile-map", Workload::open)), 0u);
  EXPECT_EQ(rounds_of(point_of("volatile-map", Workload::sync_insert)), 0u);
}

}  // namespace
}  // namespace bench
