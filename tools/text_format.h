// How bytes are written as text: escapes, hexadecimal, base64, JSON strings. Every parser either
// takes the whole text or says in which column it is wrong and what belongs there; none of them can
// crash on any input. tools/tenuto.md defines the formats for users.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenuto::tool {

// Why a text was refused. Columns count bytes from 1.
struct FormatError {
  std::size_t column = 1;
  std::string what;  // what is wrong and what would be right
};
// Nothing when the text was accepted.
using MaybeError = std::optional<FormatError>;

// Bytes of the well-formed UTF-8 sequence that starts at text[at] (1..4), 0 when there is none.
// REQUIRES: at < text.size().
std::size_t utf8_sequence(std::string_view text, std::size_t at);
bool is_utf8(std::string_view bytes);

// The canonical escaped form: printable ASCII but the backslash, and well-formed UTF-8 from U+00A0
// on, stand for themselves; \\ \t \n \r \0 and \xhh (lower case) stand for the rest. The result
// contains no control character and is always UTF-8.
void append_escaped(std::string& out, std::string_view bytes);
// Accepts every byte but raw TAB, LF and CR as itself, the escapes above and \xHH in either case.
// The first byte of `text` is in `column` of its line.
MaybeError parse_escaped(std::string_view text, std::size_t column, std::string& bytes);

void append_hex(std::string& out, std::string_view bytes);  // lower case
MaybeError parse_hex(std::string_view text, std::size_t column, std::string& bytes);

void append_base64(std::string& out, std::string_view bytes);  // RFC 4648, padded
// Only the one form that append_base64 writes: no blanks, right padding, zero spare bits.
MaybeError parse_base64(std::string_view text, std::size_t column, std::string& bytes);

// What a JSON string holds as it stands, beside longer UTF-8 sequences.
constexpr std::array<bool, 256> make_plain_in_json() {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}
inline constexpr std::array<bool, 256> kPlainInJson = make_plain_in_json();

// A JSON string with its quotes: UTF-8 as it is, short escapes where JSON has them, \u00hh for
// other controls. Bytes that are not UTF-8 become U+FFFD, so that two texts may look alike: for
// words of ours.
void append_json_string(std::string& out, std::string_view text);
// For bytes of the user's (keys, values, names, paths): `"name":"text"`, or
// `"name_base64":"..."` where they are not UTF-8. Different bytes give different members.
void append_json_member(std::string& out, std::string_view name, std::string_view bytes);

// A short, terminal-safe picture of a key for messages: quoted, escaped, cut in the middle.
std::string in_quotes(std::string_view bytes);

// A byte as a message points at it: 'x', byte 0x0a.
std::string byte_name(unsigned byte);

}  // namespace tenuto::tool
