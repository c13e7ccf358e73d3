// A key order as users register one: decimal numbers by their value.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "tenuto/collection.h"

namespace tenuto::test {

inline KeyCodec decimal() {
  KeyCodec c;
  c.name = "decimal";
  c.encode = [](std::string_view key, std::string& out) {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), n);
    if (error != std::errc() || end != key.data() + key.size()) return false;
    out = std::string_view(u64_key(static_cast<std::uint64_t>(n) ^ 1ull << 63));
    return true;
  };
  c.decode = [](std::string_view bytes, std::string& out) {
    if (bytes.size() != 8) return false;
    std::uint64_t n = 0;
    for (const char b : bytes) n = n << 8 | static_cast<unsigned char>(b);
    out = std::to_string(static_cast<std::int64_t>(n ^ 1ull << 63));
    return true;
  };
  return c;
}

}  // namespace tenuto::test
