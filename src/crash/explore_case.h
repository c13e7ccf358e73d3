// A finding on disk, and what to run again. NAME.case is text, a word and its value a line; it
// names the program with its arguments, the exploration among those of the process, the moment, and
// of every line what survived.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crash/explore_states.h"
#include "crash/explore_worker.h"
#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

struct CrashCase {
  std::vector<std::string> command;  // program and arguments; empty: point:state only
  std::uint64_t run = 0;             // 0: any
  std::uint64_t point = 0;
  std::optional<std::uint64_t> state;  // by its number; else as follows
  bool base_new = false;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> picks;  // line, variant
  CrashChain chain{};

  // From "point:state" or a file. Nothing when it is neither.
  static std::optional<CrashCase> read(const std::string& text);
  bool write(const std::string& path, const std::string& finding) const;

  CrashState state_of(const std::vector<LineChoices>& lines) const;
};

// This process's own program and arguments.
std::vector<std::string> own_command();

}  // namespace TENUTO_NS::pm
