// TSV and the members of JSON records. The reader of JSON lines is in json_record.cc.
#include "record_format.h"

#include <algorithm>

#include <fmt/format.h>

#include "json_record.h"
#include "numbers.h"

namespace tenuto::tool {
namespace {

constexpr std::size_t kPairEndBytes = 2;  // between the key and the value of a pair

MaybeError parse_tsv_key(KeyOrder order, std::string_view text, std::string& key) {
  if (!is_of_integers(order)) return parse_escaped(text, 1, key);
  std::uint64_t number = 0;
  if (MaybeError error = parse_u64(text, 1, number)) {
    error->what += "; the keys of this pool are numbers (u64)";
    return error;
  }
  key = std::string_view(u64_key(number));
  return std::nullopt;
}

MaybeError parse_tsv(RecordShape shape, std::string_view line, Record& record) {
  const std::size_t tab = line.find('\t');
  if (tab == std::string_view::npos) {
    return FormatError{line.size() + 1, "no TAB in the line; a record is key TAB value"};
  }
  if (MaybeError error = parse_tsv_key(shape.order, line.substr(0, tab), record.key)) return error;
  std::string_view value = line.substr(tab + 1);
  record.expires_ms = 0;
  // Without lifetimes, a second TAB is part of the value, where it is an error.
  const std::size_t second = shape.expires ? value.find('\t') : std::string_view::npos;
  if (second != std::string_view::npos) {
    const std::size_t column = tab + second + 3;
    if (MaybeError error = parse_u64(value.substr(second + 1), column, record.expires_ms)) {
      error->what += "; the third field is when the record expires, in ms since 1970";
      return error;
    }
    value = value.substr(0, second);
  }
  return parse_escaped(value, tab + 2, record.value);
}

}  // namespace

void append_key_text(KeyOrder order, std::string_view key, std::string& out) {
  if (is_of_integers(order)) {
    out += fmt::format_int(u64_of_key(key).value_or(0)).c_str();
  } else {
    append_escaped(out, key);
  }
}

void append_key_member(KeyOrder order, std::string_view key, std::string& out) {
  if (is_of_integers(order)) {
    out += "\"key\":";
    append_key_text(order, key, out);
  } else {
    append_json_member(out, "key", key);
  }
}

void append_value_member(std::string_view value, std::string& out) {
  append_json_member(out, "value", value);
}

void append_record(RecordFormat format, KeyOrder order, std::string_view key,
                   std::string_view value, std::string& out, std::uint64_t expires_ms) {
  if (format == RecordFormat::tsv) {
    append_key_text(order, key, out);
    out += '\t';
    append_escaped(out, value);
    if (expires_ms != 0) (out += '\t') += fmt::format_int(expires_ms).c_str();
  } else {
    out += '{';
    append_key_member(order, key, out);
    out += ',';
    append_value_member(value, out);
    if (expires_ms != 0) (out += ",\"expires_ms\":") += fmt::format_int(expires_ms).c_str();
    out += '}';
  }
}

MaybeError parse_record(RecordFormat format, RecordShape shape, std::string_view line,
                        Record& record) {
  MaybeError error = format == RecordFormat::tsv ? parse_tsv(shape, line, record)
                                                 : parse_json_record(shape, line, record);
  return error ? error : check_length(shape, record, 1);
}

MaybeError check_length(RecordShape shape, const Record& record, std::size_t column) {
  const std::size_t bytes = record.key.size();
  if (bytes > kKeyBytesMax) {
    return FormatError{column,
                       fmt::format("a key of {} bytes; keys have at most {}", bytes, kKeyBytesMax)};
  }
  if (!shape.duplicates) return std::nullopt;
  // The pair is the key that is stored (kv/encoding.cc).
  const auto zeros =
      static_cast<std::size_t>(std::count(record.key.begin(), record.key.end(), '\0'));
  if (bytes + zeros + kPairEndBytes + record.value.size() <= kKeyBytesMax) return std::nullopt;
  return FormatError{
      column,
      fmt::format("a key of {} bytes with a value of {}; in a collection with duplicates "
                  "both together have at most {}, where a zero byte of the key counts twice",
                  bytes, record.value.size(), kKeyBytesMax - kPairEndBytes)};
}

}  // namespace tenuto::tool
