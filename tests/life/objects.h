// Objects of a pool beside its store: the root that names them, and the contents of a block. The
// first word of a block is a tag (texts.h). Every other word follows from the tag and its index. So
// a test can see how many bytes of a block hold what was written to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shelf.h"
#include "story.h"
#include "tenuto/compact.h"
#include "tenuto/p.h"
#include "tenuto/ptr.h"
#include "tenuto/vptr.h"

namespace tenuto::life {

inline constexpr const char* kRootLayout = "life";
inline constexpr std::uint64_t kPlain =
    kObjects / 2;                           // slots of plain words, then of versioned ones
inline constexpr std::uint64_t kTypes = 3;  // types 1 to 3; 0: none

struct RootObject {
  Ptr<std::uint64_t> plain[kPlain];
  VPtr<std::uint64_t> versioned[kObjects - kPlain];
  p<std::uint64_t> stamp[kObjects];  // transactions change it
  Shelf shelf;                       // ... and these containers with it

  std::uint64_t* block(std::uint64_t slot) const {
    return slot < kPlain ? plain[slot].get() : versioned[slot - kPlain].get();
  }
  void references(const References& visit) const { visit(plain, versioned, shelf); }
};

// All objects with types may move: what they hold are numbers.
inline CompactObjectsOptions compaction_of_objects(double occupancy) {
  CompactObjectsOptions o;
  o.occupancy = occupancy;
  o.root_filter = reference_filter<RootObject>();
  const Movable numbers{
      [](const void*, std::uint64_t, const References&) {},
      [](void* to, void* from, std::uint64_t bytes) { std::memcpy(to, from, bytes); }};
  for (std::uint64_t type = 1; type <= kTypes; ++type) o.types[type] = numbers;
  return o;
}

// The root of the second pool (Story::side). What it holds follows from the stamps of the first: a
// transaction that stamps slots there stamps them here, too.
inline constexpr const char* kSideLayout = "side";
struct SideRoot {
  p<std::uint64_t> stamp[kObjects];
  Ptr<std::uint64_t> last;  // made anew by each transaction, with its last stamp; internal: null
};
static_assert(sizeof(SideRoot) < sizeof(RootObject), "see World::options_of");
inline constexpr std::uint64_t kSideBlock = 72;  // bytes

inline std::uint64_t word_of_block(std::uint64_t tag, std::size_t at) {
  return at == 0 || tag == 0 ? tag : (tag + at) * 0x9e3779b97f4a7c15ull;
}
inline void fill_block(void* block, std::uint64_t bytes, std::uint64_t tag) {
  for (std::size_t at = 0; at < bytes / 8; ++at) {
    const std::uint64_t word = word_of_block(tag, at);
    std::memcpy(static_cast<char*>(block) + at * 8, &word, 8);
  }
}
// Returns how many bytes, from the first on, agree with the tag in the first word.
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
