#include "form_line.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tenuto::tool {
namespace {

constexpr std::array<std::pair<KeyOrder, std::string_view>, 4> kOrders = {{
    {KeyOrder::bytes, "bytes"},
    {KeyOrder::u64, "u64"},
    {KeyOrder::reverse, "reverse"},
    {KeyOrder::reverse_u64, "reverse_u64"},
}};

struct Ends {
  std::string_view before;
  std::string_view behind;
};

// A record has a TAB (TSV) or other members (JSON), so it differs from a form line.
Ends ends_of(RecordFormat format) {
  if (format == RecordFormat::tsv) return {"#form ", ""};
  return {"{\"form\":\"", "\"}"};
}

bool take(std::string_view& words, std::string_view word) {
  const std::size_t comma = words.find(", ");
  if (words.substr(0, comma) != word) return false;
  words.remove_prefix(comma == std::string_view::npos ? words.size() : comma + 2);
  return true;
}

}  // namespace

std::string form_words(KeyOrder order, const std::string& codec, bool duplicates, bool expires) {
  std::string words = "codec " + codec;
  for (const auto& [known, word] : kOrders) {
    if (order == known) words = word;
  }
  if (duplicates) words += ", duplicates";
  if (expires) words += ", expires";
  return words;
}

bool is_plain_form(std::string_view words) { return words == "bytes" || words == "u64"; }

void append_form_line(RecordFormat format, std::string_view words, std::string& out) {
  const Ends ends = ends_of(format);
  ((out += ends.before) += words) += ends.behind;
}

bool parse_form_line(RecordFormat format, std::string_view line, std::string& words) {
  const Ends ends = ends_of(format);
  if (!line.starts_with(ends.before) || !line.ends_with(ends.behind)) return false;
  if (line.size() < ends.before.size() + ends.behind.size()) return false;
  line.remove_prefix(ends.before.size());
  line.remove_suffix(ends.behind.size());
  // With a TAB it is a record whose key begins like a form line.
  if (line.find_first_of("\t\"\\") != std::string_view::npos) return false;
  words = line;
  return true;
}

bool options_of_form(std::string_view words, CollectionOptions& options) {
  const auto order = std::find_if(kOrders.begin(), kOrders.end(),
                                  [&](const auto& known) { return take(words, known.second); });
  if (order == kOrders.end()) return false;
  options.order = order->first;
  options.duplicates = take(words, "duplicates");
  options.expires = take(words, "expires");
  return words.empty();
}

}  // namespace tenuto::tool
