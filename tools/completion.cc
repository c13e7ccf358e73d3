// Completion for bash, zsh and fish: commands, options, the names that an option takes, and files.
#include <fmt/format.h>

#include "help.h"

namespace tenuto::tool {
namespace {

constexpr const char* kHead = "Made by the build from the options of the tool itself.";

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// The words of a name of one word or two.
std::pair<std::string, std::string> group_of(const CommandHelp& command) {
  const std::size_t blank = command.name.find(' ');
  if (blank == std::string::npos) return {"", command.name};
  return {command.name.substr(0, blank), command.name.substr(blank + 1)};
}

struct Group {
  std::string name;
  std::vector<const CommandHelp*> commands;
};

std::vector<Group> groups_of(const std::vector<CommandHelp>& commands) {
  std::vector<Group> groups;
  for (const CommandHelp& c : commands) {
    const std::string name = group_of(c).first;
    if (name.empty()) continue;
    if (groups.empty() || groups.back().name != name) groups.push_back({name, {}});
    groups.back().commands.push_back(&c);
  }
  return groups;
}

std::string offer_name(const OptionHelp& help) {
  switch (help.offer) {
    case Offer::file:
      return "file";
    case Offer::folder:
      return "folder";
    case Offer::choice:
      return "choice";
    case Offer::nothing:
      break;
  }
  return "nothing";
}

// Between single quotes of a shell.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash_case(const CommandHelp& command) {
  std::vector<std::string> options, arguments;
  std::string values;
  for (const OptionHelp& o : command.options) {
    options.push_back(joined(o.names, " "));
    if (o.type.empty()) continue;
    values += fmt::format("        {}) value={}", joined(o.names, "|"), offer_name(o));
    if (o.offer == Offer::choice) values += " choices=" + shell_quoted(joined(o.choices, " "));
    values += " ;;\n";
  }
  for (const OptionHelp& a : command.arguments) arguments.push_back(offer_name(a));
  if (command.passes_on) arguments = {"file"};
  return fmt::format(
      "    {})\n      options={}\n      arguments=({})\n      case $1 in\n{}      esac\n      ;;\n",
      shell_quoted(command.name), shell_quoted(joined(options, " ")), joined(arguments, " "),
      values);
}

constexpr const char* kBashEnd = R"(
_tenuto() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local options= value= choices= arguments=() command=${COMP_WORDS[1]} at=2 plain= n=0
  COMPREPLY=()
  # bash takes --option=value for three words.
  if [[ $current == = ]]; then
    current=
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "$_tenuto_commands" -- "$current"))
    return
  fi
  _tenuto_group "$command"
  if [[ -n $choices ]]; then
    if ((COMP_CWORD == 2)); then
      COMPREPLY=($(compgen -W "$choices" -- "$current"))
      return
    fi
    command+=" ${COMP_WORDS[2]}" at=3 choices=
  fi
  # The arguments before this word, and whether a lone -- made all the rest arguments.
  while ((at < COMP_CWORD)); do
    local word=${COMP_WORDS[at]}
    at=$((at + 1))
    if [[ -n $plain || $word != -* ]]; then
      n=$((n + 1))
    elif [[ $word == -- ]]; then
      plain=yes
    else
      value=
      _tenuto_command "$word"
      [[ ${COMP_WORDS[at]} != = ]] || at=$((at + 1))
      [[ -z $value ]] || at=$((at + 1))
    fi
  done
  value= choices=
  _tenuto_command "$before"
  if [[ -n $plain ]] || [[ -z $value && $current != -* ]]; then
    ((n < ${#arguments[@]})) || n=$((${#arguments[@]} - 1))
    value=${arguments[n]-nothing}
  fi
  case $value in
    choice) COMPREPLY=($(compgen -W "$choices" -- "$current")) ;;
    nothing) ;;
    file | folder)
      local kind=-f
      [[ $value == file ]] || kind=-d
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen $kind -- "$current")
      ;;
    *) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;
  esac
}

complete -F _tenuto tenuto
)";

// In a description of zsh's _arguments and _describe.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const OptionHelp& help) {
  switch (help.offer) {
    case Offer::file:
      return "_files";
    case Offer::folder:
      return "_files -/";
    case Offer::choice:
      return "(" + joined(help.choices, " ") + ")";
    case Offer::nothing:
      break;
  }
  return "( )";  // not a lone blank: its message would keep an option from being completed
}

std::string zsh_case(const CommandHelp& command) {
  std::string text = fmt::format("    {})\n      _arguments -s -S", shell_quoted(command.name));
  for (const OptionHelp& o : command.options) {
    const std::string others = joined(o.names, " ");
    for (const std::string& name : o.names) {
      std::string spec = (o.names.size() > 1 ? "(" + others + ")" : "") + name;
      if (!o.type.empty()) spec += name.starts_with("--") ? "=" : "+";
      spec += "[" + zsh_text(o.help) + "]";
      if (!o.type.empty()) spec += ":" + zsh_text(o.type) + ":" + zsh_action(o);
      text += " \\\n        " + shell_quoted(spec);
    }
  }
  for (const OptionHelp& a : command.arguments) {
    const char* const place = a.many ? "*:" : a.required ? ":" : "::";
    text += " \\\n        " + shell_quoted(place + zsh_text(a.names[0]) + ":" + zsh_action(a));
  }
  if (command.passes_on) text += " \\\n        '*:FILE:_files'";
  return text + "\n      ;;\n";
}

