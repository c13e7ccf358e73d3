// See field_record.h.
#include "field_record.h"

#include <algorithm>

#include <fmt/format.h>

#include "csv.h"
#include "json_object.h"
#include "numbers.h"

namespace tenuto::tool {
namespace {

using Kind = JsonMember::Kind;

FormatError no_field(const std::string& field) {
  std::string what = fmt::format("no field {}", in_quotes(field));
  if (field.find('.') != std::string::npos) {
    what += "; the key field is one of the record itself, not of an object inside it";
  }
  return {1, std::move(what)};
}

FormatError second_field(std::size_t column, const std::string& field) {
  return {column, fmt::format("a second field {}", in_quotes(field))};
}

// Puts the key into `record`. REQUIRES: a string or a number.
MaybeError take_key(RecordShape shape, const std::string& text, std::size_t column, bool number,
                    Record& record) {
  if (is_of_integers(shape.order)) {
    std::uint64_t n = 0;
    if (MaybeError e = parse_u64(text, 1, n)) {
      return FormatError{column, e->what + "; the keys of this pool are numbers (u64)"};
    }
    record.key = std::string_view(u64_key(n));
    return std::nullopt;
  }
  if (number) {
    return FormatError{column,
                       "the key field is a number, and the keys of this pool are bytes; "
                       "load --create --order u64 makes one with numbers"};
  }
  record.key = text;
  return std::nullopt;
}

}  // namespace

// --- reading -------------------------------------------------------------------------------------

MaybeError FieldReader::header(std::string_view text) {
  if (MaybeError e = parse_csv(text, names_, columns_)) return e;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i].empty()) return FormatError{columns_[i], "a column without a name in the header"};
    if (std::find(names_.begin(), names_.begin() + static_cast<std::ptrdiff_t>(i), names_[i]) !=
        names_.begin() + static_cast<std::ptrdiff_t>(i)) {
      return second_field(columns_[i], names_[i]);
    }
  }
  const auto at = std::find(names_.begin(), names_.end(), field_);
  if (at == names_.end()) return no_field(field_);
  key_ = static_cast<std::size_t>(at - names_.begin());
  return std::nullopt;
}

MaybeError FieldReader::parse(RecordShape shape, std::string_view text, Record& record) {
  record.expires_ms = 0;
  return format_ == RecordFormat::csv ? parse_csv_record(shape, text, record)
                                      : parse_json(shape, text, record);
}

MaybeError FieldReader::parse_csv_record(RecordShape shape, std::string_view text, Record& record) {
  if (MaybeError e = parse_csv(text, fields_, columns_)) return e;
  if (fields_.size() != names_.size()) {
    return FormatError{
        1, fmt::format("fields: {}, and the header has {}", fields_.size(), names_.size())};
  }
  record.value = "{";
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (i > 0) record.value += ',';
    append_json_string(record.value, names_[i]);
    record.value += ':';
    append_json_string(record.value, fields_[i]);
  }
  record.value += '}';
  if (MaybeError e = take_key(shape, fields_[key_], columns_[key_], false, record)) return e;
  return check_length(shape, record, columns_[key_]);
}

MaybeError FieldReader::parse_json(RecordShape shape, std::string_view text, Record& record) {
  bool found = false;
  std::size_t column = 1;
  const auto look = [&](const JsonMember& m) -> MaybeError {
    if (m.name != field_) return std::nullopt;
    if (found) return second_field(m.column, field_);
    found = true;
    column = m.column;
    if (m.kind == Kind::nested || m.kind == Kind::word) {
      return FormatError{m.column, "the key field must be a string or a number"};
    }
    return take_key(shape, m.text, m.column, m.kind == Kind::number, record);
  };
  if (MaybeError e = read_json_object(text, look)) return e;
  if (!found) return no_field(field_);
  record.value = text;
  return check_length(shape, record, column);
}

// --- writing -------------------------------------------------------------------------------------

std::optional<std::string> FieldWriter::append(KeyOrder order, std::string_view key,
                                               std::string_view value, std::string& out) {
  record_names_.clear();
  texts_.clear();
  nested_ = false;
  const auto collect = [&](const JsonMember& m) -> MaybeError {
    nested_ = nested_ || m.kind == Kind::nested || (m.kind == Kind::word && m.text == "null");
    record_names_.push_back(m.name);
    texts_.push_back(m.text);
    return std::nullopt;
  };
  if (read_json_object(value, collect)) return "the value is no JSON object";
  Record record;
  if (FieldReader(RecordFormat::json, field_).parse(order, value, record) || record.key != key) {
    return fmt::format("the value has not this key as its only field {}", in_quotes(field_));
  }
  if (format_ == RecordFormat::csv) return append_row(out);
  out += any_ ? ",\n" : "[\n";
  out += value;
  any_ = true;
  return std::nullopt;
}

std::optional<std::string> FieldWriter::append_row(std::string& out) {
  if (nested_) return "the value has a member that is no text, which CSV cannot hold";
  const auto append_all = [&](const std::vector<std::string>& fields) {
    // An empty line would be no record.
    if (fields.size() == 1 && fields[0].empty()) out += "\"\"";
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (i > 0) out += ',';
      append_csv_field(fields[i], out);
    }
    out += "\r\n";
  };
  if (!any_) {
    names_ = record_names_;
    const std::size_t before = out.size();
    append_all(names_);
    if (FieldReader(format_, field_)
            .header(std::string_view(out).substr(before, out.size() - before - 2))) {
      return "the names of its members cannot be columns";
    }
  } else if (names_ != record_names_) {
    return "the value has other members, or in another order, than the first record";
  }
  append_all(texts_);
  any_ = true;
  return std::nullopt;
}

void FieldWriter::end(std::string& out) const {
  if (format_ == RecordFormat::json) out += any_ ? "\n]\n" : "[]\n";
}

}  // namespace tenuto::tool
