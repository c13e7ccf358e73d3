// What the tool tells about itself, all from one list of commands: the overview, man pages, and
// completion for shells. Options and arguments are read from the CommandLine that parses them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "commands.h"
#include "error.h"

namespace tenuto::tool {

using Commands = std::span<const Command>;

// What a shell can offer for an option's value or an argument.
enum class Offer : std::uint8_t { nothing, file, folder, choice };

struct OptionHelp {
  std::vector<std::string> names;  // "-q", "--quiet"; of an argument: "PATH"
  std::string type;                // "FILE", "auto|line"; empty: a flag, or an argument
  std::string help;
  bool required = false;
  bool many = false;  // an argument that may be repeated
  Offer offer = Offer::nothing;
  std::vector<std::string> choices = {};
};

struct CommandHelp {
  std::string name, help, examples;
  std::vector<OptionHelp> options = {};
  std::vector<OptionHelp> arguments = {};
  bool passes_on = false;  // its own --help has its options
};

struct ExitCode {
  int code;
  const char* name;
  const char* meaning;
};
extern const std::span<const ExitCode> kExitCodes;
extern const char* const kToolExamples;  // lines with two blanks before each, as Command::examples

CommandHelp help_of(const Command& command);
std::vector<CommandHelp> help_of_all(Commands commands);

std::string overview(Commands commands);

// Writes man1/*.1, bash/tenuto, zsh/_tenuto and fish/tenuto.fish into the folder, for the build.
Error write_help_files(Commands commands, const std::string& folder);

// The page of the tool (tenuto.1), and that of a command (tenuto-put.1).
std::string man_page(const std::vector<CommandHelp>& commands);
std::string man_page(const CommandHelp& command);

std::string bash_completion(const std::vector<CommandHelp>& commands);
std::string zsh_completion(const std::vector<CommandHelp>& commands);
std::string fish_completion(const std::vector<CommandHelp>& commands);

}  // namespace tenuto::tool
