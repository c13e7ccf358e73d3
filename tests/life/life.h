// Runs a story: a process at a time, forked, watched and, when it ended, judged.
#pragma once

#include <cstdint>
#include <string>

#include "crossings.h"
#include "story.h"

namespace tenuto::life {

struct LifeOptions {
  std::string directory = "/dev/shm";
  unsigned hang_seconds = 10;  // without a call that begins or ends
  bool stacks = true;          // of a process that hangs, told by gdb where that is installed
  bool trace = false;          // prints every call and what it came to
  std::string keep;            // a folder for the files of a life that failed; empty: none
};

struct LifeResult {
  // What went wrong, in a word or two, the same for the same failure ("hang snap_get", "wrong
  // scan", "crash 11", "open", "validate"); empty: nothing did.
  std::string kind;
  std::string text;      // for a person
  std::size_t step = 0;  // up to which the story was followed
  std::uint64_t processes = 0, calls = 0, undecided = 0;
  bool ok() const { return kind.empty(); }
};

// `crossings`: which calls met others is added there.
LifeResult run_story(const Story& story, const LifeOptions& options, Crossings* crossings);

}  // namespace tenuto::life
