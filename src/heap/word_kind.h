// Plain and versioned words: what differs in malloc.cc and one.cc, and what both do with a word.
#pragma once

#include <cstdint>
#include <type_traits>

#include "heap/heap_paths.h"
#include "tenuto/persist.h"
#include "tenuto/words.h"

namespace TENUTO_NS::heap {

// Other threads may read the words.
struct Plain {
  using Word = PtrWord;
  static constexpr IntentOp kMalloc = IntentOp::malloc_to;
  static constexpr IntentOp kFree = IntentOp::free_from;
  static std::uint64_t encode(const void* at, const void* target, std::uint32_t) {
    return PtrWord::encode(at, target);
  }
  static std::uint32_t next(std::uint64_t) { return 0; }
};
struct Versioned {
  using Word = VPtrWord;
  static constexpr IntentOp kMalloc = IntentOp::versioned_malloc;
  static constexpr IntentOp kFree = IntentOp::versioned_free;
  static std::uint64_t encode(const void* at, const void* target, std::uint32_t version) {
    return VPtrWord::encode(at, target, version);
  }
  static std::uint32_t next(std::uint64_t raw) { return VPtrWord::next(VPtrWord::version(raw)); }
};
template <class Word>
using KindOf = std::conditional_t<std::is_same_v<Word, PtrWord>, Plain, Versioned>;

// After so many versions of a word, the intents of other lanes that name it are retired. So two
// versions that are compared are never half of the range apart. The first version has no part in
// it: each new word has that.
inline constexpr std::uint32_t kGuardEvery = VPtrWord::kVersions / 4;
inline constexpr std::uint32_t kGuardAt = kGuardEvery / 2;

inline bool is_allocated(const SlabBlock& b) {
  return is_logged(b.slab->kind) && b.index != kNoBlock && b.slab->live(b.index);
}

template <class Word>
bool Heap::State::is_word(const Word& dest) const {
  if (std::is_same_v<Word, VPtrWord> && file.bytes_max() > VPtrWord::kPoolBytesMax) return false;
  return file.contains(&dest) && reinterpret_cast<std::uintptr_t>(&dest) % alignof(Word) == 0;
}

template <class Word>
void Heap::State::guard_versions(LaneHeap& h, const IntentElement* e, std::size_t n) {
  if (std::is_same_v<Word, PtrWord>) return;
  for (std::size_t i = 0; i < n; ++i) {
    if (e[i].version % kGuardEvery == kGuardAt) [[unlikely]]
      retire_intents_naming(h, e[i].dest);
  }
}

// Makes the word point to its block, or to nothing. The caller flushes it.
template <class Word>
const std::uint64_t& Heap::State::store_word(const IntentElement& e, bool attach) const {
  auto& word = *file.at<std::uint64_t>(e.dest);
  const void* target = attach && e.block ? file.at<void>(e.block) : nullptr;
  store_published(word, KindOf<Word>::encode(&word, target, e.version));
  return word;
}

// The element of a free of the block that `dest` points to. A null block: it points to none.
template <class Word>
[[gnu::always_inline]] inline IntentElement Heap::State::find_from(const Word& dest) const {
  if (!is_word(dest)) return {};
  const std::uint64_t raw = __atomic_load_n(&dest.raw, __ATOMIC_ACQUIRE);
  const void* target = Word::decode(&dest, raw);
  if (target == nullptr || !file.contains(target)) return {};
  const PoolOffset block = file.offset_of(target);
  const SlabBlock b = slab_block(block);
  std::uint64_t bytes = 0;
  if (b) [[likely]] {
    if (!is_allocated(b)) return {};
    bytes = b.slab->block_bytes;
  } else {
    const Result<Block> found = extents.find(block, Kind::logged, Wanted::allocated);
    if (!found) return {};
    bytes = found->bytes;
  }
  const bool same = TENUTO_PLANT("heap_version_not_raised");
  const std::uint32_t version =
      same && std::is_same_v<Word, VPtrWord> ? VPtrWord::version(raw) : KindOf<Word>::next(raw);
  return {file.offset_of(&dest), block, bytes, version, b.index, b.slab};
}

}  // namespace TENUTO_NS::heap
