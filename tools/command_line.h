// The command line of one command. A thin layer over CLI11 that keeps every key and value as typed.
// Where CLI11 expects lists or subcommands, it interprets "[a,b]", "++" and names of subcommands.
// So each command is an application of its own, and lists are parsed here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tenuto_commands.h"

namespace tenuto::tool {

class CommandLine : public CLI::App {
 public:
  CommandLine(const std::string& name, const std::string& help, const std::string& examples);

  // Options and arguments have CLI11's names ("-q,--quiet", "KEY"). `type` is shown in the help.
  CLI::Option* add_text(const char* name, std::function<void(std::string)> set,
                        const std::string& help, const char* type = "");
  // `set` returns what it expects, or an empty string when it accepts the text.
  void add_checked(const char* name, std::function<std::string(const std::string&)> set,
                   const std::string& help, const char* type);
  // Takes "64M". The help shows the present value as the default.
  void add_size(const char* name, std::uint64_t& bytes, const std::string& help);
  void add_count(const char* name, std::function<void(std::uint64_t)> set, const std::string& help);
  // Takes one of the names. Any other text is an error that lists them.
  template <class T>
  void add_choice(const char* name, const std::map<std::string, T>& names,
                  std::function<void(T)> set, const std::string& help) {
    std::string list;
    for (const auto& [known, value] : names) list += (list.empty() ? "" : "|") + known;
    add_text(
        name,
        [&names, set = std::move(set), list, name](const std::string& text) {
          const auto at = names.find(text);
          if (at == names.end()) wrong(name, in_quotes(text) + " is not one of " + list);
          set(at->second);
        },
        help)
        ->type_name(list);
  }
  // Takes texts unchanged, as the last arguments; one at least if `required`.
  void add_texts(const char* name, std::vector<std::string>& texts, const std::string& help,
                 bool required = true);

  // PATH, --json, --quiet, --verbose, --medium, --journal, --wait; --read-only if `may_read_only`.
  void add_common(CommonArgs& args, bool may_read_only);
  void add_medium(std::function<void(Medium)> set);
  void add_collection(CommonArgs& args);
  // any: also the reverse orders, which a default collection cannot have.
  void add_order(KeyOrder& order, bool any, const std::string& help);
  void add_new_pool(NewPoolArgs& args, const std::string& when);
  void add_size_max(CommonArgs& args);
  void add_range(RangeArgs& args);
  void add_format(std::optional<RecordFormat>& format, std::string& key_field,
                  const std::string& help);

  // Parses the words after the command's name and calls the registered functions. Wrong usage is
  // invalid_argument. --help prints the help and sets `helped`; it is no error.
  Error parse_words(int argc, char** argv, bool& helped);

 private:
  [[noreturn]] static void wrong(const char* name, const std::string& what);

  std::vector<std::string>* texts_ = nullptr;
  CommonArgs* common_ = nullptr;
};

}  // namespace tenuto::tool
