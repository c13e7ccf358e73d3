// Plain and versioned words: what malloc.cc does differently for each.
#pragma once

#include <cstdint>
#include <type_traits>

#include "heap/format.h"
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

}  // namespace TENUTO_NS::heap
