// The 512 base frames of one huge frame as bits in one cache line. REQUIRES: a thread that takes n
// bits has first lowered the counter of the huge frame's child by n: its claim on n zero bits.
//
// Orders 0..6 are inside one 64-bit word and change with one CAS. Orders 7 and 8 take two or four
// whole words, one after another. When one of these words is not entirely free, the words before it
// are cleared again. Until the last word is set no thread owns any of them, and a crash leaves bits
// that no owner names.
#pragma once

#include <bit>
#include <cstdint>

#include "frame/format.h"
#include "frame/word.h"

namespace TENUTO_NS::frame {

inline constexpr unsigned kOrderWord = 6;  // the largest order inside one word

// The first run of 2^order zero bits at a multiple of 2^order. Pure. REQUIRES: order <= kOrderWord.
constexpr Found find_zeros(std::uint64_t word, unsigned order) {
  // Bits at multiples of 1, 2, 4 .. 64: where a run of that length may start.
  constexpr std::uint64_t kStarts[] = {~0ull,
                                       0x5555555555555555,
                                       0x1111111111111111,
                                       0x0101010101010101,
                                       0x0001000100010001,
                                       0x0000000100000001,
                                       1};
  std::uint64_t zeros = ~word;
  for (unsigned o = 0; o < order; ++o) zeros &= (zeros >> (1u << o)) & kStarts[o + 1];
  if (zeros == 0) return {};
  return {static_cast<std::uint32_t>(std::countr_zero(zeros))};
}

// 2^order ones from bit `at`. Pure. REQUIRES: order <= kOrderWord; the run is inside the word.
constexpr std::uint64_t run_mask(unsigned at, unsigned order) {
  const std::uint64_t ones = order == kOrderWord ? ~0ull : (1ull << (1u << order)) - 1;
  return ones << at;
}

// Sets an aligned run of 2^order zero bits and returns its first bit. Searches the words in a ring
// from the one that holds bit `start`; orders above kOrderWord search from the first word. None
// when there is no such run. (Order > 0: the bits are fragmented. Order 0: other threads were
// faster or have not finished yet.) Not flushed.
Found take_bits(Bitfield& field, unsigned start, unsigned order);

// Sets this run of 2^order zero bits. False when one of them is set; then nothing changes.
// REQUIRES: order <= kOrderWord. Not flushed.
bool take_bits_at(Bitfield& field, unsigned at, unsigned order);

// Clears the run at bit `at`. False when one of its bits is clear; then nothing changes. Not
// flushed.
bool give_bits(Bitfield& field, unsigned at, unsigned order);

// Whether all bits of [at, at + 2^order) are set.
bool all_taken(const Bitfield& field, unsigned at, unsigned order);

// Whether all bits of [at, at + 2^order) are clear. REQUIRES: order <= kOrderWord.
bool none_taken(const Bitfield& field, unsigned at, unsigned order);

// Free base frames.
unsigned count_zeros(const Bitfield& field);

}  // namespace TENUTO_NS::frame
