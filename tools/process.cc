// See process.h.
#include "process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tenuto::tool {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

void on_stop_signal(int number) { stop_signal = number; }

}  // namespace

void prepare_process() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() takes the lowest free number, which is fd. The mode makes reads of standard input and
    // writes to standard output fail. A closed input is not an empty one, and results must not be
    // lost silently.
    const int flags = fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY;
    if (open("/dev/null", flags) != fd) std::abort();
  }
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
}

bool is_readable(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_WRONLY;
}

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  // RESETHAND: the second signal has its default effect. No SA_RESTART: a waiting read returns.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

bool stop_requested() { return stop_signal != 0; }

bool is_terminal(int fd) { return isatty(fd) == 1; }

std::vector<int> holders_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<int> found;
  struct stat wanted {};
  if (stat(path.c_str(), &wanted) != 0) return found;
  std::error_code error;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
    const int pid = std::atoi(process.path().filename().c_str());
    if (pid <= 0 || pid == getpid()) continue;
    for (const fs::directory_entry& fd : fs::directory_iterator(process.path() / "fd", error)) {
      struct stat open {};
      const bool known = stat(fd.path().c_str(), &open) == 0;
      if (!known || open.st_dev != wanted.st_dev || open.st_ino != wanted.st_ino) continue;
      found.push_back(pid);
      break;
    }
  }
  return found;
}

}  // namespace tenuto::tool
