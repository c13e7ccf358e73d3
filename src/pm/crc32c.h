// CRC-32C (Castagnoli), the checksum of everything on media. It uses the processor's instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// One step of 8 bytes. `asm` instead of the intrinsic, so that no file needs -msse4.2.
// Wide: the register stays 64 bits wide from step to step, and its upper half is zero.
inline std::uint64_t crc32c_wide(std::uint64_t crc, std::uint64_t word) {
  asm("crc32q %1, %0" : "+r"(crc) : "r"(word));
  return crc;
}
inline std::uint32_t crc32c_u64(std::uint32_t crc, std::uint64_t word) {
  return static_cast<std::uint32_t>(crc32c_wide(crc, word));
}

inline std::uint32_t crc32c_u32(std::uint32_t crc, std::uint32_t word) {
  asm("crc32l %1, %0" : "+r"(crc) : "r"(word));
  return crc;
}

inline std::uint32_t crc32c_u8(std::uint32_t crc, std::uint8_t byte) {
  asm("crc32b %1, %0" : "+r"(crc) : "r"(byte));
  return crc;
}

// The same as crc32c(), which calls it for as many bytes: three chains of instructions at a time,
// because one instruction takes three cycles, and the processor starts one each cycle.
inline constexpr std::size_t kCrcLong = 576;
std::uint32_t crc32c_long(const void* p, std::size_t bytes, std::uint32_t crc);

inline std::uint32_t crc32c_short(const void* p, std::size_t bytes, std::uint32_t crc) {
  const auto* b = static_cast<const unsigned char*>(p);
  // The register stays 64 bits wide: narrowing it at each step would lengthen the dependency chain.
  std::uint64_t wide = static_cast<std::uint32_t>(~crc);
  struct [[gnu::packed, gnu::may_alias]] Words {
    std::uint64_t at[4];
  };
  for (; bytes >= sizeof(Words); bytes -= sizeof(Words), b += sizeof(Words)) {
    // Reads the words in place, at any alignment.
    const auto& w = *reinterpret_cast<const Words*>(b);
    asm("crc32q %1, %0\n\tcrc32q %2, %0\n\tcrc32q %3, %0\n\tcrc32q %4, %0"
        : "+r"(wide)
        : "m"(w.at[0]), "m"(w.at[1]), "m"(w.at[2]), "m"(w.at[3]));
  }
  for (; bytes >= 8; bytes -= 8, b += 8) {
    std::uint64_t w;
    std::memcpy(&w, b, 8);
    asm("crc32q %1, %0" : "+r"(wide) : "rm"(w));
  }
  crc = static_cast<std::uint32_t>(wide);
  if ((bytes & 4) != 0) {
    std::uint32_t w;
    std::memcpy(&w, b, 4);
    crc = crc32c_u32(crc, w);
    b += 4;
  }
  for (bytes &= 3; bytes > 0; --bytes, ++b) crc = crc32c_u8(crc, *b);
  return ~crc;
}

// The checksum of [p, p + bytes), continued from `crc` (0 at the start). Cost: three cycles for
// eight bytes; for many bytes, little more than one.
inline std::uint32_t crc32c(const void* p, std::size_t bytes, std::uint32_t crc = 0) {
  return bytes < kCrcLong ? crc32c_short(p, bytes, crc) : crc32c_long(p, bytes, crc);
}

}  // namespace TENUTO_NS::pm
