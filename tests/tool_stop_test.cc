// SIGINT, SIGTERM and SIGHUP in the middle of tools/tenuto's commands: exit code 14, no file is
// left over, and the pool is closed.
#include "tool_run.h"

#include <signal.h>
#include <sys/ioctl.h>

#include <chrono>
#include <set>
#include <thread>

#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

constexpr int kStopped = 14;
constexpr int kRecords = 30000;

class ToolStop : public ToolTest {
 protected:
  static void pause() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

  // Every second record of what was loaded is erased, so that there is something to compact.
  std::string large_pool() {
    StoreOptions options;
    options.pool.medium = Medium::cache;
    Result<Store> store = Store::open(path("a.tnt"), options);
    for (int erased = 0; erased < 2; ++erased) {
      for (int i = 0; i < kRecords; i += 1000) {
        WriteBatch batch;
        for (int k = i; k < i + 1000; ++k) {
          const std::string key = "key" + std::to_string(k);
          if (erased == 0) batch.put(key, std::string(100, 'v'));
          if (erased == 1 && k % 4 != 0) batch.erase(key);
        }
        EXPECT_EQ(store->write(batch), Status::ok);
      }
    }
    EXPECT_EQ(store->close(), Status::ok);
    return path("a.tnt");
  }
  // Not what it has inherited from the test, before it is the tool.
  static bool has_open(pid_t child, const std::string& file) {
    std::error_code error;
    const std::string of_child = "/proc/" + std::to_string(child);
    if (read_file(of_child + "/comm") != "tenuto\n") return false;
    const std::string fds = of_child + "/fd";
    for (const auto& fd : std::filesystem::directory_iterator(fds, error)) {
      if (std::filesystem::read_symlink(fd.path(), error) == file) return true;
    }
    return false;
  }
  static bool catches_signals(pid_t child) {
    const std::string status = read_file("/proc/" + std::to_string(child) + "/status");
    const std::size_t at = status.find("SigCgt:");
    if (at == std::string::npos) return false;
    return (std::stoull(status.substr(at + 7), nullptr, 16) >> (SIGTERM - 1) & 1) != 0;
  }
  // Runs it, and sends the signal as soon as it has the pool open. The process does not run from
  // then until the signal is there.
  Outcome stopped_in_the_middle(const std::vector<std::string>& args, int signal) {
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const pid_t child = start(args, in);
    close(in);
    int status = 0;
    while (!has_open(child, path("a.tnt"))) {
      siginfo_t ended{};
      if (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          ended.si_pid == child) {
        break;
      }
    }
    kill(child, SIGSTOP);
    kill(child, signal);
    kill(child, SIGCONT);
    Outcome o;
    if (waitpid(child, &status, 0) == child) o.code = exit_code(status);
    o.out = read_file(path(".out"));
    o.err = read_file(path(".err"));
    return o;
  }
  void expect_sound(const std::string& pool) {
    const Outcome clean = run({"info", pool, "--read-only"});
    EXPECT_EQ(clean.code, 0) << clean.err;
    EXPECT_EQ(run({"check", pool}).code, 0);
  }
};

TEST_F(ToolStop, long_commands_stop_with_14_and_leave_nothing_over) {
  const std::string pool = large_pool();
  const std::string saved = path("saved.tnt");
  std::filesystem::copy_file(pool, saved);
  const std::set<std::string> before = files();
  const std::vector<std::vector<std::string>> kCommands = {
      {"check", pool},
      {"check", pool, "--repair", path("new.tnt")},
      {"backup", pool, path("new.tnt")},
      {"backup", pool, path("new.tnt"), "--medium", "journal"},
      {"dump", pool, path("out.tsv")},
      {"stats", pool},
      {"compact", pool},
      {"compact", pool, "--medium", "journal"}};
  for (const auto& command : kCommands) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      SCOPED_TRACE(command[0] + " " + command.back() + ", signal " + std::to_string(signal));
      Outcome o;
      // On a busy machine it may be done before the signal is there.
      for (int i = 0; i < 50 && o.code != kStopped; ++i) {
        for (const char* made : {"new.tnt", "out.tsv"}) std::filesystem::remove(path(made));
        if (command[0] == "compact") {
          std::filesystem::copy_file(saved, pool,
                                     std::filesystem::copy_options::overwrite_existing);
        }
        o = stopped_in_the_middle(command, signal);
        ASSERT_TRUE(o.code == 0 || o.code == kStopped) << o.code << o.err;
      }
      expect_error(o, Status::aborted, "stopped by a signal");
      EXPECT_EQ(files(), before);
      expect_sound(pool);
    }
  }
  Outcome json;
  for (int i = 0; i < 50 && json.code != kStopped; ++i) {
    json = stopped_in_the_middle({"check", pool, "--json"}, SIGTERM);
  }
  EXPECT_EQ(nlohmann::json::parse(json.err)["exit_code"], kStopped) << json.err;
}

