// Three checksums of neighbouring parts, computed side by side and then joined into one.
//
// A checksum is the remainder of a polynomial over GF(2), modulo the CRC's own. The checksum of
// A B C, each part n bytes, is shift(crc(A), 2 n) ^ shift(crc(B), n) ^ crc(C), where shift(c, n) is
// c times x^(8 n). It is one carry-less multiplication by the constant x^(8 n - 33) and one step of
// the crc32 instruction, which reduces the product and multiplies it by x^33 on the way (the bits
// are reflected). Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32
// Instruction", 2011.
#include "pm/crc32c.h"

#include <wmmintrin.h>

namespace TENUTO_NS::pm {

namespace {

constexpr std::size_t kLargePart = 192;  // bytes of one chain
constexpr std::size_t kSmallPart = 64;
static_assert(kCrcLong == 3 * kLargePart);

// x^n modulo the CRC's polynomial; the highest power is the lowest bit.
constexpr std::uint32_t power_of_x(unsigned n) {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;
  std::uint32_t p = 1u << 31;
  for (; n > 0; --n) p = (p & 1) != 0 ? p >> 1 ^ kPolynomial : p >> 1;
  return p;
}

// crc times x^(8 bytes), where power is x^(8 bytes - 33).
[[gnu::target("pclmul")]] std::uint32_t shift(std::uint32_t crc, std::uint32_t power) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(crc)),
                                               _mm_cvtsi32_si128(static_cast<int>(power)), 0);
  return crc32c_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product)));
}

// Of three parts; without the complements at both ends.
template <std::size_t kPart>
std::uint32_t of_three_parts(const unsigned char* b, std::uint32_t crc) {
  struct [[gnu::packed, gnu::may_alias]] Word {
    std::uint64_t at;
  };
  std::uint64_t first = crc;
  std::uint64_t second = 0;
  std::uint64_t third = 0;
  for (const unsigned char* const end = b + kPart; b != end; b += sizeof(Word)) {
    asm("crc32q %3, %0\n\tcrc32q %4, %1\n\tcrc32q %5, %2"
        : "+r"(first), "+r"(second), "+r"(third)
        : "m"(*reinterpret_cast<const Word*>(b)), "m"(*reinterpret_cast<const Word*>(b + kPart)),
          "m"(*reinterpret_cast<const Word*>(b + 2 * kPart)));
  }
  constexpr std::uint32_t kOne = power_of_x(8 * kPart - 33);
  constexpr std::uint32_t kTwo = power_of_x(2 * 8 * kPart - 33);
  return shift(static_cast<std::uint32_t>(first), kTwo) ^
         shift(static_cast<std::uint32_t>(second), kOne) ^ static_cast<std::uint32_t>(third);
}

}  // namespace

std::uint32_t crc32c_long(const void* p, std::size_t bytes, std::uint32_t crc) {
  const auto* b = static_cast<const unsigned char*>(p);
  static const bool multiplies = __builtin_cpu_supports("pclmul") != 0;
  if (!multiplies) return crc32c_short(p, bytes, crc);
  crc = ~crc;
  for (; bytes >= 3 * kLargePart; bytes -= 3 * kLargePart, b += 3 * kLargePart) {
    crc = of_three_parts<kLargePart>(b, crc);
  }
  for (; bytes >= 3 * kSmallPart; bytes -= 3 * kSmallPart, b += 3 * kSmallPart) {
    crc = of_three_parts<kSmallPart>(b, crc);
  }
  return crc32c_short(b, bytes, ~crc);
}

}  // namespace TENUTO_NS::pm
