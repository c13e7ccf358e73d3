// The list of the tool's commands.
#pragma once

#include <functional>
#include <span>

#include "command_line.h"
#include "error.h"

namespace tenuto::tool {

using Run = std::function<Error()>;

// A name of two words is a command of a group.
struct Command {
  const char* name;
  const char* help;
  const char* examples;
  Run (*add)(CommandLine& line);
  Error (*pass_on)(int argc, char** argv) = nullptr;  // used instead of add: forwards the words
};

std::span<const Command> commands();

}  // namespace tenuto::tool
