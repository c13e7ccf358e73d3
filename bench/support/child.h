// Child processes of a benchmark: what is measured in one has its own memory, threads and crashes.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace bench {

// Runs `body` in a child process that dies with this one; returns its id, -1 on failure. The
// child's exit code is body's result.
pid_t start_child(const std::function<int()>& body);
// How the child ended: 0 well; else a text in `why`. Interrupted or longer than `seconds_max`:
// kills it.
bool wait_child(pid_t child, unsigned seconds_max, std::string& why);
// Sleeps that a signal or the child's end cuts short. False when the child has ended.
bool child_runs_for(pid_t child, unsigned milliseconds);

}  // namespace bench