// What it waits for never comes.
TEST_F(ToolStop, a_command_that_waits_stops) {
  const std::string pool = large_pool();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const auto stop = [&](const std::vector<std::string>& args, const auto& waits) {
    SCOPED_TRACE(args[0]);
    const pid_t child = start(args, ends[0], [&] {
      if (args[0] != "put" && args[0] != "load") dup2(ends[1], STDOUT_FILENO);
    });
    while (!waits(child)) pause();
    kill(child, SIGTERM);
    EXPECT_EQ(wait(child), kStopped);
    EXPECT_NE(read_file(path(".err")).find("stopped by a signal"), std::string::npos);
  };
  // It has read what was there, and waits for more.
  const auto reads = [&](pid_t) {
    int bytes = 1;
    return ioctl(ends[0], FIONREAD, &bytes) == 0 && bytes == 0;
  };
  const auto fills = [&](pid_t) {
    int bytes = 0;
    return ioctl(ends[0], FIONREAD, &bytes) == 0 && bytes >= 65536;
  };
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"put", pool, "k", "--value-file", "-"},
        {"load", pool, "--format", "tsv"},
        {"load", path("new.tnt"), "--format", "tsv", "--create"}}) {
    ASSERT_EQ(write(ends[1], "k", 1), 1);
    stop(args, reads);
  }
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"scan", pool}, {"dump", pool, "--format", "tsv"}}) {
    stop(args, fills);
    std::string rest(65536, '\0');
    while (fills(0)) ASSERT_GT(read(ends[0], rest.data(), rest.size()), 0);
  }
  for (const int end : ends) close(end);
  EXPECT_EQ(files(), std::set<std::string>{"a.tnt"});
  expect_sound(pool);
}

TEST_F(ToolStop, a_wait_for_a_pool_in_use_stops) {
  const std::string pool = new_pool("a.tnt");
  Result<Pool> held = Pool::open(pool);
  ASSERT_TRUE(held);
  for (const char* command : {"check", "compact", "settle", "put"}) {
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    std::vector<std::string> args{command, pool, "--wait", "100"};
    if (args[0] == "put") args.insert(args.end(), {"k", "v"});
    const pid_t child = start(args, in);
    close(in);
    while (!catches_signals(child)) pause();
    kill(child, SIGTERM);
    EXPECT_EQ(wait(child), kStopped);
    EXPECT_NE(read_file(path(".err")).find("stopped by a signal"), std::string::npos);
  }
}

// A short command is done whole. A signal that the caller ignores stays ignored (nohup).
TEST_F(ToolStop, a_signal_that_is_ignored_stays_ignored) {
  const std::string pool = large_pool();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = start({"scan", pool, "--keys-only"}, ends[0], [&] {
    dup2(ends[1], STDOUT_FILENO);
    signal(SIGHUP, SIG_IGN);
  });
  close(ends[1]);
  int bytes = 0;
  while (ioctl(ends[0], FIONREAD, &bytes) == 0 && bytes < 4096) pause();
  kill(child, SIGHUP);
  std::string all(65536, '\0');
  while (read(ends[0], all.data(), all.size()) > 0) continue;
  EXPECT_EQ(wait(child), 0);
  close(ends[0]);
}

// The library's part: a compaction that is told to stop is sound and incomplete.
TEST_F(ToolStop, a_compaction_that_is_told_to_stop_goes_on_later) {
  Result<Store> store = Store::open(large_pool());
  ASSERT_TRUE(store);
  int asked = 0;
  const auto some = store->compact({.stop = [&] { return ++asked > 5; }});
  ASSERT_TRUE(some);
  EXPECT_FALSE(some->complete);
  const auto rest = store->compact();
  ASSERT_TRUE(rest);
  EXPECT_TRUE(rest->complete);
  EXPECT_GT(rest->leaves_merged, some->leaves_merged);
  EXPECT_EQ(store->validate(), Status::ok);
}

}  // namespace
}  // namespace tenuto::test
