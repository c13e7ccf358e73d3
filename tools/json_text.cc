// See json_text.h.
#include "json_text.h"

#include <algorithm>

#include <fmt/format.h>

namespace tenuto::tool {
namespace {

constexpr unsigned kDepthMax = 512;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::uint32_t code, std::string& out) {
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

}  // namespace

void JsonText::blanks() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n')) {
    ++at_;
  }
}

bool JsonText::take(char c) {
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

MaybeError JsonText::expect(char c) {
  blanks();
  if (take(c)) return std::nullopt;
  return error(fmt::format("'{}' expected", c));
}

MaybeError JsonText::string(std::string& out) {
  out.clear();
  if (at_ >= text_.size() || text_[at_] != '"') return error("a string in \" expected");
  ++at_;
  while (true) {
    std::size_t run = at_;
    while (run < text_.size() && kPlainInJson[static_cast<unsigned char>(text_[run])]) ++run;
    out.append(text_, at_, run - at_);
    at_ = run;
    if (at_ == text_.size()) return error("the string has no closing \"");
    const unsigned c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') {
      ++at_;
      return std::nullopt;
    }
    if (c == '\\') {
      if (MaybeError e = escape(out)) return e;
    } else if (c < 0x20) {
      return error(fmt::format("control byte 0x{:02x} in a string; write \\u{:04x}", c, c));
    } else {
      const std::size_t n = utf8_sequence(text_, at_);
      if (n == 0) {
        return error(
            fmt::format("byte 0x{:02x} is not UTF-8; write bytes as key_base64 or "
                        "value_base64",
                        c));
      }
      out.append(text_, at_, n);
      at_ += n;
    }
  }
}

MaybeError JsonText::escape(std::string& out) {
  if (at_ + 1 == text_.size()) return error("the string has no closing \"");
  switch (text_[at_ + 1]) {
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
MaybeError JsonText::unicode_escape(std::string& out) {
  std::uint32_t code = 0;
  if (!hex4(at_ + 2, code)) return error("\\u without four hexadecimal digits");
  std::size_t bytes = 6;
  if (code >= 0xdc00 && code <= 0xdfff) {
    return error("a low surrogate without the high one before it");
  }
  if (code >= 0xd800 && code <= 0xdbff) {
    std::uint32_t low = 0;
    const bool pair =
        text_.substr(at_ + 6, 2) == "\\u" && hex4(at_ + 8, low) && low >= 0xdc00 && low <= 0xdfff;
    if (!pair) return error("a high surrogate without \\uDC00..\\uDFFF after it");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    bytes = 12;
  }
  append_utf8(code, out);
  at_ += bytes;
  return std::nullopt;
}

bool JsonText::hex4(std::size_t from, std::uint32_t& code) const {
  if (from + 4 > text_.size()) return false;
  code = 0;
  for (std::size_t i = from; i < from + 4; ++i) {
    const char c = text_[i];
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

MaybeError JsonText::value(unsigned depth) {
  if (depth > kDepthMax) return error(fmt::format("nested deeper than {}", kDepthMax));
  blanks();
  const char c = next();
  if (c == '"') return string(skipped_);
  if (take('{')) return nested('}', depth);
  if (take('[')) return nested(']', depth);
  if (c == '-' || is_digit(c)) return number();
  for (const std::string_view word : {"true", "false", "null"}) {
    if (text_.substr(at_, word.size()) != word) continue;
    at_ += word.size();
    return std::nullopt;
  }
  return error("a value expected");
}

// The rest of an object or array.
MaybeError JsonText::nested(char end, unsigned depth) {
  blanks();
  if (take(end)) return std::nullopt;
  do {
    if (end == '}') {
      blanks();
      if (MaybeError e = string(skipped_)) return e;
      if (MaybeError e = expect(':')) return e;
    }
    if (MaybeError e = value(depth + 1)) return e;
    blanks();
  } while (take(','));
  if (take(end)) return std::nullopt;
  return error(fmt::format("',' or '{}' expected", end));
}

MaybeError JsonText::number() {
  const auto digits = [this] {
    const std::size_t from = at_;
    while (is_digit(next())) ++at_;
    return at_ > from;
  };
  take('-');
  if (!take('0') && !digits()) return error("a digit expected");
  if (is_digit(next())) return error("a number has no leading zero");
  if (take('.') && !digits()) return error("a digit expected");
  if (take('e') || take('E')) {
    if (!take('+')) take('-');
    if (!digits()) return error("a digit expected");
  }
  return std::nullopt;
}

}  // namespace tenuto::tool
