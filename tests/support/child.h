// What a test does in a child, so that a signal, a limit or an end of the process is the child's.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

namespace tenuto::test {

// Prints the line and the condition, and ends the child with status 1, unless `what` holds.
#define MUST(what)                                            \
  do {                                                        \
    if (!(what)) {                                            \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
      std::_Exit(1);                                          \
    }                                                         \
  } while (false)

// The exit code of a child that runs `use`, or 1000 + its signal. SIGALRM ends one that hangs.
inline int in_child(const std::function<void()>& use) {
  constexpr unsigned kAlarmSeconds = 60;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(kAlarmSeconds);
    use();
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace tenuto::test
