// A finding on disk, to be run again. NAME.case is text, one word and its value a line. It names
// the program with its arguments, the number of the exploration in the process, the crash point,
// and what survived of every line.
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
  std::optional<std::uint64_t> state;  // by its number; without one, by base_new and picks
  bool base_new = false;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> picks;  // line (with its file), variant
  CrashChain chain{};

  // Reads "point:state" or a file. Nothing when `text` is neither.
  static std::optional<CrashCase> read(const std::string& text);
  bool write(const std::string& path, const std::string& finding) const;

  CrashState state_of(const std::vector<LineChoices>& lines) const;
};

// This process's own program and arguments.
std::vector<std::string> own_command();

}  // namespace TENUTO_NS::pm
