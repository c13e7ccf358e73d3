// The tool's man pages, in the macros of man(7).
#include <algorithm>

#include <fmt/format.h>

#include "help.h"

#ifndef TENUTO_VERSION
#error "the build defines TENUTO_VERSION"
#endif

namespace tenuto::tool {
namespace {

// Text as roff prints it: no dash becomes a hyphen, no line is a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool begins = out.empty() || out.back() == '\n';
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '"') {
      out += "\\(dq";
    } else {
      out += c;
    }
  }
  return out;
}

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

std::string header(const std::string& title, const std::string& help) {
  std::string upper = title;
  for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return fmt::format(".TH {} 1 \"\" \"Tenuto {}\" \"Tenuto\"\n.SH NAME\n{} \\- {}\n", roff(upper),
                     TENUTO_VERSION, roff(title), roff(help));
}

std::string examples(const std::string& lines) {
  std::string text;
  for (const std::string& line : CLI::detail::split(lines, '\n')) text += line.substr(2) + "\n";
  return ".SH EXAMPLES\n.nf\n" + roff(text) + ".fi\n";
}

std::string tagged(const std::string& tag, const std::string& text) {
  return ".TP\n" + tag + "\n" + text + "\n";
}

std::string tag_of(const OptionHelp& option) {
  std::string tag;
  for (const std::string& name : option.names) tag += (tag.empty() ? "" : ", ") + bold(name);
  if (!option.type.empty()) tag += " " + italic(option.type);
  return tag;
}

}  // namespace

std::string man_page(const std::vector<CommandHelp>& commands) {
  std::string text = header("tenuto", "look into, check, fill and empty Tenuto pools");
  text += ".SH SYNOPSIS\n" + bold("tenuto") + " " + italic("COMMAND PATH") + " [" +
          italic("arguments") + "] [" + italic("options") + "]\n.br\n" + bold("tenuto") + " " +
          italic("COMMAND") + " " + bold("--help") + "\n";
  text += ".SH DESCRIPTION\n";
  text += roff(
      "A pool is one file that holds a crash-safe ordered key-value store. On an ordinary disk a "
      "second file, the journal, is beside it while it is in use. Each command opens a pool, does "
      "one thing and closes it. A pool that another process has open is busy. A pool that was not "
      "closed is recovered first.\n");
  text += ".PP\n" + roff(
                        "Results are on standard output, errors and notes on standard error. "
                        "Sizes take K, M, G or T (powers of 1024). Put a lone -- before a key or "
                        "value that begins with a dash.\n");
  text += ".SH COMMANDS\n";
  for (const CommandHelp& c : commands) {
    text += tagged("\\fBtenuto " + roff(c.name) + "\\fR",
                   roff(c.help) + ". See " + bold("tenuto-" + with_dashes(c.name)) + "(1).");
  }
  text += ".SH EXIT STATUS\n";
  for (const ExitCode& e : kExitCodes) text += tagged(std::to_string(e.code), roff(e.meaning));
  text += ".SH FILES\n";
  text += tagged(italic("PATH") + ".journal",
                 roff("The journal of a pool on medium journal. After a crash the pool needs it: "
                      "move or copy both files."));
  text += examples(kToolExamples);
  return text;
}

std::string man_page(const CommandHelp& command) {
  std::string text = header("tenuto-" + with_dashes(command.name), command.help);
  text += ".SH SYNOPSIS\n" + bold("tenuto " + command.name);
  if (command.passes_on) {
    text += " [" + italic("arguments") + "]\n.SH DESCRIPTION\n" + roff(command.help) + ".\n" +
            bold("tenuto " + command.name + " --help") + " lists its options.\n";
  } else {
    text += " [" + italic("options") + "]";
    for (const OptionHelp& a : command.arguments) {
      const std::string name = italic(a.names[0]) + (a.many ? "..." : "");
      text += a.required ? " " + name : " [" + name + "]";
    }
    text += "\n.SH DESCRIPTION\n" + roff(command.help) + ".\n";
    for (const OptionHelp& a : command.arguments) {
      text += tagged(italic(a.names[0]), roff(a.help) + ".");
    }
    text += ".SH OPTIONS\n";
    for (const OptionHelp& o : command.options) text += tagged(tag_of(o), roff(o.help) + ".");
  }
  if (!command.examples.empty()) text += examples(command.examples);
  return text + ".SH SEE ALSO\n" + bold("tenuto") + "(1), for the exit status and the files\n";
}

}  // namespace tenuto::tool
