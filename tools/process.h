// What the process agrees on with its surroundings: descriptors, signals, terminals.
#pragma once

namespace tenuto::tool {

// Before anything is opened. Closed standard descriptors are taken by /dev/null, so that no pool
// ever gets number 1 and is written over by a message; a write to a closed standard output still
// fails, and so does a read of a closed standard input. A closed pipe and a file above the size
// limit become errors of write().
void prepare_process();

// From now on SIGINT, SIGTERM and SIGHUP ask long commands to stop at the next whole step; a second
// one ends the process at once.
void catch_stop_signals();
bool stop_requested();

bool is_terminal(int fd);
bool is_readable(int fd);  // it was opened for that

}  // namespace tenuto::tool
