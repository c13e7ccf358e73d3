// See csv.h.
#include "csv.h"

#include <fmt/format.h>

namespace tenuto::tool {
namespace {

class Row {
 public:
  explicit Row(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  std::size_t column() const { return at_ + 1; }

  MaybeError field(std::string& out) {
    out.clear();
    return take('"') ? quoted(out) : plain(out);
  }
  // Between two fields. False: the record ends here.
  bool comma() { return take(','); }

 private:
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  MaybeError plain(std::string& out) {
    while (!at_end() && text_[at_] != ',') {
      if (text_[at_] == '"') {
        return error("a quote inside a field; write the field in quotes, and this one twice");
      }
      if (text_[at_] == '\r') return error("a CR inside a field that is not in quotes");
      if (MaybeError e = character(out)) return e;
    }
    return std::nullopt;
  }

  MaybeError quoted(std::string& out) {
    const std::size_t begin = at_;
    for (;;) {
      if (at_end()) return FormatError{begin, "the field has no closing quote"};
      if (!take('"')) {
        if (MaybeError e = character(out)) return e;
        continue;
      }
      if (!take('"')) break;
      out += '"';
    }
    if (at_end() || text_[at_] == ',') return std::nullopt;
    return error("',' expected behind the closing quote");
  }

  MaybeError character(std::string& out) {
    const std::size_t bytes = utf8_sequence(text_, at_);
    if (bytes == 0) return error(fmt::format("byte 0x{:02x} is not UTF-8", byte_at(text_, at_)));
    out.append(text_, at_, bytes);
    at_ += bytes;
    return std::nullopt;
  }

  MaybeError error(std::string what) const { return FormatError{column(), std::move(what)}; }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

MaybeError parse_csv(std::string_view text, std::vector<std::string>& fields,
                     std::vector<std::size_t>& columns) {
  if (text.ends_with('\r')) text.remove_suffix(1);
  columns.clear();
  Row row(text);
  std::size_t n = 0;
  do {
    if (n == fields.size()) fields.emplace_back();
    columns.push_back(row.column());
    if (MaybeError e = row.field(fields[n])) return e;
    ++n;
  } while (row.comma());
  fields.resize(n);
  return std::nullopt;
}

void append_csv_field(std::string_view field, std::string& out) {
  const bool bare = field.find_first_of(",\"\r\n") == std::string_view::npos &&
                    !field.starts_with(' ') && !field.ends_with(' ');
  if (bare) {
    out += field;
    return;
  }
  out += '"';
  for (const char c : field) {
    out += c;
    if (c == '"') out += c;
  }
  out += '"';
}

}  // namespace tenuto::tool