std::string zsh_list(const char* name, const std::vector<std::pair<std::string, std::string>>& of) {
  std::string text = fmt::format("  {}=(\n", name);
  for (const auto& [word, help] : of) {
    text += "    " + shell_quoted(zsh_text(word) + ":" + zsh_text(help)) + "\n";
  }
  return text + "  )\n";
}

std::string fish_option(const std::string& condition, const OptionHelp& option) {
  std::string text = "complete -c tenuto -n " + condition;
  for (const std::string& name : option.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (option.offer == Offer::file) text += " -r -F";
  if (option.offer == Offer::folder) text += " -x -a '(__fish_complete_directories)'";
  if (option.offer == Offer::choice) text += " -x -a " + shell_quoted(joined(option.choices, " "));
  if (option.offer == Offer::nothing && !option.type.empty()) text += " -x";
  return text + " -d " + shell_quoted(option.help) + "\n";
}

}  // namespace

std::string bash_completion(const std::vector<CommandHelp>& commands) {
  std::vector<std::string> first;
  std::string cases, groups;
  for (const CommandHelp& c : commands) {
    if (group_of(c).first.empty()) first.push_back(c.name);
    cases += bash_case(c);
  }
  for (const Group& group : groups_of(commands)) {
    first.push_back(group.name);
    std::vector<std::string> words;
    for (const CommandHelp* c : group.commands) words.push_back(group_of(*c).second);
    groups += fmt::format("    {}) choices={} ;;\n", group.name, shell_quoted(joined(words, " ")));
  }
  return fmt::format(
             "# bash completion for tenuto. {}\n"
             "_tenuto_commands={}\n\n"
             "_tenuto_group() {{\n  case $1 in\n{}  esac\n}}\n\n"
             "# Sets options and arguments of $command, and what the value of option $1 is.\n"
             "_tenuto_command() {{\n  case $command in\n{}  esac\n}}\n",
             kHead, shell_quoted(joined(first, " ") + " --help --version"), groups, cases) +
         kBashEnd;
}

std::string zsh_completion(const std::vector<CommandHelp>& commands) {
  std::string cases, groups;
  std::vector<std::pair<std::string, std::string>> first;
  for (const CommandHelp& c : commands) {
    if (group_of(c).first.empty()) first.emplace_back(c.name, c.help);
    cases += zsh_case(c);
  }
  for (const Group& group : groups_of(commands)) {
    first.emplace_back(group.name, "More commands");
    std::vector<std::pair<std::string, std::string>> words;
    for (const CommandHelp* c : group.commands) words.emplace_back(group_of(*c).second, c->help);
    groups += fmt::format(
        "  if [[ $command == {} ]]; then\n  {}"
        "    if ((CURRENT == 2)); then\n      _describe command list\n      return\n    fi\n"
        "    command+=\" $words[2]\"\n    shift words\n    ((CURRENT--))\n  fi\n",
        group.name, zsh_list("list", words));
  }
  return fmt::format(
      "#compdef tenuto\n# {}\nlocal -a list\n_tenuto() {{\n{}"
      "  if ((CURRENT == 2)); then\n    _describe command list\n    return\n  fi\n"
      "  shift words\n  ((CURRENT--))\n  local command=$words[1]\n{}"
      "  case $command in\n{}  esac\n}}\n\n_tenuto \"$@\"\n",
      kHead, zsh_list("local -a list", first), groups, cases);
}

std::string fish_completion(const std::vector<CommandHelp>& commands) {
  std::string text = fmt::format(
      "# fish completion for tenuto. {}\n"
      "# Whether the words behind `tenuto` begin with these.\n"
      "function __tenuto_is\n"
      "    set -l words (commandline -opc)\n"
      "    set -l last (math (count $argv) + 1)\n"
      "    test (count $words) -ge $last; and test \"$words[2..$last]\" = \"$argv\"\n"
      "end\n\n"
      "complete -c tenuto -f\n",
      kHead);
  for (const CommandHelp& c : commands) {
    const auto [group, word] = group_of(c);
    const std::string begins =
        group.empty() ? "__fish_use_subcommand" : shell_quoted("__tenuto_is " + group);
    text +=
        fmt::format("complete -c tenuto -n {} -a {} -d {}\n", begins, word, shell_quoted(c.help));
  }
  for (const Group& group : groups_of(commands)) {
    text += fmt::format("complete -c tenuto -n __fish_use_subcommand -a {} -d 'More commands'\n",
                        group.name);
  }
  for (const CommandHelp& c : commands) {
    const std::string condition = shell_quoted("__tenuto_is " + c.name);
    text += fmt::format("\n# tenuto {}\ncomplete -c tenuto -n {} -F\n", c.name, condition);
    for (const OptionHelp& o : c.options) text += fish_option(condition, o);
  }
  return text;
}

}  // namespace tenuto::tool
