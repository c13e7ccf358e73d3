#include "life.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "judge.h"
#include "process.h"

namespace tenuto::life {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kBirth = 1'700'000'000'000;  // the clock's first time, in milliseconds
constexpr int kFreed = 0x5a;
constexpr std::size_t kProcessesMax = 200;

// A folder in memory, and memory that the processes share, for one life.
struct Home {
  std::string folder;
  Shared* shared = nullptr;

  explicit Home(const std::string& directory) {
    std::string name = directory + "/tenuto-life-XXXXXX";
    folder = ::mkdtemp(name.data()) != nullptr ? name : "";
    void* const p = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    shared = p == MAP_FAILED ? nullptr : static_cast<Shared*>(p);
  }
  ~Home() {
    std::error_code ignored;
    if (!folder.empty()) fs::remove_all(folder, ignored);
    if (shared != nullptr) ::munmap(shared, sizeof(Shared));
  }
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;
};

struct Ended {
  int status = 0;
  bool hung = false;
  std::string stacks;  // of all threads of a process that hung
};

std::string stacks_of(pid_t pid) {
  const std::string command = "gdb -q -batch -p " + std::to_string(pid) +
                              " -ex 'thread apply all backtrace 20' 2>/dev/null";
  std::FILE* const out = ::popen(command.c_str(), "r");
  if (out == nullptr) return {};
  std::string text;
  for (char line[500]; std::fgets(line, sizeof line, out) != nullptr;) {
    if (line[0] == '#' || line[0] == 'T') text += line;
  }
  ::pclose(out);
  return text;
}

// Waits for the process while it makes progress.
Ended watch(pid_t pid, Shared& shared, const LifeOptions& options) {
  using clock = std::chrono::steady_clock;
  std::uint64_t progress = shared.progress.load();
  auto since = clock::now();
  auto nap = std::chrono::microseconds(200);
  for (;;) {
    Ended ended;
    const pid_t got = ::waitpid(pid, &ended.status, WNOHANG);
    if (got == pid) return ended;
    std::this_thread::sleep_for(nap);
    if (nap < std::chrono::milliseconds(5)) nap += nap / 4;
    const std::uint64_t now = shared.progress.load();
    if (now != progress) {
      progress = now;
      since = clock::now();
    } else if (clock::now() - since > std::chrono::seconds(options.hang_seconds)) {
      ended.hung = true;
      if (options.stacks) ended.stacks = stacks_of(pid);
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &ended.status, 0);
      return ended;
    }
  }
}

std::string words_in(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  const std::string all = text.str();
  return all.size() <= 6000 ? all : all.substr(0, 6000) + "\n...\n";
}

std::string calls_under_way(const Shared& shared) {
  std::string text;
  for (unsigned t = 0; t < kThreadsMax; ++t) {
    const std::uint32_t step = shared.step[t].load(), call = shared.call[t].load();
    if (step == 0 && (t != 0 || call == 0)) continue;
    text += std::string(text.empty() ? "" : ", ") +
            (call == 0 ? "nothing" : info_of(static_cast<Verb>(call - 1)).name) + " in step " +
            std::to_string(step == 0 ? 0 : step - 1) + " of thread " + std::to_string(t);
  }
  return text;
}

// The name of the first call that still runs, for the kind of a finding.
std::string call_under_way(const Shared& shared) {
  for (unsigned t = 0; t < kThreadsMax; ++t) {
    if (shared.step[t].load() == 0) continue;
    const std::uint32_t call = shared.call[t].load();
    if (call != 0) return info_of(static_cast<Verb>(call - 1)).name;
  }
  return "end";
}

