// tools/tenuto: pools and records from a shell. This file finds the command (commands.cc) and has
// the exit code. The exit code is the number of the Status (tenuto/status.h); wrong usage is
// invalid_argument.
#include <algorithm>
#include <exception>
#include <new>

#include <fmt/format.h>
#include <unistd.h>

#include "commands.h"
#include "help.h"
#include "process.h"
#include "session.h"

#ifndef TENUTO_VERSION
#error "the build defines TENUTO_VERSION"
#endif

namespace tenuto::tool {
namespace {

bool in_group(std::string_view name) {
  const auto starts = [&](const Command& c) {
    return std::string_view(c.name).starts_with(std::string(name) + " ");
  };
  return std::any_of(commands().begin(), commands().end(), starts);
}

// Whether the results are asked for as JSON: so are errors then, also those of the command line.
// (The options of `crash` are other ones.)
bool wants_json(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) == "crash") return false;
  char** const end = std::find(argv, argv + argc, std::string_view("--"));
  return std::find(argv, end, std::string_view("--json")) != end;
}

std::string line_of(const Error& error, bool json) {
  return (json ? error.json() : "tenuto: " + error.text()) + "\n";
}

Error run(int argc, char** argv) {
  std::string name = argc > 1 ? argv[1] : "";
  const bool grouped = in_group(name) && argc > 2 && argv[2][0] != '-';
  if (grouped) name += " " + std::string(argv[2]);
  const int words = grouped ? 3 : 2;
  const std::string_view last = argc > 1 ? argv[argc - 1] : "";
  const bool asks_for_group = in_group(name) && !grouped && (last == "--help" || last == "-h");
  if (name == "--help" || name == "-h" || name == "help" || asks_for_group) {
    return print_line(overview(commands()));
  }
  // For the build, which installs what it writes.
  if (name == "help-files" && argc == 3) return write_help_files(commands(), argv[2]);
  if (name == "--version") return print_line("tenuto " TENUTO_VERSION);
  for (const Command& command : commands()) {
    if (name != command.name) continue;
    if (command.pass_on != nullptr) return command.pass_on(argc - words, argv + words);
    const Error stop = stopped();
    stop_at_once(line_of(stop, wants_json(argc, argv)), static_cast<int>(stop.status));
    CommandLine line(command.name, command.help, command.examples);
    const Run do_it = command.add(line);
    bool helped = false;
    TENUTO_TOOL_TRY(line.parse_words(argc - words, argv + words, helped));
    return helped ? no_error() : do_it();
  }
  const auto is_command = [](const char* word) {
    return std::any_of(commands().begin(), commands().end(),
                       [&](const Command& c) { return std::string_view(word) == c.name; });
  };
  char** const later = std::find_if(argv + std::min(argc, 2), argv + argc, is_command);
  return failed(Status::invalid_argument,
                name.empty()     ? "no command"
                : in_group(name) ? in_quotes(name) + " wants a second word"
                                 : "unknown command " + in_quotes(name),
                "",
                later != argv + argc ? fmt::format("the command comes first: tenuto {} ...", *later)
                                     : "'tenuto --help' lists the commands");
}

int report(const Error& error, bool json) {
  if (!error) return 0;
  const std::string line = line_of(error, json);
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
  return static_cast<int>(error.status);
}

}  // namespace
}  // namespace tenuto::tool

int main(int argc, char** argv) {
  using namespace tenuto;
  tool::prepare_process();
  const bool json = tool::wants_json(argc, argv);
  try {
    return tool::report(tool::run(argc, argv), json);
  } catch (const std::bad_alloc&) {
    return tool::report(tool::failed(Status::io, "out of memory"), json);
  } catch (const std::exception& error) {
    return tool::report(tool::failed(Status::io, error.what()), json);
  }
}
