// Checks the crash tests: every mistake planted in the library (support/planted.cc) must be found,
// each in its own test case. `--table` prints them all. `--reports` prints what a
// person would read of each.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "support/planted.h"

namespace tenuto::test {
namespace {

class FindsBug : public testing::Test {
 public:
  explicit FindsBug(const Planted& bug) : bug_(bug) {}

  void TestBody() override {
    const CrashResult r = find_planted(bug_);
    ASSERT_FALSE(r.ok()) << "not found: " << bug_.what << "\n" << r.text();
    const CrashFinding& f = r.findings.front();
    EXPECT_TRUE(std::regex_search(f.text(), std::regex(bug_.symptom)))
        << "found for another reason than \"" << bug_.symptom << "\": " << f.text();
    std::printf("%s: %s: %s (%llu states, %llu checks, %.2f s)\n", f.where.c_str(),
                f.recovery.c_str(), f.what.c_str(), static_cast<unsigned long long>(r.states),
                static_cast<unsigned long long>(r.checks), r.seconds);
  }

 private:
  const Planted& bug_;
};

// --- the list is complete ------------------------------------------------------------------------

TEST(planted_list, each_plant_of_the_sources_is_listed_and_the_reverse) {
  std::map<std::string, std::string> in_sources;
  for (const PlantPlace& p : plants_in_sources(TENUTO_SOURCE_DIR)) in_sources[p.name] = p.file;
  ASSERT_GE(in_sources.size(), 45u);
  std::set<std::string> listed;
  for (const Planted& bug : planted_bugs()) {
    EXPECT_TRUE(listed.insert(bug.name).second) << bug.name << " is listed twice";
    EXPECT_TRUE(in_sources.contains(bug.name)) << bug.name << " stands nowhere in the sources";
  }
  const std::set<std::string> elsewhere = names_in_tests(TENUTO_SOURCE_DIR);
  for (const auto& [name, file] : in_sources) {
    EXPECT_TRUE(listed.contains(name) || elsewhere.contains(name))
        << name << " (" << file << ") is neither in support/planted.cc nor switched on by a test";
  }
}

TEST(planted_list, a_plant_is_named_after_the_layer_it_stands_in) {
  const std::map<std::string, std::string> folders = {
      {"src/pm", "pm|journal"}, {"src/journal", "journal"},  {"src/file", "pm|journal"},
      {"src/frame", "frame"},   {"src/heap", "heap"},        {"tx", "tx"},
      {"store", "store"},       {"tools/pmemobj", "pmemobj"}};
  for (const PlantPlace& p : plants_in_sources(TENUTO_SOURCE_DIR)) {
    const bool in_store = p.file.starts_with("store/");
    const std::string folder = in_store ? "store" : p.file.substr(0, p.file.rfind('/'));
    const std::regex style("(" + folders.at(folder) + ")(_[a-z0-9]+)+");
    EXPECT_TRUE(std::regex_match(p.name, style)) << p.name << " in " << p.file;
  }
}

TEST(planted_list, every_layer_has_its_share) {
  std::map<std::string, int> count;
  for (const Planted& bug : planted_bugs()) count[bug.layer()] += 1;
  for (const char* layer : {"pm", "frame", "heap", "tx", "store"}) {
    EXPECT_GE(count[layer], 8) << layer;
  }
}

// A finding counts only if the sound code has none. The crash tests of pm, frame, heap, tx and kv
// check that for the other scenarios.
TEST(planted_list, damage_is_an_error_or_harmless_in_the_sound_code) {
  for (const char* name : {"damaged_log", "damaged_separator", "damaged_record"}) {
    const Scenario& s = scenario(name);
    const CrashResult r = s.run(s.options);
    EXPECT_TRUE(r.ok()) << name << "\n" << r.text();
    EXPECT_GE(r.states, 50u) << name;
  }
}

void print_table() {
  std::printf("| bug | what it is | found by | states | seconds |\n|---|---|---|---|---|\n");
  double seconds = 0;
  for (const Planted& bug : planted_bugs()) {
    const CrashResult r = find_planted(bug);
    std::printf("| `%s` | %s | `%s` | %s | %.2f |\n", bug.name, bug.what, bug.scenario,
                r.ok() ? "not found" : std::to_string(r.states).c_str(), r.seconds);
    std::fflush(stdout);
    seconds += r.seconds;
  }
  std::printf("\n%zu bugs, %.0f s\n", planted_bugs().size(), seconds);
}

// The number of lines between the mistake and the nearest place that the report names in its file.
// Nothing if the report names no place there.
std::optional<long> distance(const std::string& report, const Planted& bug) {
  std::optional<long> nearest;
  for (const PlantPlace& p : plants_in_sources(TENUTO_SOURCE_DIR)) {
    if (p.name != bug.name) continue;
    std::ifstream source(std::string(TENUTO_SOURCE_DIR) + "/" + p.file);
    std::string line;
    for (long number = 1; std::getline(source, line); ++number) {
      if (line.find('"' + p.name + '"') == std::string::npos) continue;
      const std::string file = p.file.substr(p.file.rfind('/') + 1);
      const std::regex place(" " + file + ":([0-9]+)");
      for (std::sregex_iterator i(report.begin(), report.end(), place), end; i != end; ++i) {
        const long away = std::labs(std::stol((*i)[1]) - number);
        if (!nearest || away < *nearest) nearest = away;
      }
    }
  }
  return nearest;
}

// Prints what a person reads, and how near to the mistake it leads.
void print_reports() {
  std::map<std::string, int> near;
  for (const Planted& bug : planted_bugs()) {
    const CrashResult r = find_planted(bug, true);
    const std::string report = r.ok() ? "not found" : r.findings.front().text();
    const std::optional<long> away = distance(report, bug);
    const char* verdict = !away ? "another file" : *away <= 5 ? "5 lines or less" : "same file";
    ++near[verdict];
    std::printf("%s (%s): %s\n%s\n", bug.name, bug.what, verdict, report.c_str());
    std::fflush(stdout);
  }
  for (const auto& [verdict, bugs] : near) std::printf("%s: %d\n", verdict.c_str(), bugs);
}

}  // namespace
}  // namespace tenuto::test

int main(int argc, char** argv) {
  using namespace tenuto::test;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--table") == 0) {
      print_table();
      return 0;
    }
    if (std::strcmp(argv[i], "--reports") == 0) {
      print_reports();
      return 0;
    }
  }
  for (const Planted& bug : planted_bugs()) {
    testing::RegisterTest("planted", bug.name, nullptr, nullptr, __FILE__, __LINE__,
                          [&bug]() -> testing::Test* { return new FindsBug(bug); });
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