[[noreturn]] void be_process(Home& home, const Story& story, std::size_t from,
                             const std::string& words) {
  const int fd = ::open(words.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  if (fd >= 0) {
    ::dup2(fd, STDERR_FILENO);
    ::close(fd);
  }
  ::mallopt(M_PERTURB, kFreed);  // shows a use of freed memory
  if (::chdir(home.folder.c_str()) != 0) ::_exit(kExitBroken);
  auto* const world = new World(*home.shared, story, home.folder);
  auto* const process = new Process(*world);
  process->live(from);
}

// The first words of a wrong result, for example "wrong get".
std::string kind_of(const std::string& why) {
  const std::size_t colon = why.starts_with("store ") ? why.find(": ") + 2 : 0;
  const std::size_t end = why.find_first_of(" (", colon);
  std::string first = why.substr(colon, end - colon);
  if (first == "the") first = "look";
  if (first == "an") first = "open";
  return "wrong " + first;
}

// Adds the end of every life: opens every store once more, looks at it, validates and closes it.
void add_end(Story& story, const Judge& judge) {
  for (unsigned s = 0; s < kStores; ++s) {
    if (!judge.made(s)) continue;
    const std::int64_t n = s;
    if (const auto copy = judge.doubtful_copy(s)) {
      // Another journal, or none, is beside the pool: it may refuse, or be as the copy was.
      story.steps.push_back({0, Verb::open, {n}});
      story.steps.push_back({0, Verb::close, {n}});
      story.steps.push_back({0, Verb::restore, {n, static_cast<std::int64_t>(*copy)}});
    }
    story.steps.push_back({0, Verb::open, {n, static_cast<std::int64_t>(judge.path(s))}});
    story.steps.push_back({0, Verb::validate, {n}});
    story.steps.push_back({0, Verb::close, {n}});
    story.steps.push_back({0, Verb::open, {n}});
    story.steps.push_back({0, Verb::close, {n}});
  }
}

void judge_process(const Ended& ended, Home& home, Judge& judge, Crossings* crossings,
                   const std::string& words, bool trace, LifeResult& r) {
  Shared& shared = *home.shared;
  std::vector<Op> ops = take_record(shared);
  r.calls += ops.size();
  if (trace) {
    std::ranges::sort(ops, {}, &Op::invoke);
    for (const Op& op : ops) std::printf("  %s\n", text_of(op).c_str());
  }
  if (crossings != nullptr) crossings->add(ops);
  const bool killed = WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == SIGKILL;
  if (ended.hung) {
    r.kind = "hang " + call_under_way(shared);
    r.text = "no call ended for long: " + calls_under_way(shared) + "\n" + ended.stacks;
  } else if (shared.failing.load() != 0) {
    const std::string text = shared.failure;
    r.kind = "broken " + text.substr(0, text.find_first_of(":0123456789"));
    r.text = text + " (" + calls_under_way(shared) + ")";
  } else if (killed && shared.kill_wanted.load() != 0) {
  } else if (WIFSIGNALED(ended.status)) {
    r.kind = "crash " + std::to_string(WTERMSIG(ended.status)) + " " + call_under_way(shared);
    r.text = "signal " + std::to_string(WTERMSIG(ended.status)) + " (" +
             strsignal(WTERMSIG(ended.status)) + ") in " + calls_under_way(shared);
  } else if (WEXITSTATUS(ended.status) != 0 || shared.ended.load() == 0) {
    r.kind = "exit " + std::to_string(WEXITSTATUS(ended.status)) + " " + call_under_way(shared);
    r.text = "exit status " + std::to_string(WEXITSTATUS(ended.status)) + " in " +
             calls_under_way(shared);
  }
  if (!r.ok()) {
    const std::string said = words_in(words);
    if (!said.empty()) r.text += "\n" + said;
    return;
  }
  r.text = judge.judge(std::move(ops));
  if (r.text.empty()) return;
  r.kind = kind_of(r.text);
  for (const char* refusal : shared.refusal) {
    if (refusal[0] != 0) r.text += std::string("\n  ") + refusal;
  }
}

}  // namespace

LifeResult run_story(const Story& given, const LifeOptions& options, Crossings* crossings) {
  LifeResult r;
  Home home(options.directory);
  if (home.folder.empty() || home.shared == nullptr) {
    r.kind = "no place";
    r.text = "no folder or memory for a life: " + std::string(std::strerror(errno));
    return r;
  }
  Shared& shared = *home.shared;
  shared.clock_ms.store(kBirth);
  shared.ticket.store(1);
  Story story = given;
  Judge judge(story);
  bool ending = false;
  const std::string words = home.folder + "/words.txt";
  while (r.ok() && r.processes < kProcessesMax) {
    if (shared.next_step.load() >= story.steps.size()) {
      if (ending) break;
      ending = true;
      add_end(story, judge);
    }
    shared.kill_wanted.store(0);
    shared.ended.store(0);
    for (auto& step : shared.step) step.store(0);
    for (auto& call : shared.call) call.store(0);
    for (auto& refusal : shared.refusal) refusal[0] = 0;
    const std::size_t from = shared.next_step.load();
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) be_process(home, story, from, words);
    if (pid < 0) break;
    ++r.processes;
    const Ended ended = watch(pid, shared, options);
    judge_process(ended, home, judge, crossings, words, options.trace, r);
    r.step = shared.next_step.load();
  }
  r.undecided = judge.undecided();
  shared.over.store(1);
  if (!r.ok() && !options.keep.empty()) {
    std::error_code ignored;
    fs::copy(home.folder, options.keep, fs::copy_options::recursive, ignored);
  }
  return r;
}

}  // namespace tenuto::life
