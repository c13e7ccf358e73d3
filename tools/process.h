// The process's environment: descriptors, signals, terminals.
#pragma once

#include <string>
#include <vector>

namespace tenuto::tool {

// Call this before anything is opened. It opens /dev/null for closed standard descriptors.
// Otherwise a pool could get descriptor 1 and be overwritten by a message. Writes to a closed
// standard output still fail, and so do reads of a closed standard input. A closed pipe, or a file
// above the size limit, makes write() return an error.
void prepare_process();

// SIGINT, SIGTERM and SIGHUP, unless the caller ignores them (nohup).
// At once: the signal writes `line` to standard error and ends the process with `exit_code`. For a
// command as long as it changes nothing, whatever it waits for. New files have no names yet then.
void stop_at_once(const std::string& line, int exit_code);
// At a step: from this call on they ask the command to stop at the next complete step. A second
// signal ends the process. For a command that changes a pool, and must close it.
void catch_stop_signals();
bool stop_requested();

bool is_terminal(int fd);
bool is_readable(int fd);  // it is open for reading

// The other processes that have this file open, of those that /proc shows to this user.
std::vector<int> holders_of(const std::string& path);

}  // namespace tenuto::tool
