// Numbers and sizes as text, for options, keys of u64 stores and messages. As in text_format.h, a
// parser accepts the whole text or returns the column of the error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text_format.h"

namespace tenuto::tool {

// Decimal without sign, blanks or leading zeros, so each number has exactly one text.
MaybeError parse_u64(std::string_view text, std::size_t column, std::uint64_t& n);

// "64M", "1.5GiB", "4096": bytes, with suffix K, M, G or T (powers of 1024), then optional iB or B.
MaybeError parse_size(std::string_view text, std::uint64_t& bytes);
std::string format_size(std::uint64_t bytes);  // "64 MiB", "1.5 GiB", "17 bytes"

// 1234567 -> "1,234,567".
std::string format_count(std::uint64_t n);

}  // namespace tenuto::tool
