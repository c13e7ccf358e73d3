// Escapes, hexadecimal, base64 and JSON strings. See text_format.h.
#include "text_format.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

namespace tenuto::tool {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";
constexpr char kBase64Digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr std::array<std::int8_t, 256> make_base64_values() {
  std::array<std::int8_t, 256> values{};
  for (auto& v : values) v = -1;
  for (int i = 0; i < 64; ++i) {
    values[static_cast<unsigned char>(kBase64Digits[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}
constexpr std::array<std::int8_t, 256> kBase64Values = make_base64_values();

// The bytes that parse_escaped takes unchanged.
constexpr std::array<bool, 256> make_plain_in_field() {
  std::array<bool, 256> plain{};
  for (auto& p : plain) p = true;
  for (const char c : {'\\', '\t', '\n', '\r'}) plain[static_cast<unsigned char>(c)] = false;
  return plain;
}
constexpr std::array<bool, 256> kPlainInField = make_plain_in_field();

// The ASCII bytes that append_escaped writes unchanged.
bool is_plain_ascii(unsigned c) { return c >= 0x20 && c < 0x7f && c != '\\'; }

void append_hex_byte(std::string& out, unsigned byte) {
  out += kHexDigits[byte >> 4 & 15];
  out += kHexDigits[byte & 15];
}

MaybeError error_at(std::size_t column, std::string what) {
  return FormatError{column, std::move(what)};
}

}  // namespace

std::string byte_name(unsigned byte) {
  if (byte > 0x20 && byte < 0x7f) return fmt::format("'{}'", static_cast<char>(byte));
  return fmt::format("byte 0x{:02x}", byte);
}

std::size_t utf8_sequence(std::string_view text, std::size_t at) {
  const unsigned first = byte_at(text, at);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() - at < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte_at(text, at + i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte_at(text, at + 1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0;
  const bool beyond = first == 0xf4 && second >= 0x90;
  return overlong || surrogate || beyond ? 0 : bytes;
}

bool is_utf8(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    // Text is mostly ASCII, so check eight bytes at a time.
    for (std::uint64_t word = 0; bytes.size() - i >= sizeof word; i += sizeof word) {
      std::memcpy(&word, bytes.data() + i, sizeof word);
      if ((word & 0x8080808080808080) != 0) break;
    }
    if (i == bytes.size()) break;
    const std::size_t n = utf8_sequence(bytes, i);
    if (n == 0) return false;
    i += n;
  }
  return true;
}

void append_escaped(std::string& out, std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const unsigned c = byte_at(bytes, i);
    std::size_t n = 1;
    if (is_plain_ascii(c)) {
      while (i + n < bytes.size() && is_plain_ascii(byte_at(bytes, i + n))) ++n;
      out.append(bytes, i, n);
      i += n;
      continue;
    }
    switch (c) {
      case '\\':
        out += "\\\\";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\0':
        out += "\\0";
        break;
      default: {
        const std::size_t sequence = c < 0x80 ? 0 : utf8_sequence(bytes, i);
        // U+0080..U+009F are controls, and some terminals execute them.
        const bool c1_control = c == 0xc2 && sequence == 2 && byte_at(bytes, i + 1) < 0xa0;
        if (sequence == 0 || c1_control) {
          out += "\\x";
          append_hex_byte(out, c);
        } else {
          n = sequence;
          out.append(bytes, i, n);
        }
      }
    }
    i += n;
  }
}

MaybeError parse_escaped(std::string_view text, std::size_t column, std::string& bytes) {
  bytes.clear();
  for (std::size_t i = 0; i < text.size();) {
    std::size_t run = i;
    while (run < text.size() && kPlainInField[byte_at(text, run)]) ++run;
    bytes.append(text, i, run - i);
    i = run;
    if (i == text.size()) break;
    if (text[i] == '\t') return error_at(column + i, "a TAB; one inside a field is written \\t");
    if (text[i] == '\n') return error_at(column + i, "a line feed; in a field it is written \\n");
    if (text[i] == '\r') {
      return error_at(column + i,
                      "a carriage return; one that belongs to the field is written \\r, "
                      "and a file with CRLF line ends must be converted to LF");
    }
    if (i + 1 == text.size()) {
      return error_at(column + i, "a backslash at the end; a backslash is written \\\\");
    }
    switch (text[i + 1]) {
      case '\\':
        bytes += '\\';
        break;
      case 't':
        bytes += '\t';
        break;
      case 'n':
        bytes += '\n';
        break;
      case 'r':
        bytes += '\r';
        break;
      case '0':
        bytes += '\0';
        break;
      case 'x': {
        const int high = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
        const int low = i + 3 < text.size() ? hex_value(text[i + 3]) : -1;
        if (high < 0 || low < 0) {
          return error_at(column + i, "\\x without two hexadecimal digits");
        }
        bytes += static_cast<char>(high * 16 + low);
        i += 2;
        break;
      }
      default:
        return error_at(column + i, fmt::format("unknown escape, backslash and {}; the escapes are "
                                                "\\\\ \\t \\n \\r \\0 \\xHH",
                                                byte_name(byte_at(text, i + 1))));
    }
    i += 2;
  }
  return std::nullopt;
}

void append_hex(std::string& out, std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) append_hex_byte(out, byte_at(bytes, i));
}

MaybeError parse_hex(std::string_view text, std::size_t column, std::string& bytes) {
  bytes.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (hex_value(text[i]) < 0) {
      return error_at(column + i, byte_name(byte_at(text, i)) + " is not a hexadecimal digit");
    }
  }
  if (text.size() % 2 != 0) {
    return error_at(column + text.size(), "an odd number of hexadecimal digits; two make a byte");
  }
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes += static_cast<char>(hex_value(text[i]) * 16 + hex_value(text[i + 1]));
  }
  return std::nullopt;
}

void append_base64(std::string& out, std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = bytes.size() - i < 3 ? bytes.size() - i : 3;
    unsigned word = byte_at(bytes, i) << 16;
    if (n > 1) word |= byte_at(bytes, i + 1) << 8;
    if (n > 2) word |= byte_at(bytes, i + 2);
    out += kBase64Digits[word >> 18];
    out += kBase64Digits[word >> 12 & 63];
    out += n > 1 ? kBase64Digits[word >> 6 & 63] : '=';
    out += n > 2 ? kBase64Digits[word & 63] : '=';
  }
}

