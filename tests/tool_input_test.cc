// tools/tenuto with inputs that never end, never begin, or are missing: it reports that in bounded
// time and memory. Also inputs that are too much for the disk, and names that are not text: they
// stay distinct.
#include "tool_run.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "pm/sanitizer.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"

using namespace std::string_literals;

namespace tenuto::test {
namespace {

using nlohmann::json;

class ToolInput : public ToolTest {
 protected:
  static constexpr int kHangs = 2000;  // returned instead of an exit code

  // As run(), but ends a command that takes longer than 20 s.
  Outcome run_bounded(const std::vector<std::string>& args, const std::string& input = "/dev/null",
                      const Setup& setup = {}) {
    const int in = open(input.c_str(), O_RDONLY | O_CLOEXEC);
    const pid_t child = start(args, in, setup);
    close(in);
    Outcome o;
    o.code = kHangs;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    int status = 0;
    while (o.code == kHangs && std::chrono::steady_clock::now() < deadline) {
      if (waitpid(child, &status, WNOHANG) == child) o.code = exit_code(status);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (o.code == kHangs) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
    }
    o.out = read_file(path(".out"));
    o.err = read_file(path(".err"));
    return o;
  }
  std::string fifo(const std::string& name) {
    EXPECT_EQ(mkfifo(path(name).c_str(), 0600), 0);
    return path(name);
  }
};

TEST_F(ToolInput, a_value_that_never_ends_is_too_large) {
  const std::string pool = new_pool("a.tnt");
  const auto little_memory = [] {
  // Limits memory that is written to, since a pool reserves address space for its growth. That
  // would include the shadow of AddressSanitizer, so there only the time is bounded.
#if !TENUTO_ASAN
    const rlimit limit = {256u << 20, 256u << 20};
    setrlimit(RLIMIT_DATA, &limit);
#endif
  };
  const std::vector<std::string> put = {"put", pool, "k", "--value-file", "-", "--max-value", "8M"};
  expect_error(run_bounded(put, "/dev/zero", little_memory), Status::too_large, "--max-value");
  std::vector<std::string> from_file = put;
  from_file[4] = "/dev/zero";
  expect_error(run_bounded(from_file, "/dev/null", little_memory), Status::too_large, "/dev/zero");
  // The length of a file is known before it is read.
  write_file(path("long"), "");
  std::filesystem::resize_file(path("long"), 1ull << 40);
  expect_error(
      run_bounded({"put", pool, "k", "--value-file", path("long")}, "/dev/null", little_memory),
      Status::too_large, "long");
  EXPECT_EQ(run({"get", pool, "k"}).code, 1);
  write_file(path("fits"), std::string(8u << 20, 'f'));
  from_file[4] = path("fits");
  EXPECT_EQ(run_bounded(from_file).code, 0);
  EXPECT_TRUE(run({"get", pool, "k"}).out == read_file(path("fits")));
  write_file(path("fits"), std::string((8u << 20) + 1, 'f'));
  expect_error(run_bounded(from_file), Status::too_large, "8 MiB");
}

TEST_F(ToolInput, a_pipe_is_no_pool_and_is_not_waited_for) {
  const std::string pipe = fifo("pipe");
  write_file(path("in.tsv"), "k\tv\n");
  const std::vector<std::vector<std::string>> kCommands = {
      {"info", pipe},
      {"check", pipe},
      {"check", pipe, "--repair", path("new.tnt")},
      {"stats", pipe, "--read-only"},
      {"get", pipe, "k"},
      {"put", pipe, "k", "v"},
      {"dump", pipe, path("out.tsv")},
      {"load", pipe, path("in.tsv")},
      {"load", pipe, path("in.tsv"), "--create"},
      {"collections", pipe},
      {"compact", pipe},
      {"gc", pipe},
      {"settle", pipe},
      {"backup", pipe, path("new.tnt")},
      {"create", pipe, "--force"},
  };
  for (const auto& command : kCommands) {
    SCOPED_TRACE(command[0]);
    expect_error(run_bounded(command), Status::not_a_pool, "pipe");
  }
  struct stat st {};
  EXPECT_TRUE(stat(pipe.c_str(), &st) == 0 && S_ISFIFO(st.st_mode));
  EXPECT_FALSE(std::filesystem::exists(path("new.tnt")));
}

TEST_F(ToolInput, a_pipe_is_no_journal_and_is_not_waited_for) {
  const std::string pool = new_pool("a.tnt");
  fifo("a.tnt.journal");
  const Outcome o = run_bounded({"put", pool, "k", "v", "--medium", "journal"});
  EXPECT_NE(o.code, kHangs);
  EXPECT_NE(o.code, 0);
  EXPECT_NE(o.err.find("a.tnt.journal"), std::string::npos) << o.err;
  const std::vector<std::string> repair = {"check",       pool,        "--repair",
                                           path("n.tnt"), "--journal", path("a.tnt.journal")};
  EXPECT_NE(run_bounded(repair).code, kHangs);
}

TEST_F(ToolInput, a_closed_standard_input_is_an_error_and_not_an_empty_one) {
  const std::string pool = new_pool("a.tnt");
  const auto closed = [] { close(STDIN_FILENO); };
  expect_error(run({"load", pool, "--format", "tsv"}, {}, closed), Status::io, "standard input");
  expect_error(run({"load", pool, "-", "--format", "jsonl"}, {}, closed), Status::io,
               "standard input");
  expect_error(run({"put", pool, "k", "--value-file", "-"}, {}, closed), Status::io,
               "standard input");
  EXPECT_EQ(run({"get", pool, "k"}).code, 1) << "no value was put";
  expect_error(run({"load", path("new.tnt"), "--format", "tsv", "--create"}, {}, closed),
               Status::io, "standard input");
  EXPECT_FALSE(std::filesystem::exists(path("new.tnt")));
  // A command that does not read standard input does not need it.
  EXPECT_EQ(run({"put", pool, "k", "v"}, {}, closed).code, 0);
  EXPECT_EQ(run({"load", pool, "--format", "tsv"}).code, 0) << "an empty one is a good one";
}

TEST_F(ToolInput, names_that_are_not_text_stay_apart_in_json) {
  const std::string pool = new_pool("a.tnt");
  const std::vector<std::string> names = {"\xff", "\xfe", "\xef\xbf\xbd", "plain"};
  for (const std::string& name : names) {
    EXPECT_EQ(run({"collections", pool, "--make", name}).code, 0);
    EXPECT_EQ(run({"put", pool, "--collection", name, "k", name}).code, 0);
  }
  const Outcome o = run({"collections", pool, "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::set<std::string> seen;
  const json all = json::parse(o.out);
  for (const json& c : all["collections"]) {
    EXPECT_NE(c.contains("name"), c.contains("name_base64")) << c;
    seen.insert(c.contains("name") ? "name " + c["name"].get<std::string>()
                                   : "base64 " + c["name_base64"].get<std::string>());
  }
  EXPECT_EQ(seen, (std::set<std::string>{"name plain", "name \xef\xbf\xbd",
                                         "base64 /w==", "base64 /g=="}));
  // The paths of pools stay distinct, too.
  std::set<std::string> paths;
  for (const char* name : {"\xff", "\xfe"}) {
    const Outcome info = run({"info", new_pool(name), "--json"});
    ASSERT_EQ(info.code, 0) << info.err;
    const json object = json::parse(info.out);
    EXPECT_FALSE(object.contains("path"));
    paths.insert(object.value("path_base64", "none"));
  }
  EXPECT_EQ(paths.size(), 2u);
}

TEST_F(ToolInput, a_load_on_a_full_disk_says_once_that_the_pool_cannot_grow) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += std::to_string(i) + "\t" + std::string(8000, 'x') + "\n";
  const auto full_disk = [] {
    const rlimit limit = {8u << 20, 8u << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  const Outcome none = run({"create", path("b.tnt"), "--size", "16M"}, {}, full_disk);
  expect_error(none, Status::full, "or give a smaller --size");
  EXPECT_EQ(none.err.find("delete records"), std::string::npos) << none.err;
  const Outcome o = run(
      {"load", path("a.tnt"), "--create", "--size", "8M", "--format", "tsv", "--medium", "cache"},
      lines, full_disk);
  EXPECT_EQ(o.code, static_cast<int>(Status::full)) << o.err;
  const std::size_t first = o.err.find("cannot grow");
  ASSERT_NE(first, std::string::npos) << o.err;
  EXPECT_EQ(o.err.find("cannot grow", first + 1), std::string::npos) << o.err;
}

TEST_F(ToolInput, a_line_without_end_is_refused_at_the_limit) {
  const std::string pool = new_pool("a.tnt");
  for (const std::vector<std::string>& format : {std::vector<std::string>{"tsv"},
                                                 {"jsonl"},
                                                 {"csv", "--key-field", "a"},
                                                 {"json", "--key-field", "a"}}) {
    std::vector<std::string> args{"load", pool, "--max-line", "1M", "--format"};
    args.insert(args.end(), format.begin(), format.end());
    const Outcome o = run_bounded(args, "/dev/zero");
    EXPECT_EQ(o.code, 2) << format[0] << o.err;
    EXPECT_NE(o.err.find("--max-line"), std::string::npos) << o.err;
  }
}

// The records have line ends, and each line is short.
TEST_F(ToolInput, a_record_without_end_is_refused_at_the_limit) {
  const std::string pool = new_pool("a.tnt");
  struct Case {
    const char* format;
    const char* begin;  // of an input that goes on with "x" lines
    const char* line;   // where the record began
  };
  for (const Case& c : {Case{"csv", "a,b\n1,2\n3,\"open\n", "line 3, column 1"},
                        {"csv", "a,\"header\n", "line 1, column 1"},
                        {"json", "{\"a\":\"1\"}\n {\"a\":\n", "line 2, column 2"},
                        {"json", "[{\"a\":\"1\"},\n{\"a\":\"open\n", "line 2, column 1"}}) {
    for (const bool create : {false, true}) {
      SCOPED_TRACE(c.begin);
      const std::string pipe = fifo("pipe");
      const int both = open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
      std::thread writer([&] {
        const std::string lines = c.begin + std::string("x\n");
        std::string more;
        for (int i = 0; i < 1000; ++i) more += "x\n";
        [[maybe_unused]] ssize_t n = write(both, lines.data(), lines.size());
        while (std::filesystem::exists(pipe)) {
          n = write(both, more.data(), more.size());
          if (n < 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
      std::vector<std::string> args{"load",        create ? path("new.tnt") : pool,
                                    "--max-line",  "1M",
                                    "--format",    c.format,
                                    "--key-field", "a"};
      if (create) args.emplace_back("--create");
      const Outcome o = run_bounded(args, pipe);
      std::filesystem::remove(pipe);
      writer.join();
      close(both);
      expect_error(o, Status::invalid_argument, "longer than 1 MiB (--max-line)");
      EXPECT_NE(o.err.find(std::string("standard input, ") + c.line), std::string::npos) << o.err;
      std::filesystem::remove(path("new.tnt"));
    }
  }
}

TEST_F(ToolInput, the_records_behind_one_that_is_too_long_are_loaded) {
  const std::string pool = new_pool("a.tnt");
  std::string open;
  for (int i = 0; i < 3000; ++i) open += "x\n";
  const std::string csv = "a,b\n1,\"" + open + "\"\n2,x\n";
  const std::string objects = "[{\"a\":\"1\",\"b\":[\"{" + open + "\"]},\n{\"a\":\"3\"}]";
  for (const auto& [format, text] : {std::pair("csv", csv), std::pair("json", objects)}) {
    std::vector<std::string> args{"load", pool,       "--key-field", "a",         "--max-line",
                                  "4K",   "--format", format,        "--skip-bad"};
    const Outcome o = run(args, text);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find("longer than 4 KiB"), std::string::npos) << o.err;
    args.pop_back();
    EXPECT_EQ(run(args, text).code, 2);
  }
  EXPECT_EQ(run({"get", pool, "1"}).code, 1);
  EXPECT_EQ(run({"get", pool, "2"}).out, "{\"a\":\"2\",\"b\":\"x\"}");
  EXPECT_EQ(run({"get", pool, "3"}).out, "{\"a\":\"3\"}");
}

// The name is not UTF-8, so JSON has it in base 64.
TEST_F(ToolInput, records_come_back_into_a_collection_whose_name_is_no_text) {
  const std::string pool = new_pool("a.tnt");
  const std::string name = "\xffn";
  ASSERT_EQ(run({"collections", pool, "--make", name}).code, 0);
  ASSERT_EQ(run({"put", pool, "k", "default"}).code, 0);
  ASSERT_EQ(run({"put", pool, "k", "other", "--collection", name}).code, 0);
  for (const std::string format : {"tsv", "jsonl"}) {
    SCOPED_TRACE(format);
    const std::string file = path("dump." + format);
    const std::string copy = path("copy-" + format + ".tnt");
    ASSERT_EQ(run({"dump", pool, file}).code, 0);
    const Outcome o = run({"load", copy, file, "--create"});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(run({"get", copy, "k"}).out, "default");
    EXPECT_EQ(run({"get", copy, "k", "--collection", name}).out, "other");
  }
}

// Else the records behind it would go into the collection before it.
TEST_F(ToolInput, a_damaged_line_of_a_collection_is_never_skipped) {
  const std::string pool = new_pool("a.tnt");
  const std::string first = R"({"key":"k","value":"default"})";
  const std::string last = R"({"key":"k","value":"other"})";
  for (const std::string& line :
       {R"({"collection":"n","frm":"bytes"})"s, R"({"collection":"n"})"s,
        R"({"collection_base64":"/24","form":"bytes"})"s, R"({"collections":"n"})"s}) {
    const Outcome o = run({"load", pool, "--format", "jsonl", "--skip-bad"},
                          first + "\n" + line + "\n" + last + "\n");
    expect_error(o, Status::invalid_argument, "names no collection");
    EXPECT_NE(o.err.find("line 2"), std::string::npos) << o.err;
    EXPECT_EQ(run({"get", pool, "k"}).out, "default");
  }
  const Outcome o = run({"load", pool, "--format", "tsv", "--skip-bad"},
                        "k\tdefault\n#collection bytes n\nk\tother\n");
  expect_error(o, Status::invalid_argument, "names no collection");
  EXPECT_EQ(run({"get", pool, "k"}).out, "default");
}

}  // namespace
}  // namespace tenuto::test
