// The synthetic records of YCSB and the value hash; see records.h.
#include "bench/support/records.h"

#include <bit>
#include <cstring>

#include "bench/support/rng.h"

namespace bench {
namespace {

constexpr std::string_view kPrefix = "user";
constexpr std::size_t kDigits = 12;
constexpr char kDigitOf[] = "0123456789abcdefghijklmnopqrstuv";  // ascending, keeps the order
using DigitKeys = Permutation<5 * kDigits>;
using IntegerKeys = Permutation<64>;

std::uint64_t load_word(const char* p) {
  std::uint64_t w = 0;
  std::memcpy(&w, p, sizeof w);
  return w;
}

void store_word(char* p, std::uint64_t w) { std::memcpy(p, &w, sizeof w); }

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'v') return c - 'a' + 10;
  return -1;
}

std::uint64_t seed_of(std::string_view key, std::uint32_t version) {
  std::uint64_t h = load_word(key.data() + key.size() - 8) * 0x9e3779b97f4a7c15ull;
  if (key.size() >= 16) h ^= std::rotl(load_word(key.data() + key.size() - 16), 29);
  return h + version * 0xd6e8feb86659fd93ull;
}

// Word i of a value. It does not depend on its neighbours, so processors can overlap them.
std::uint64_t noise(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = seed + i * 0xa0761d6478bd642full;
  x = (x ^ (x >> 32)) * 0xe7037ed1a0b428dbull;
  return x ^ (x >> 29);
}

}  // namespace

std::size_t YcsbRecords::make_key(std::uint64_t record, char* out) const {
  if (key_bytes_ == 8) {
    store_word(out, __builtin_bswap64(ordered_ ? record : IntegerKeys::forward(record)));
    return 8;
  }
  std::uint64_t number = ordered_ ? record : DigitKeys::forward(record);
  std::memset(out, '0', key_bytes_);
  std::memcpy(out, kPrefix.data(), kPrefix.size());
  for (std::size_t i = 0; i < kDigits; ++i) {
    out[key_bytes_ - 1 - i] = kDigitOf[number & 31];
    number >>= 5;
  }
  return key_bytes_;
}

std::optional<std::uint64_t> YcsbRecords::record_of(std::string_view key) const {
  if (key.size() != key_bytes_) return std::nullopt;
  if (key_bytes_ == 8) {
    const std::uint64_t number = __builtin_bswap64(load_word(key.data()));
    return ordered_ ? number : IntegerKeys::backward(number);
  }
  std::uint64_t number = 0;
  for (const char c : key.substr(key_bytes_ - kDigits)) {
    const int digit = digit_value(c);
    if (digit < 0) return std::nullopt;
    number = number << 5 | static_cast<std::uint64_t>(digit);
  }
  return ordered_ ? number : DigitKeys::backward(number);
}

std::size_t YcsbRecords::make_value(std::uint64_t, std::string_view key, std::uint32_t version,
                                    char* out) const {
  const std::uint64_t seed = seed_of(key, version);
  std::memcpy(out, &version, sizeof version);
  std::size_t at = sizeof version;
  for (std::uint64_t i = 0; at + 8 <= value_bytes_; ++i, at += 8)
    store_word(out + at, noise(seed, i));
  const std::uint64_t last = noise(seed, ~0ull);
  std::memcpy(out + at, &last, value_bytes_ - at);
  return value_bytes_;
}

bool YcsbRecords::check_value(std::string_view key, std::string_view value,
                              std::uint32_t& version) const {
  if (value.size() != value_bytes_) return false;
  std::memcpy(&version, value.data(), sizeof version);
  const std::uint64_t seed = seed_of(key, version);
  std::uint64_t different = 0;
  std::size_t at = sizeof version;
  for (std::uint64_t i = 0; at + 8 <= value_bytes_; ++i, at += 8) {
    different |= load_word(value.data() + at) ^ noise(seed, i);
  }
  std::uint64_t last = noise(seed, ~0ull);
  std::uint64_t found = last;
  std::memcpy(&found, value.data() + at, value_bytes_ - at);
  return (different | (found ^ last)) == 0;
}

std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed) {
  constexpr std::uint64_t kFactor[4] = {0xa0761d6478bd642full, 0xe7037ed1a0b428dbull,
                                        0x8ebc6af09c88c6e3ull, 0x589965cc75374cc3ull};
  std::uint64_t lane[4] = {seed, ~seed, seed ^ kFactor[0], bytes.size()};
  const char* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 32; p += 32, left -= 32) {
    for (int i = 0; i < 4; ++i) {
      lane[i] = std::rotl((lane[i] ^ load_word(p + 8 * i)) * kFactor[i], 31);
    }
  }
  for (int i = 0; left > 0; ++i) {
    const std::size_t n = left < 8 ? left : 8;
    std::uint64_t word = 0;
    std::memcpy(&word, p, n);
    lane[i] = std::rotl((lane[i] ^ word) * kFactor[i], 31);
    p += n;
    left -= n;
  }
  return mix64(mix64(lane[0] ^ std::rotl(lane[1], 16)) ^ lane[2] ^ std::rotl(lane[3], 16));
}

}  // namespace bench
