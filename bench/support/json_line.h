// Builds one JSON object on one line: the output of --json for each case. Absent fields are not
// added. Numbers have six digits, which is enough for plots.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace bench {

// A JSON string, with its quotation marks.
inline std::string json_text(std::string_view s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

class JsonLine {
 public:
  JsonLine& text(std::string_view name, std::string_view value) {
    return raw(name, json_text(value));
  }
  JsonLine& integer(std::string_view name, std::integral auto value) {
    begin(name);
    out_ += std::to_string(value);
    return *this;
  }
  JsonLine& flag(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
  JsonLine& number(std::string_view name, double value) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.6g", std::isfinite(value) ? value : 0.0);
    return raw(name, digits);
  }
  // `json` is already valid JSON: an object, array or literal.
  JsonLine& raw(std::string_view name, std::string_view json) {
    begin(name);
    out_ += json;
    return *this;
  }
  std::string str() const { return out_ + "}"; }

 private:
  void begin(std::string_view name) {
    if (out_.size() > 1) out_ += ',';
    out_ += json_text(name) + ':';
  }

  std::string out_ = "{";
};

}  // namespace bench
