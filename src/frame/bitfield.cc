#include "frame/bitfield.h"

#include <optional>

#include "pm/assert.h"

namespace TENUTO_NS::frame {

namespace {

constexpr std::uint64_t kAll = ~0ull;

// How often the ring of words is searched. The counter promises a single frame. The search can miss
// it only while other threads change the same line: the free bit moves to a word already searched.
constexpr unsigned kSearchRounds = 4;

std::optional<Bits> set_whole(Bits word) {
  if (word.raw != 0) return std::nullopt;
  return Bits{kAll};
}

std::optional<Bits> clear_whole(Bits word) {
  if (word.raw != kAll) return std::nullopt;
  return Bits{0};
}

Found take_in_word(Bits& word, unsigned order) {
  Found at;
  (void)update(word, [&](Bits w) -> std::optional<Bits> {
    at = find_zeros(w.raw, order);
    if (!at) return std::nullopt;
    return Bits{w.raw | run_mask(*at, order)};
  });
  return at;
}

bool take_words(Bits* words, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (update(words[i], set_whole)) continue;
    // Exactly the words set above are ours to clear.
    while (i-- > 0) store(words[i], Bits{0});
    return false;
  }
  return true;
}

bool give_words(Bits* words, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (load(words[i]).raw != kAll) return false;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (update(words[i], clear_whole)) continue;
    // A second put of the same frame fails at the first word and changes nothing. A failure at a
    // later word means that a put of another order covers a part of the frame: our own bug. The
    // assertion catches it if a third thread has already taken a cleared word.
    while (i-- > 0) TENUTO_ASSERT(update(words[i], set_whole));
    return false;
  }
  return true;
}

}  // namespace

Found take_bits(Bitfield& field, unsigned start, unsigned order) {
  if (order <= kOrderWord) {
    const unsigned first = start / 64;
    const unsigned rounds = order == 0 ? kSearchRounds : 1;
    for (unsigned i = 0; i < rounds * Bitfield::kWords; ++i) {
      const unsigned w = (first + i) % Bitfield::kWords;
      if (const Found bit = take_in_word(field.words[w], order)) return {w * 64 + *bit};
    }
    return {};
  }
  const unsigned count = 1u << (order - kOrderWord);
  for (unsigned w = 0; w < Bitfield::kWords; w += count) {
    if (take_words(&field.words[w], count)) return {w * 64};
  }
  return {};
}

bool take_bits_at(Bitfield& field, unsigned at, unsigned order) {
  const std::uint64_t mask = run_mask(at % 64, order);
  return update(field.words[at / 64],
                [&](Bits w) -> std::optional<Bits> {
                  if ((w.raw & mask) != 0) return std::nullopt;
                  return Bits{w.raw | mask};
                })
      .has_value();
}

bool give_bits(Bitfield& field, unsigned at, unsigned order) {
  if (order > kOrderWord) return give_words(&field.words[at / 64], 1u << (order - kOrderWord));
  const std::uint64_t mask = run_mask(at % 64, order);
  return update(field.words[at / 64],
                [&](Bits w) -> std::optional<Bits> {
                  if ((w.raw & mask) != mask) return std::nullopt;
                  return Bits{w.raw & ~mask};
                })
      .has_value();
}

bool all_taken(const Bitfield& field, unsigned at, unsigned order) {
  if (order <= kOrderWord) {
    const std::uint64_t mask = run_mask(at % 64, order);
    return (load(field.words[at / 64]).raw & mask) == mask;
  }
  const unsigned count = 1u << (order - kOrderWord);
  for (unsigned i = 0; i < count; ++i) {
    if (load(field.words[at / 64 + i]).raw != kAll) return false;
  }
  return true;
}

bool none_taken(const Bitfield& field, unsigned at, unsigned order) {
  return (load(field.words[at / 64]).raw & run_mask(at % 64, order)) == 0;
}

unsigned count_zeros(const Bitfield& field) {
  unsigned ones = 0;
  for (const Bits& w : field.words) ones += static_cast<unsigned>(std::popcount(load(w).raw));
  return kHugeFrames - ones;
}

}  // namespace TENUTO_NS::frame
