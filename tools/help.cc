// See help.h.
#include "help.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace tenuto::tool {
namespace {

namespace fs = std::filesystem;

constexpr ExitCode kCodes[] = {
    {0, "ok", "Success."},
    {1, "not found", "A key, collection or file is not there."},
    {2, "wrong usage or input", "The command line, or a line of the input, is wrong."},
    {3, "exists", "What should be made is there already."},
    {4, "full", "The pool or its file system has no room."},
    {5, "too large", "A key, a value or a size is above its limit."},
    {6, "busy", "Another process has the pool open."},
    {7, "permission", "The operating system refused access."},
    {8, "io", "A system call failed; also a closed pipe."},
    {9, "corrupt", "The pool is damaged, or a rescue lost records."},
    {10, "not a pool", "The file is something else."},
    {11, "wrong version", "This version does not read the layout of the pool."},
    {12, "read only", "A write to a pool that is opened to read."},
    {14, "stopped", "A signal ended the command."},
    {18, "in doubt", "The pool waits for the decision of another; see settle."},
};

// What a value is follows from the name that the help shows for it.
void set_offer(OptionHelp& help, const std::string& type) {
  if (type == "PATH" || type == "FILE" || type == "NEWPOOL" || type == "FILE.case") {
    help.offer = Offer::file;
  } else if (type == "DIR") {
    help.offer = Offer::folder;
  } else if (type.find('|') != std::string::npos) {
    help.offer = Offer::choice;
    help.choices = CLI::detail::split(type, '|');
  }
}

OptionHelp help_of(const CLI::Option& option) {
  OptionHelp help;
  help.help = option.get_description();
  help.required = option.get_required();
  if (option.get_positional()) {
    help.names = {option.get_name(true)};
    help.many = option.get_type_name() == "...";
    set_offer(help, help.names[0]);
    return help;
  }
  for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) help.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) help.type = option.get_type_name();
  set_offer(help, help.type);
  return help;
}

Error write_file(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) return failed(Status::io, "cannot write", path);
  return no_error();
}

}  // namespace

const std::span<const ExitCode> kExitCodes = kCodes;
const char* const kToolExamples =
    "  tenuto create books.tnt --size 64M\n"
    "  tenuto put books.tnt dune 'Frank Herbert'\n"
    "  tenuto get books.tnt dune\n"
    "  tenuto load books.tnt books.tsv\n"
    "  tenuto dump books.tnt books.jsonl";

CommandHelp help_of(const Command& command) {
  CommandHelp help{command.name, command.help, command.examples};
  help.passes_on = command.pass_on != nullptr;
  if (help.passes_on) return help;
  CommandLine line(command.name, command.help, command.examples);
  command.add(line);
  for (const CLI::Option* option : static_cast<const CLI::App&>(line).get_options()) {
    (option->get_positional() ? help.arguments : help.options).push_back(help_of(*option));
  }
  return help;
}

std::vector<CommandHelp> help_of_all(Commands commands) {
  std::vector<CommandHelp> all;
  for (const Command& command : commands) all.push_back(help_of(command));
  return all;
}

std::string overview(Commands commands) {
  std::string text =
      "Looks into, checks, fills and empties Tenuto pools: crash-safe ordered key-value stores.\n"
      "\nUsage: tenuto COMMAND PATH [arguments] [options]\n"
      "       tenuto COMMAND --help\n\nCommands:\n";
  for (const Command& command : commands) {
    text += fmt::format("  {:<12} {}\n", command.name, command.help);
  }
  text += fmt::format("\nExamples:\n{}\n\n", kToolExamples);
  std::string line = "Exit codes:";
  for (const ExitCode& e : kExitCodes) {
    const std::string item = fmt::format(" {} {}{}", e.code, e.name, e.code < 14 ? "," : ".");
    if (line.size() + item.size() > 95) {
      text += line + "\n";
      line = item.substr(1);
    } else {
      line += item;
    }
  }
  return text + line;
}

Error write_help_files(Commands commands, const std::string& folder) {
  const std::vector<CommandHelp> all = help_of_all(commands);
  const fs::path to = folder;
  TENUTO_TOOL_TRY(write_file(to / "man1/tenuto.1", man_page(all)));
  for (const CommandHelp& command : all) {
    std::string name = "tenuto-" + command.name + ".1";
    std::replace(name.begin(), name.end(), ' ', '-');
    TENUTO_TOOL_TRY(write_file(to / "man1" / name, man_page(command)));
  }
  TENUTO_TOOL_TRY(write_file(to / "bash/tenuto", bash_completion(all)));
  TENUTO_TOOL_TRY(write_file(to / "zsh/_tenuto", zsh_completion(all)));
  return write_file(to / "fish/tenuto.fish", fish_completion(all));
}

}  // namespace tenuto::tool
