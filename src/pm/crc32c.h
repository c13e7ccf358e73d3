// CRC-32C (Castagnoli), the checksum of everything on media. Uses the CPU's instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tenuto/abi.h"

namespace tenuto::inline TENUTO_ABI::pm {

// One step of 8 bytes. `asm` instead of the intrinsic, so that no file needs -msse4.2.
inline std::uint32_t crc32c_u64(std::uint32_t crc, std::uint64_t word) {
  std::uint64_t c = crc;
  asm("crc32q %1, %0" : "+r"(c) : "r"(word));
  return static_cast<std::uint32_t>(c);
}

inline std::uint32_t crc32c_u8(std::uint32_t crc, std::uint8_t byte) {
  asm("crc32b %1, %0" : "+r"(crc) : "r"(byte));
  return crc;
}

// The checksum of [p, p + bytes) continued from `crc` (start with 0).
inline std::uint32_t crc32c(const void* p, std::size_t bytes, std::uint32_t crc = 0) {
  const auto* b = static_cast<const unsigned char*>(p);
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, b += 8) {
    std::uint64_t w;
    std::memcpy(&w, b, 8);
    crc = crc32c_u64(crc, w);
  }
  for (; bytes > 0; --bytes, ++b) crc = crc32c_u8(crc, *b);
  return ~crc;
}

}  // namespace tenuto::inline TENUTO_ABI::pm
