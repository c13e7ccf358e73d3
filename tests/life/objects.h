// Objects of a pool beside its store: the root that names them, and what stands in a block. A block
// says who wrote it: its first word is a tag (texts.h), every other word follows from the tag and
// its place, so that it can be told how far a block holds what was written to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "story.h"
#include "tenuto/ptr.h"
#include "tenuto/vptr.h"

namespace tenuto::life {

inline constexpr const char* kRootLayout = "life";
inline constexpr std::uint64_t kPlain = kObjects / 2;  // slots of plain words; then versioned ones
inline constexpr std::uint64_t kTypes = 3;             // types 1 to 3; 0: none

struct RootObject {
  Ptr<std::uint64_t> plain[kPlain];
  VPtr<std::uint64_t> versioned[kObjects - kPlain];
  std::uint64_t stamp[kObjects];  // changed by transactions

  std::uint64_t* block(std::uint64_t slot) const {
    return slot < kPlain ? plain[slot].get() : versioned[slot - kPlain].get();
  }
};

inline std::uint64_t word_of_block(std::uint64_t tag, std::size_t at) {
  return at == 0 || tag == 0 ? tag : (tag + at) * 0x9e3779b97f4a7c15ull;
}
inline void fill_block(void* block, std::uint64_t bytes, std::uint64_t tag) {
  for (std::size_t at = 0; at < bytes / 8; ++at) {
    const std::uint64_t word = word_of_block(tag, at);
    std::memcpy(static_cast<char*>(block) + at * 8, &word, 8);
  }
}
// How many bytes, from the first on, are as the tag in its first word says.
inline std::uint64_t told_by_block(const void* block, std::uint64_t bytes) {
  std::uint64_t tag = 0, at = 0;
  if (bytes >= 8) std::memcpy(&tag, block, 8);
  for (; at < bytes / 8; ++at) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(block) + at * 8, 8);
    if (word != word_of_block(tag, at)) break;
  }
  return at * 8;
}

}  // namespace tenuto::life
