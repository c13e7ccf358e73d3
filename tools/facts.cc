// See facts.h.
#include "facts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "numbers.h"
#include "text_format.h"

namespace tenuto::tool {

void Facts::add(std::string_view name, std::string_view json, std::string_view label,
                std::string_view words) {
  if (!label.empty()) rows_.push_back({std::string(label), std::string(words)});
  if (name.empty()) return;
  std::string text;
  append_json_string(text, name);
  (text += ':') += json;
  member(text);
}

void Facts::member(const std::string& json_member) {
  if (!members_.empty()) members_ += ',';
  members_ += json_member;
}

void Facts::text(std::string_view name, std::string_view label, std::string_view value) {
  std::string words;
  append_escaped(words, value);
  add({}, {}, label, words);
  if (name.empty()) return;
  std::string json;
  append_json_member(json, name, value);
  member(json);
}

void Facts::count(std::string_view name, std::string_view label, std::uint64_t n) {
  add(name, fmt::format("{}", n), label, format_count(n));
}

void Facts::bytes(std::string_view name, std::string_view label, std::uint64_t n) {
  const std::string words =
      n < 1024 ? format_size(n) : fmt::format("{} ({} bytes)", format_size(n), format_count(n));
  add(name, fmt::format("{}", n), label, words);
}

void Facts::ms(std::string_view name, std::string_view label, double n) {
  if (!std::isfinite(n)) n = 0;
  add(name, fmt::format("{:.3f}", n), label, fmt::format("{:.1f} ms", n));
}

void Facts::seconds(std::string_view name, std::string_view label, double n) {
  if (!std::isfinite(n)) n = 0;
  add(name, fmt::format("{:.3f}", n), label, fmt::format("{:.2f} s", n));
}

void Facts::flag(std::string_view name, std::string_view label, bool truth,
                 std::string_view words) {
  add(name, truth ? "true" : "false", label, words);
}

std::string Facts::rows(std::string_view title) const {
  std::size_t width = 0;
  for (const Row& row : rows_) width = std::max(width, row.label.size());
  std::string text;
  append_escaped(text, title);
  text += '\n';
  for (const Row& row : rows_) {
    text += fmt::format("  {:<{}}  {}\n", row.label, width, row.words);
  }
  return text;
}

std::string Facts::json() const { return "{" + members_ + "}"; }

}  // namespace tenuto::tool
