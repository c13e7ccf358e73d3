// Runs a story: forks one process after the other, watches it, and judges it when it has ended.
#pragma once

#include <cstdint>
#include <string>

#include "crossings.h"
#include "story.h"

namespace tenuto::life {

struct LifeOptions {
  std::string directory = "/dev/shm";
  unsigned hang_seconds = 10;  // time in which no call begins or ends
  bool stacks = true;          // of a process that hangs, printed by gdb if that is installed
  bool trace = false;          // print every call and its result
  std::string keep;            // folder for the files of a life that failed; empty: none
};

struct LifeResult {
  // What went wrong, in a word or two, the same for the same failure ("hang snap_get", "wrong
  // scan", "crash 11", "open", "validate"). Empty if nothing did.
  std::string kind;
  std::string text;      // for a person
  std::size_t step = 0;  // the step up to which the story ran
  std::uint64_t processes = 0, calls = 0, undecided = 0;
  bool ok() const { return kind.empty(); }
};

// Adds the calls that met others to `crossings`.
LifeResult run_story(const Story& story, const LifeOptions& options, Crossings* crossings);

}  // namespace tenuto::life
