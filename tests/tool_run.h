// Runs the real tools/tenuto as a shell does, for the tool's tests: arguments, standard input, exit
// code and output. TENUTO_TOOL is the program's path, set by the build.
#pragma once

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/seed.h"
#include "tenuto/kv.h"

namespace tenuto::test {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct Outcome {
  int code = -1;  // 1000 + n if signal n ended the program
  std::string out;
  std::string err;
};

inline int exit_code(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1000 + WTERMSIG(wait_status);
}

// Each test has its own folder, which is removed afterwards.
class ToolTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "tenuto-tool-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // The files of the folder, except those of the runner.
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path(""))) {
      const std::string name = entry.path().filename();
      if (name != ".in" && name != ".out" && name != ".err") names.insert(name);
    }
    return names;
  }

  using Setup = std::function<void()>;  // runs in the child, after its descriptors are set up

  Outcome run(const std::vector<std::string>& args, std::string_view input = {},
              const Setup& setup = {}) {
    write_file(path(".in"), input);
    const int in = open(path(".in").c_str(), O_RDONLY | O_CLOEXEC);
    Outcome outcome;
    outcome.code = wait(start(args, in, setup));
    close(in);
    outcome.out = read_file(path(".out"));
    outcome.err = read_file(path(".err"));
    return outcome;
  }

  // Starts the tool and returns at once.
  pid_t start(const std::vector<std::string>& args, int in, const Setup& setup = {}) {
    std::vector<std::string> words = args;
    words.insert(words.begin(), TENUTO_TOOL);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int out = open(path(".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int err = open(path(".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const pid_t child = fork();
    if (child == 0) {
      dup2(in, STDIN_FILENO);
      dup2(out, STDOUT_FILENO);
      dup2(err, STDERR_FILENO);
      if (setup) setup();
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out);
    close(err);
    return child;
  }

  static int wait(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return exit_code(status);
  }

  // Makes a small, empty pool. Returns its path.
  std::string new_pool(const std::string& name, const std::vector<std::string>& options = {}) {
    std::vector<std::string> args = {"create", path(name), "--size", "8M"};
    args.insert(args.end(), options.begin(), options.end());
    const Outcome made = run(args);
    EXPECT_EQ(made.code, 0) << made.err;
    return path(name);
  }

  // Expects one JSON object on standard output, and nothing else there.
  nlohmann::json run_json(std::vector<std::string> args, int code = 0,
                          std::string_view input = {}) {
    args.push_back("--json");
    const Outcome o = run(args, input);
    EXPECT_EQ(o.code, code) << o.err;
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << o.out;
    return nlohmann::json::parse(o.out, nullptr, false);
  }

  // Expects one line on standard error with these words, and an empty standard output.
  static void expect_error(const Outcome& o, Status status, const std::string& words) {
    EXPECT_EQ(o.code, static_cast<int>(status)) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_EQ(o.err.rfind("tenuto: ", 0), 0u) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_NE(o.err.find(words), std::string::npos) << o.err;
  }

  // Options for medium journal.
  static StoreOptions journalled() {
    StoreOptions options;
    options.pool.size = kPoolBytesMin;
    options.pool.medium = Medium::journal;
    options.pool.journal.bytes = 256u << 10;
    return options;
  }
  // Puts a record, makes the pool if it is missing, and leaves it as a killed process does.
  static void write_and_die(const std::string& pool, const std::string& key,
                            const std::string& value, const StoreOptions& options = {}) {
    const pid_t child = fork();
    if (child == 0) {
      Result<Store> store = Store::open(pool, options);
      _exit(store && store->put(key, value) == Status::ok ? 0 : 1);
    }
    ASSERT_EQ(wait(child), 0);
  }

  void put(const std::string& pool, const std::string& key, const std::string& value) {
    const Outcome o = run({"put", pool, "--", key, value});
    ASSERT_EQ(o.code, 0) << o.err;
  }

 private:
  std::string folder_;
};

}  // namespace tenuto::test
