// Numbers and sizes as text, for options, keys of u64 stores and messages. As in text_format.h a
// parser takes the whole text or names the column where it is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text_format.h"

namespace tenuto::tool {

// Decimal without sign, blanks or leading zeros, so that every number has one text.
MaybeError parse_u64(std::string_view text, std::size_t column, std::uint64_t& n);

// "64M", "1.5GiB", "4096": bytes with the suffix K, M, G, T (powers of 1024; iB or B may follow).
MaybeError parse_size(std::string_view text, std::uint64_t& bytes);
std::string format_size(std::uint64_t bytes);  // "64 MiB", "1.5 GiB", "17 bytes"

// 1234567 -> "1,234,567".
std::string format_count(std::uint64_t n);

}  // namespace tenuto::tool
