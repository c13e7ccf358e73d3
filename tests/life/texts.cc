#include "texts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

namespace tenuto::life {
namespace {

std::string masked(std::string_view bytes) {
  std::string out(bytes);
  for (char& c : out) c = static_cast<char>(c ^ 0x5a);
  return out;
}

using Ranks = std::array<std::vector<std::uint32_t>, 6>;

Ranks make_ranks() {
  Ranks ranks;
  for (unsigned o = 1; o <= 5; ++o) {
    const auto order = static_cast<KeyOrder>(o);
    const Encoding encoding{order};
    std::vector<std::string> text(kKeys);
    for (unsigned k = 0; k < kKeys; ++k) {
      text[k] = key_text(encoding.numbers(), k);
      if (order == KeyOrder::registered) text[k] = masked(text[k]);
    }
    std::vector<std::uint32_t> sorted(kKeys);
    std::iota(sorted.begin(), sorted.end(), 0u);
    std::ranges::sort(sorted, {}, [&](std::uint32_t k) -> const std::string& { return text[k]; });
    if (encoding.reverse()) std::ranges::reverse(sorted);
    ranks[o].resize(kKeys);
    for (unsigned at = 0; at < kKeys; ++at) ranks[o][sorted[at]] = at;
  }
  return ranks;
}

char filling(std::uint64_t tag, std::size_t at) {
  return static_cast<char>((tag >> 24) * 31 + at * 7 + at / 251);
}

}  // namespace

KeyCodec masked_codec() {
  const auto both = [](std::string_view from, std::string& to) {
    to += masked(from);
    return true;
  };
  return {kCodec, both, both};
}

std::uint64_t Encoding::word() const {
  return static_cast<std::uint64_t>(order) | (duplicates ? 8 : 0) | (expires ? 16 : 0);
}
Encoding Encoding::of(std::uint64_t word) {
  const std::uint64_t order = word & 7;
  return {static_cast<KeyOrder>(order >= 1 && order <= 5 ? order : 1), (word & 8) != 0,
          (word & 16) != 0};
}

std::string key_text(bool numbers, std::uint64_t key) {
  if (numbers) return std::string(u64_key(key));
  if (key == 0) return {};
  char text[16];
  std::string s(text, static_cast<std::size_t>(
                          std::snprintf(text, sizeof text, "k%04u", static_cast<unsigned>(key))));
  if (key % 13 == 5) s += std::string("\0z", 2);
  if (key % 5 == 1) s.append(40, 'x');
  if (key % 97 == 3) s.append(700, 'y');
  return s;
}

std::optional<std::uint64_t> key_of(bool numbers, std::string_view text) {
  std::uint64_t key = 0;
  if (numbers) {
    if (text.size() != 8) return std::nullopt;
    for (const char c : text) key = key << 8 | static_cast<unsigned char>(c);
  } else if (!text.empty()) {
    if (text.size() < 5 || text[0] != 'k') return std::nullopt;
    const auto [end, error] = std::from_chars(text.data() + 1, text.data() + 5, key);
    if (error != std::errc() || end != text.data() + 5) return std::nullopt;
  }
  if (key >= kKeys || key_text(numbers, key) != text) return std::nullopt;
  return key;
}

std::uint32_t rank_of(KeyOrder order, std::uint64_t key) {
  static const Ranks ranks = make_ranks();
  if (key >= kKeys) return kKeys;
  return ranks[static_cast<std::size_t>(order)][key];
}

std::string value_text(std::uint64_t tag) {
  if (tag == 0) return {};
  std::string text(bytes_of_tag(tag), '\0');
  char head[17];
  std::snprintf(head, sizeof head, "%016llx", static_cast<unsigned long long>(tag));
  std::memcpy(text.data(), head, 16);
  for (std::size_t at = 16; at < text.size(); ++at) text[at] = filling(tag, at);
  return text;
}

std::optional<std::uint64_t> tag_of(std::string_view value) {
  if (value.empty()) return 0;
  std::uint64_t tag = 0;
  if (value.size() < 16) return std::nullopt;
  const auto [end, error] = std::from_chars(value.data(), value.data() + 16, tag, 16);
  if (error != std::errc() || end != value.data() + 16) return std::nullopt;
  if (bytes_of_tag(tag) != value.size()) return std::nullopt;
  for (std::size_t at = 16; at < value.size(); ++at) {
    if (value[at] != filling(tag, at)) return std::nullopt;
  }
  return tag;
}

std::string name_text(std::uint64_t name) { return "name" + std::to_string(name); }
std::optional<std::uint64_t> name_of(std::string_view text) {
  if (text.size() != 5 || !text.starts_with("name")) return std::nullopt;
  const unsigned n = static_cast<unsigned char>(text[4]) - unsigned{'0'};
  if (n >= kNames) return std::nullopt;
  return n;
}

}  // namespace tenuto::life
