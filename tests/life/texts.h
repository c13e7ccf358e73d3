// Keys and values of lives. A key is a number below kKeys. The number decides whether its text is
// short or long, and whether it has zero bytes. A value has a tag that no other value has (with
// duplicates: one of a few), and bytes that follow from the tag, so that a torn value is
// recognised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "story.h"
#include "tenuto/collection.h"

namespace tenuto::life {

inline constexpr const char* kCodec = "masked";
KeyCodec masked_codec();

// The encoding of a collection, in steps and in looks.
struct Encoding {
  KeyOrder order = KeyOrder::bytes;
  bool duplicates = false, expires = false;
  bool numbers() const { return order == KeyOrder::u64 || order == KeyOrder::reverse_u64; }
  bool reverse() const { return order == KeyOrder::reverse || order == KeyOrder::reverse_u64; }
  std::uint64_t word() const;  // the inverse of of()
  static Encoding of(std::uint64_t word);
};

std::string key_text(bool numbers, std::uint64_t key);
std::optional<std::uint64_t> key_of(bool numbers, std::string_view text);
// The rank of a key among all keys in this order. What is no key (an open end of a range) ranks
// last.
std::uint32_t rank_of(KeyOrder order, std::uint64_t key);

// A tag contains the length of its value: at least 16 bytes, or none (tag 0).
inline constexpr std::uint64_t kTagLength = 1u << 24;
inline std::uint64_t make_tag(std::uint64_t number, std::uint64_t bytes) {
  return bytes == 0 ? 0 : number * kTagLength + (bytes < 16 ? 16 : bytes);
}
inline std::uint64_t bytes_of_tag(std::uint64_t tag) { return tag % kTagLength; }
std::string value_text(std::uint64_t tag);
// Returns nothing if no such value was ever written.
std::optional<std::uint64_t> tag_of(std::string_view value);

std::string name_text(std::uint64_t name);
std::optional<std::uint64_t> name_of(std::string_view text);

}  // namespace tenuto::life
