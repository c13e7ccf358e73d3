// The command line of programs that explore their own workloads, and findings that are saved and
// replayed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/explorer_parts.h"
#include "support/pool_parts.h"

namespace tenuto::test {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<CrashTest>& log_tests() {
  static const std::vector<CrashTest> tests = {
      {"good",
       "a log",
       make_pool,
       [](CrashContext& c) { append_all(c, Bug::none); },
       check_log_file,
       {}},
      {"bad",
       "a log without a flush",
       make_pool,
       [](CrashContext& c) { append_all(c, Bug::no_flush); },
       check_log_file,
       {}},
  };
  return tests;
}

struct Outcome {
  int status;
  std::string out, err;
};

Outcome run(std::vector<std::string> words) {
  words.insert(words.begin(), "log_crash");
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = crash_main(static_cast<int>(argv.size()), argv.data(), log_tests());
  return {status, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

std::string content(const std::filesystem::path& path) {
  std::stringstream s;
  s << std::ifstream(path).rdbuf();
  return s.str();
}

class CrashMain : public testing::Test {
 protected:
  ~CrashMain() override {
    ::unsetenv("TENUTO_CRASH_REPLAY");
    std::filesystem::remove_all(folder_.str());
  }
  std::filesystem::path saved(const char* ending) const {
    for (const auto& e : std::filesystem::directory_iterator(folder_.str())) {
      if (e.path().extension() == ending) return e.path();
    }
    return {};
  }
  TempPath folder_{"crash-main"};
};

TEST_F(CrashMain, lists_runs_by_name_and_says_by_its_status_what_it_found) {
  EXPECT_THAT(run({"--list"}).out, HasSubstr("a log without a flush"));
  const Outcome good = run({"good", "--no-save"});
  EXPECT_EQ(good.status, 0) << good.out;
  EXPECT_THAT(good.out, HasSubstr("2 of 2 named fences crashed at"));
  EXPECT_THAT(good.out, Not(HasSubstr("bad")));
  const Outcome all = run({"--no-save", "--mode", "all"});
  EXPECT_EQ(all.status, 1);
  EXPECT_THAT(all.out, HasSubstr("good, mode page"));
  EXPECT_THAT(all.out, HasSubstr("a broken entry"));
}

TEST_F(CrashMain, wrong_command_lines_are_explained) {
  const Outcome unknown = run({"goood"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("no test is called goood"));
  EXPECT_EQ(run({"--mode", "fast"}).status, 2);
  const Outcome no_case = run({"--replay", "/dev/null"});
  EXPECT_EQ(no_case.status, 2);
  EXPECT_THAT(no_case.err, HasSubstr("/dev/null is no case file"));
}

TEST_F(CrashMain, a_saved_finding_is_replayed_alone_with_its_minimised_state) {
  const Outcome first = run({"bad", "--save", folder_.str()});
  ASSERT_EQ(first.status, 1);
  const auto file = saved(".case");
  EXPECT_THAT(first.out, HasSubstr("tenuto crash replay " + file.string()));
  EXPECT_THAT(content(file), HasSubstr("a broken entry"));
  const Outcome again = run({"bad", "--no-save", "--replay", file.string()});
  // A case names its exploration by a number of the process that saved it. The explorations of this
  // process have other numbers.
  EXPECT_THAT(again.out, HasSubstr("0 crash points"));
  std::string text = content(file);
  text.replace(text.find("\nrun "), text.find("\npoint") - text.find("\nrun "), "\nrun 0");
  std::ofstream(file) << text;
  const Outcome any = run({"bad", "--no-save", "--replay", file.string()});
  EXPECT_EQ(any.status, 1);
  EXPECT_THAT(any.out, HasSubstr("1 crash points, 1 states"));
  EXPECT_THAT(any.out, HasSubstr("a broken entry"));
}

TEST_F(CrashMain, the_saved_image_is_the_pool_as_the_crash_left_it) {
  ASSERT_EQ(run({"bad", "--save", folder_.str()}).status, 1);
  const std::string image = content(saved(".image"));
  ASSERT_EQ(image.size(), kPoolBytes);
  std::uint64_t count = 0;
  std::memcpy(&count, image.data(), sizeof count);
  const auto* entries = reinterpret_cast<const Entry*>(image.data() + 64);
  ASSERT_GT(count, 0u);
  bool broken = false;
  for (std::uint64_t i = 0; i < count; ++i) {
    broken |= entries[i].value != 100 + i || entries[i].copy != 100 + i;
  }
  EXPECT_TRUE(broken);
}

TEST_F(CrashMain, figures_are_written_as_json_and_mutants_that_nobody_misses_are_named) {
  const std::string json = folder_.str() + ".json";
  ASSERT_EQ(run({"good", "--no-save", "--json", json}).status, 0);
  EXPECT_THAT(content(json), HasSubstr("\"test\": \"good\""));
  std::filesystem::remove(json);
  const Outcome mutants = run({"good", "--no-save", "--mutants"});
  EXPECT_EQ(mutants.status, 0);
  EXPECT_THAT(mutants.out, Not(HasSubstr("not missed")));
}

}  // namespace
}  // namespace tenuto::test
