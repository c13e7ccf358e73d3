// The hash of a key. It is part of the format, because fingerprints and slot words are on media. It
// takes CRC-32C steps (a CPU instruction), then mixes by one multiplication, so that successive
// keys spread.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "pm/crc32c.h"
#include "tenuto/abi.h"

namespace TENUTO_NS::store {

struct KeyHash {
  std::uint8_t fingerprint;  // never 0: 0 marks an empty slot in DRAM
  std::uint16_t slot;        // the 16 bits in the slot word
  std::uint64_t mixed;       // what both are taken from; not on media
};

// Cost: one 3-cycle instruction per eight bytes of key.
inline KeyHash hash_key(std::string_view key) {
  const char* p = key.data();
  std::size_t n = key.size();
  auto crc = static_cast<std::uint32_t>(n);
  for (; n >= 8; n -= 8, p += 8) {
    std::uint64_t w;
    std::memcpy(&w, p, 8);
    crc = pm::crc32c_u64(crc, w);
  }
  for (; n > 0; --n, ++p) crc = pm::crc32c_u8(crc, static_cast<std::uint8_t>(*p));
  const std::uint64_t mixed = crc * 0x9e3779b97f4a7c15ull;
  const auto fingerprint = static_cast<std::uint8_t>(mixed >> 56);
  return {fingerprint == 0 ? std::uint8_t{0xff} : fingerprint,
          static_cast<std::uint16_t>(mixed >> 40), mixed};
}

}  // namespace TENUTO_NS::store
