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

char last_line[256];
std::size_t last_line_bytes = 0;
int last_exit_code = 0;

// Only what a handler may call.
void end_at_once(int /*number*/) {
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, last_line, last_line_bytes);
  _exit(last_exit_code);
}

void handle_stop_signals(void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction old {};
    if (sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;
    sigaction(number, &action, nullptr);
  }
}

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

void stop_at_once(const std::string& line, int exit_code) {
  last_line_bytes = line.copy(last_line, sizeof last_line);
  last_exit_code = exit_code;
  handle_stop_signals(end_at_once, 0);
}

// RESETHAND: the second signal has its default effect. No SA_RESTART: a waiting read returns.
void catch_stop_signals() { handle_stop_signals(on_stop_signal, static_cast<int>(SA_RESETHAND)); }

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