MaybeError parse_base64(std::string_view text, std::size_t column, std::string& bytes) {
  bytes.clear();
  if (text.size() % 4 != 0) {
    return error_at(column, fmt::format("base64 of {} characters; the length is a multiple of 4, "
                                        "padded with =",
                                        text.size()));
  }
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  unsigned word = 0;
  for (std::size_t i = 0; i < text.size() - padding; ++i) {
    const std::int8_t value = kBase64Values[byte_at(text, i)];
    if (value < 0) {
      return error_at(column + i, byte_name(byte_at(text, i)) + " is not a base64 character");
    }
    word = word << 6 | static_cast<std::uint8_t>(value);
    if (i % 4 == 3) {
      bytes += static_cast<char>(word >> 16 & 255);
      bytes += static_cast<char>(word >> 8 & 255);
      bytes += static_cast<char>(word & 255);
      word = 0;
    }
  }
  if (padding == 0) return std::nullopt;
  // One byte leaves 4 spare bits, two leave 2. They must be zero: each value has one text.
  const unsigned spare_bits = padding == 2 ? 4 : 2;
  if ((word & ((1u << spare_bits) - 1)) != 0) {
    return error_at(column + text.size() - padding - 1,
                    "base64 whose unused last bits are not zero");
  }
  word >>= spare_bits;
  if (padding == 1) bytes += static_cast<char>(word >> 8 & 255);
  bytes += static_cast<char>(word & 255);
  return std::nullopt;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    std::size_t n = 0;
    while (i + n < text.size() && kPlainInJson[byte_at(text, i + n)]) ++n;
    out.append(text, i, n);
    i += n;
    if (i == text.size()) break;
    const unsigned c = byte_at(text, i);
    n = 1;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (c < 0x20) {
          out += "\\u00";
          append_hex_byte(out, c);
        } else if (const std::size_t sequence = utf8_sequence(text, i); sequence == 0) {
          out += "\xef\xbf\xbd";
        } else {
          n = sequence;
          out.append(text, i, n);
        }
    }
    i += n;
  }
  out += '"';
}

void append_json_member(std::string& out, std::string_view name, std::string_view bytes) {
  out += '"';
  out += name;
  if (is_utf8(bytes)) {
    out += "\":";
    append_json_string(out, bytes);
  } else {
    out += "_base64\":\"";
    append_base64(out, bytes);
    out += '"';
  }
}

std::string in_quotes(std::string_view bytes) {
  constexpr std::size_t kShown = 64;
  std::string text = "\"";
  append_escaped(text, bytes.substr(0, kShown));
  if (bytes.size() > kShown) {
    return text + fmt::format("...\" ({} bytes)", bytes.size());
  }
  return text + '"';
}

}  // namespace tenuto::tool
