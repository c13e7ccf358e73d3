// See numbers.h.
#include "numbers.h"

#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace tenuto::tool {
namespace {

MaybeError refuse(std::size_t column, std::string what) {
  return FormatError{column, std::move(what)};
}

}  // namespace

MaybeError parse_u64(std::string_view text, std::size_t column, std::uint64_t& n) {
  if (text.empty()) return refuse(column, "nothing where a number belongs");
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] < '0' || text[i] > '9') {
      return refuse(column + i, byte_name(byte_at(text, i)) + " is not a decimal digit");
    }
  }
  if (text.size() > 1 && text[0] == '0') return refuse(column, "a number with a leading zero");
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (code != std::errc{}) return refuse(column, "a number above 18446744073709551615");
  return std::nullopt;
}

MaybeError parse_size(std::string_view text, std::uint64_t& bytes) {
  constexpr const char* kForm = "; a size is a number with K, M, G or T, such as 64M";
  double number = 0;
  const auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (code != std::errc{} || number < 0 || !std::isfinite(number)) {
    return refuse(1, std::string("no number") + kForm);
  }
  std::size_t at = static_cast<std::size_t>(end - text.data());
  const std::string_view digits = text.substr(0, at);
  unsigned shift = 0;
  if (at < text.size()) {
    const char c = static_cast<char>(text[at] & ~0x20);  // upper case
    if (c == 'K') shift = 10;
    if (c == 'M') shift = 20;
    if (c == 'G') shift = 30;
    if (c == 'T') shift = 40;
    if (shift != 0) ++at;
    const std::string_view rest = text.substr(at);
    const bool unit = rest.empty() || rest == "B" || rest == "b" ||
                      (shift != 0 && (rest == "iB" || rest == "ib" || rest == "IB"));
    if (!unit) return refuse(at + 1, fmt::format("{} is no unit{}", in_quotes(rest), kForm));
  }
  // Parses whole numbers exactly: a double has only 53 bits.
  if (digits.find('.') == std::string_view::npos) {
    std::uint64_t whole = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), whole);
    if (parsed.ec != std::errc{} || whole > std::numeric_limits<std::uint64_t>::max() >> shift) {
      return refuse(1, "a size beyond 64 bits");
    }
    bytes = whole << shift;
    return std::nullopt;
  }
  const double scaled = number * static_cast<double>(std::uint64_t{1} << shift);
  if (scaled >= 9.2e18) return refuse(1, "a size beyond 64 bits");
  bytes = static_cast<std::uint64_t>(std::llround(scaled));
  return std::nullopt;
}

std::string format_size(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
  double n = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.95 would be printed as 1024.0.
  while (n >= 1023.95 && unit + 1 < std::size(kUnits)) {
    n /= 1024;
    ++unit;
  }
  std::string number = fmt::format("{:.1f}", n);
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  return number + " " + kUnits[unit];
}

std::string format_count(std::uint64_t n) {
  std::string digits = std::to_string(n);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

}  // namespace tenuto::tool
