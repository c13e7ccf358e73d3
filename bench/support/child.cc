// Starts, watches and kills child processes; see child.h.
#include "bench/support/child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "bench/support/process.h"

namespace bench {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(2);

}  // namespace

pid_t start_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) ::signal(s, SIG_DFL);
  if (::getppid() != parent) ::_exit(1);
  const int code = body();
  std::fflush(nullptr);
  ::_exit(code);
}

bool child_runs_for(pid_t child, unsigned milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (std::chrono::steady_clock::now() < end && !interrupted()) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == child) {
      return false;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return true;
}

bool wait_child(pid_t child, unsigned seconds_max, std::string& why) {
  const bool late = child_runs_for(child, seconds_max * 1000);
  if (late) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (late)
    why = interrupted() ? "interrupted" : "took too long and was stopped";
  else if (WIFSIGNALED(status))
    why = std::string("died: ") + ::strsignal(WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0)
    why = "exit code " + std::to_string(WEXITSTATUS(status));
  else
    return true;
  return false;
}

}  // namespace bench
