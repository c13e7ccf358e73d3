// Bytes as text: escapes, hexadecimal, base64, JSON strings. Every parser accepts the whole text,
// or returns the column of the error and what belongs there. No input can crash a parser.
// tools/tenuto.md defines the formats for users.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenuto::tool {

inline unsigned byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// Why a text was refused. Columns count bytes from 1.
struct FormatError {
  std::size_t column = 1;
  std::string what;  // what is wrong and what would be correct
};
// nullopt: the text was accepted.
using MaybeError = std::optional<FormatError>;

// The length (1..4) of the well-formed UTF-8 sequence that starts at text[at]; 0 if there is none.
// REQUIRES: at < text.size().
std::size_t utf8_sequence(std::string_view text, std::size_t at);
bool is_utf8(std::string_view bytes);

// The canonical escaped form. Printable ASCII except the backslash, and well-formed UTF-8 from
// U+00A0 on, stay as they are. Everything else becomes \\ \t \n \r \0 or \xhh (lower case). The
// result has no control characters and is always UTF-8.
void append_escaped(std::string& out, std::string_view bytes);
// Accepts every byte except raw TAB, LF and CR as itself. Also accepts the escapes above, and \xHH
// in either case. `column` is the column of the first byte of `text` in its line.
MaybeError parse_escaped(std::string_view text, std::size_t column, std::string& bytes);

void append_hex(std::string& out, std::string_view bytes);  // lower case
MaybeError parse_hex(std::string_view text, std::size_t column, std::string& bytes);

void append_base64(std::string& out, std::string_view bytes);  // RFC 4648, padded
// Accepts only what append_base64 writes: no blanks, correct padding, zero spare bits.
MaybeError parse_base64(std::string_view text, std::size_t column, std::string& bytes);

// The single bytes that a JSON string holds unescaped. Longer UTF-8 sequences are not in it.
constexpr std::array<bool, 256> make_plain_in_json() {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}
inline constexpr std::array<bool, 256> kPlainInJson = make_plain_in_json();

// Appends a JSON string with its quotes: UTF-8 unchanged, short escapes where JSON has them, \u00hh
// for other controls. Bytes that are not UTF-8 become U+FFFD, so two texts may become equal. Use it
// for the tool's own texts.
void append_json_string(std::string& out, std::string_view text);
// For the user's bytes (keys, values, names, paths). Appends `"name":"text"`, or
// `"name_base64":"..."` if they are not UTF-8. Different bytes give different members.
void append_json_member(std::string& out, std::string_view name, std::string_view bytes);

// A key for messages, safe on a terminal: quoted, escaped, cut after 64 bytes.
std::string in_quotes(std::string_view bytes);

// A byte's name in messages: 'x', byte 0x0a.
std::string byte_name(unsigned byte);

}  // namespace tenuto::tool
