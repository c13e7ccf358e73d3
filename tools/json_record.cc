// A strict reader of the one JSON object that is a record (RFC 8259 strings, \u escapes with
// surrogate pairs, UTF-8 only). It exists because a load reads nothing else and errors must name
// the column. Also, building a general parser's tree takes most of a load's time. The tests compare
// it with a general parser.
#include "json_record.h"

#include <fmt/format.h>

#include "numbers.h"

namespace tenuto::tool {
namespace {

class Reader {
 public:
  Reader(RecordShape shape, std::string_view line) : shape_(shape), line_(line) {}

  MaybeError read(Record& record) {
    if (MaybeError e = expect('{')) return e;
    Seen seen;
    record.expires_ms = 0;
    do {
      if (MaybeError e = member(record, seen)) return e;
      blanks();
    } while (take(','));
    if (!take('}')) return error("',' or '}' expected");
    blanks();
    if (at_ < line_.size()) return error("text after the object; one object a line");
    if (!seen.key) return error("no member \"key\" or \"key_base64\"");
    if (!seen.value) return error("no member \"value\" or \"value_base64\"");
    return std::nullopt;
  }

  bool read_collection(std::string& name, std::string& form) {
    const bool all =
        !expect('{') && named("collection", name) && take(',') && named("form", form) && take('}');
    blanks();
    return all && at_ == line_.size();
  }

 private:
  bool named(std::string_view wanted, std::string& text) {
    blanks();
    if (string(name_) || name_ != wanted || expect(':')) return false;
    blanks();
    if (string(text)) return false;
    blanks();
    return true;
  }

  struct Seen {
    bool key = false;
    bool value = false;
    bool expires = false;
  };

  MaybeError member(Record& record, Seen& all) {
    blanks();
    const std::size_t name_column = column();
    if (MaybeError e = string(name_)) return e;
    const bool is_key = name_ == "key" || name_ == "key_base64";
    const bool is_value = name_ == "value" || name_ == "value_base64";
    const bool is_time = name_ == "expires_ms";
    if (is_time && !shape_.expires) {
      return FormatError{name_column, "a lifetime, and records of this collection have none"};
    }
    if (!is_key && !is_value && !is_time) {
      return FormatError{name_column, fmt::format("unknown member {}; a record has key or "
                                                  "key_base64, and value or value_base64",
                                                  in_quotes(name_))};
    }
    bool& seen = is_key ? all.key : is_value ? all.value : all.expires;
    if (seen) {
      return FormatError{name_column, fmt::format("a second {}", is_key     ? "key"
                                                                 : is_value ? "value"
                                                                            : "expires_ms")};
    }
    seen = true;
    if (MaybeError e = expect(':')) return e;
    blanks();
    if (is_time) return number("write \"expires_ms\":1234, in ms since 1970", record.expires_ms);
    if (is_key && is_of_integers(shape_.order)) return number_key(name_ == "key", record.key);
    std::string& bytes = is_key ? record.key : record.value;
    return name_.ends_with("_base64") ? base64(bytes) : string(bytes);
  }

  MaybeError number_key(bool plain_name, std::string& key) {
    constexpr const char* kWanted = "the keys of this pool are numbers (u64); write \"key\":1234";
    if (!plain_name) return error(kWanted);
    std::uint64_t n = 0;
    if (MaybeError e = number(kWanted, n)) return e;
    key = std::string_view(u64_key(n));
    return std::nullopt;
  }

  MaybeError number(const char* wanted, std::uint64_t& n) {
    std::size_t end = at_;
    while (end < line_.size() && line_[end] >= '0' && line_[end] <= '9') ++end;
    if (end == at_) return error(wanted);
    if (MaybeError e = parse_u64(line_.substr(at_, end - at_), column(), n)) return e;
    at_ = end;
    return std::nullopt;
  }

  MaybeError base64(std::string& bytes) {
    const std::size_t first = column() + 1;
    const std::size_t start = at_;
    if (MaybeError e = string(text_)) return e;
    // If the string has an escape, its characters do not match the columns.
    const bool escaped = at_ - start != text_.size() + 2;
    MaybeError e = parse_base64(text_, escaped ? 1 : first, bytes);
    if (e && escaped) e->column = first;
    return e;
  }

