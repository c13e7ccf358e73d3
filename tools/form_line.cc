#include "form_line.h"

#include <algorithm>
#include <array>
#include <utility>

#include "json_record.h"
#include "text_format.h"

namespace tenuto::tool {
namespace {

constexpr std::array<std::pair<KeyOrder, std::string_view>, 4> kOrders = {{
    {KeyOrder::bytes, "bytes"},
    {KeyOrder::u64, "u64"},
    {KeyOrder::reverse, "reverse"},
    {KeyOrder::reverse_u64, "reverse_u64"},
}};

constexpr std::string_view kCollection = "#collection ";

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

void append_collection_line(RecordFormat format, const CollectionLine& line, std::string& out) {
  if (format == RecordFormat::tsv) {
    append_escaped(((out += kCollection) += line.form) += ": ", line.name);
    return;
  }
  out += '{';
  append_json_member(out, "collection", line.name);
  out += ',';
  append_json_member(out, "form", line.form);
  out += '}';
}

bool parse_collection_line(RecordFormat format, std::string_view line, CollectionLine& out) {
  if (format == RecordFormat::jsonl) return parse_json_collection(line, out.name, out.form);
  if (!line.starts_with(kCollection) || line.find('\t') != std::string_view::npos) return false;
  line.remove_prefix(kCollection.size());
  const std::size_t colon = line.find(": ");
  if (colon == std::string_view::npos) return false;
  out.form = line.substr(0, colon);
  return !parse_escaped(line.substr(colon + 2), 1, out.name);
}

bool begins_collection_line(RecordFormat format, std::string_view line) {
  return line.starts_with(format == RecordFormat::jsonl ? R"({"collection)" : kCollection);
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
