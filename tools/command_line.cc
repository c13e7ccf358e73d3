// See command_line.h.
#include "command_line.h"

#include <fmt/format.h>

#include "numbers.h"
#include "session.h"

namespace tenuto::tool {
namespace {

const std::map<std::string, Medium> kMediumNames = {{"auto", Medium::automatic},
                                                    {"line", Medium::line},
                                                    {"cache", Medium::cache},
                                                    {"model", Medium::model},
                                                    {"journal", Medium::journal}};
// Of a default collection, and of others.
const std::map<std::string, KeyOrder> kStoreOrders = {{"bytes", KeyOrder::bytes},
                                                      {"u64", KeyOrder::u64}};
const std::map<std::string, KeyOrder> kOrders = {{"bytes", KeyOrder::bytes},
                                                 {"u64", KeyOrder::u64},
                                                 {"reverse", KeyOrder::reverse},
                                                 {"reverse_u64", KeyOrder::reverse_u64}};
const std::map<std::string, RecordFormat> kFormatNames = {{"tsv", RecordFormat::tsv},
                                                          {"jsonl", RecordFormat::jsonl},
                                                          {"csv", RecordFormat::csv},
                                                          {"json", RecordFormat::json}};

std::string with_place(const FormatError& error, const std::string& text) {
  return fmt::format("{} [{}, column {}]", error.what, in_quotes(text), error.column);
}

}  // namespace

CommandLine::CommandLine(const std::string& name, const std::string& help,
                         const std::string& examples)
    : CLI::App(help, "tenuto " + name) {
  footer("Examples:\n" + examples);
}

void CommandLine::wrong(const char* name, const std::string& what) {
  throw CLI::ValidationError(name, what);
}

CLI::Option* CommandLine::add_text(const char* name, std::function<void(std::string)> set,
                                   const std::string& help, const char* type) {
  return add_option_function<std::string>(
             name, [set = std::move(set)](const std::string& text) { set(text); }, help)
      ->type_name(type);
}

void CommandLine::add_checked(const char* name, std::function<std::string(const std::string&)> set,
                              const std::string& help, const char* type) {
  const auto checked = [set = std::move(set), name](const std::string& text) {
    const std::string wanted = set(text);
    if (!wanted.empty()) wrong(name, in_quotes(text) + " is not " + wanted);
  };
  add_text(name, checked, help, type);
}

void CommandLine::add_size(const char* name, std::uint64_t& bytes, const std::string& help) {
  const auto set = [&bytes, name](const std::string& text) {
    if (const MaybeError error = parse_size(text, bytes)) wrong(name, with_place(*error, text));
  };
  // 0: the pool's own default, which the help names.
  add_text(name, set, bytes == 0 ? help : help + " [" + format_size(bytes) + "]", "SIZE");
}

void CommandLine::add_count(const char* name, std::function<void(std::uint64_t)> set,
                            const std::string& help) {
  const auto parse = [set = std::move(set), name](const std::string& text) {
    std::uint64_t n = 0;
    if (const MaybeError error = parse_u64(text, 1, n)) wrong(name, with_place(*error, text));
    set(n);
  };
  add_text(name, parse, help, "N");
}

void CommandLine::add_texts(const char* name, std::vector<std::string>& texts,
                            const std::string& help, bool required) {
  texts_ = &texts;
  // CLI11 handles the first text as a normal argument. parse_words takes the rest.
  add_text(
      name, [&texts](std::string text) { texts.push_back(std::move(text)); }, help, "...")
      ->required(required);
  allow_extras();
}

void CommandLine::add_common(CommonArgs& args, bool may_read_only) {
  common_ = &args;
  add_text(
      "PATH", [&args](std::string path) { args.path = std::move(path); }, "The pool file")
      ->required();
  add_flag("--json", args.json, "Results as JSON, one object (scan: one a line)");
  add_flag("-q,--quiet", args.quiet, "No notes, no progress, no summary");
  add_flag("-v,--verbose", args.verbose, "Notes of the library on standard error");
  add_medium([&args](Medium m) { args.medium = m; });
  add_text(
      "--journal", [&args](std::string t) { args.journal = std::move(t); },
      "The pool's journal, if it is not PATH.journal", "FILE");
  add_count(
      "--wait", [&args](std::uint64_t n) { args.wait_seconds = n; },
      "Wait so many seconds while another process has the pool open [0]");
  if (!may_read_only) return;
  add_flag("--read-only", args.read_only,
           "Never write the pool; one that was not closed is then an error");
}

void CommandLine::add_medium(std::function<void(Medium)> set) {
  add_choice<Medium>("--medium", kMediumNames, std::move(set), "What the pool lies on [auto]");
}

void CommandLine::add_new_pool(NewPoolArgs& args, const std::string& when) {
  add_size("--size", args.size, "First size of a new pool" + when);
  add_choice<KeyOrder>(
      "--order", kStoreOrders, [&args](KeyOrder order) { args.order = order; },
      "Keys: any bytes, or numbers of 64 bits" + when + " [bytes]");
}

void CommandLine::add_size_max(CommonArgs& args) {
  add_size("--size-max", args.size_max, "The pool may grow up to this; above it is full [4 TiB]");
}

void CommandLine::add_collection(CommonArgs& args) {
  const auto set = [&args](std::string t) {
    args.collection = std::move(t);
    args.one_collection = true;
  };
  add_text("--collection", set, "The collection with this name; '' and no name: the default one",
           "NAME");
}

void CommandLine::add_order(KeyOrder& order, bool any, const std::string& help) {
  add_choice<KeyOrder>(
      "--order", any ? kOrders : kStoreOrders, [&order](KeyOrder chosen) { order = chosen; }, help);
}

void CommandLine::add_range(RangeArgs& args) {
  add_text(
      "--prefix", [&args](std::string key) { args.prefix = std::move(key); },
      "Only keys that begin with this", "KEY");
  add_text(
      "--from", [&args](std::string key) { args.from = std::move(key); },
      "Only keys from this one on", "KEY");
  add_text(
      "--to", [&args](std::string key) { args.to = std::move(key); }, "Only keys before this one",
      "KEY");
}

void CommandLine::add_format(std::optional<RecordFormat>& format, std::string& key_field,
                             const std::string& help) {
  add_text(
      "--key-field", [&key_field](std::string name) { key_field = std::move(name); },
      "CSV and JSON: the column or member that is the key", "NAME");
  add_choice<RecordFormat>(
      "--format", kFormatNames, [&format](RecordFormat chosen) { format = chosen; },
      help + " [by the name of the file]");
}

Error CommandLine::parse_words(int argc, char** argv, bool& helped) {
  if (common_ != nullptr) common_->words.assign(argv, argv + argc);
  // CLI11 expects the words in reverse order.
  std::vector<std::string> words(argv, argv + argc);
  std::reverse(words.begin(), words.end());
  const std::string usage = fmt::format("try '{} --help'", get_name());
  const std::string dashes =
      usage + "; a key or value that begins with '-' goes behind a lone '--'";
  try {
    parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    helped = true;
    std::string text = help();
    while (text.ends_with('\n')) text.pop_back();
    return print_line(text);
  } catch (const CLI::ExtrasError& error) {
    return failed(Status::invalid_argument, error.what(), "", dashes);
  } catch (const CLI::ParseError& error) {
    return failed(Status::invalid_argument, error.what(), "", usage);
  }
  if (texts_ == nullptr) return no_error();
  for (const auto& [what, word] : missing_) {
    if (what == CLI::detail::Classifier::NONE) {
      texts_->push_back(word);
    } else if (what != CLI::detail::Classifier::POSITIONAL_MARK) {
      return failed(Status::invalid_argument, "unknown option " + in_quotes(word), "", dashes);
    }
  }
  return no_error();
}

}  // namespace tenuto::tool