  MaybeError string(std::string& out) {
    out.clear();
    if (at_ >= line_.size() || line_[at_] != '"') return error("a string in \" expected");
    ++at_;
    while (true) {
      std::size_t run = at_;
      while (run < line_.size() && kPlainInJson[static_cast<unsigned char>(line_[run])]) ++run;
      out.append(line_, at_, run - at_);
      at_ = run;
      if (at_ == line_.size()) return error("the string has no closing \"");
      const unsigned c = static_cast<unsigned char>(line_[at_]);
      if (c == '"') {
        ++at_;
        return std::nullopt;
      }
      if (c == '\\') {
        if (MaybeError e = escape(out)) return e;
      } else if (c < 0x20) {
        return error(fmt::format("control byte 0x{:02x} in a string; write \\u{:04x}", c, c));
      } else {
        const std::size_t n = utf8_sequence(line_, at_);
        if (n == 0) {
          return error(
              fmt::format("byte 0x{:02x} is not UTF-8; write bytes as key_base64 or "
                          "value_base64",
                          c));
        }
        out.append(line_, at_, n);
        at_ += n;
      }
    }
  }

  MaybeError escape(std::string& out) {
    if (at_ + 1 == line_.size()) return error("the string has no closing \"");
    switch (line_[at_ + 1]) {
      case '"':
        out += '"';
        break;
      case '\\':
        out += '\\';
        break;
      case '/':
        out += '/';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'u':
        return unicode_escape(out);
      default:
        return error("unknown escape; JSON has \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    }
    at_ += 2;
    return std::nullopt;
  }

  // One \uXXXX, or two that form a surrogate pair.
  MaybeError unicode_escape(std::string& out) {
    std::uint32_t code = 0;
    if (!hex4(at_ + 2, code)) return error("\\u without four hexadecimal digits");
    std::size_t bytes = 6;
    if (code >= 0xdc00 && code <= 0xdfff) {
      return error("a low surrogate without the high one before it");
    }
    if (code >= 0xd800 && code <= 0xdbff) {
      std::uint32_t low = 0;
      const bool pair =
          line_.substr(at_ + 6, 2) == "\\u" && hex4(at_ + 8, low) && low >= 0xdc00 && low <= 0xdfff;
      if (!pair) return error("a high surrogate without \\uDC00..\\uDFFF after it");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      bytes = 12;
    }
    append_utf8(code, out);
    at_ += bytes;
    return std::nullopt;
  }

  bool hex4(std::size_t from, std::uint32_t& code) const {
    if (from + 4 > line_.size()) return false;
    code = 0;
    for (std::size_t i = from; i < from + 4; ++i) {
      const char c = line_[i];
      std::uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<std::uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<std::uint32_t>(c - 'a') + 10;
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<std::uint32_t>(c - 'A') + 10;
      } else {
        return false;
      }
      code = code << 4 | digit;
    }
    return true;
  }

  static void append_utf8(std::uint32_t code, std::string& out) {
    const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xc0 | code >> 6);
      put(0x80 | (code & 63));
    } else if (code < 0x10000) {
      put(0xe0 | code >> 12);
      put(0x80 | (code >> 6 & 63));
      put(0x80 | (code & 63));
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 63));
      put(0x80 | (code >> 6 & 63));
      put(0x80 | (code & 63));
    }
  }

  void blanks() {
    while (at_ < line_.size() &&
           (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r' || line_[at_] == '\n')) {
      ++at_;
    }
  }
  bool take(char c) {
    if (at_ >= line_.size() || line_[at_] != c) return false;
    ++at_;
    return true;
  }
  MaybeError expect(char c) {
    blanks();
    if (take(c)) return std::nullopt;
    return error(fmt::format("'{}' expected", c));
  }
  std::size_t column() const { return at_ + 1; }
  MaybeError error(std::string what) const { return FormatError{column(), std::move(what)}; }

  RecordShape shape_;
  std::string_view line_;
  std::size_t at_ = 0;
  std::string name_;
  std::string text_;
};

}  // namespace

MaybeError parse_json_record(RecordShape shape, std::string_view line, Record& record) {
  return Reader(shape, line).read(record);
}

bool parse_json_collection(std::string_view line, std::string& name, std::string& form) {
  return Reader(KeyOrder::bytes, line).read_collection(name, form);
}

}  // namespace tenuto::tool
