// Packs intents into lines (layout: format.h), as many blocks a line as fit, and reads them again.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "heap/format.h"

namespace TENUTO_NS::heap {

struct Slab;

// One word and one block. version: the version that a versioned word gets, 0 for a plain word. A
// swap may have a null block: the word becomes null. slab, index: the place of a small block,
// looked up once by the operation, which owns the block.
struct IntentElement {
  PoolOffset dest;
  PoolOffset block;
  std::uint64_t bytes = 0;
  std::uint32_t version = 0;
  unsigned index = 0;
  Slab* slab = nullptr;
};

struct IntentView {
  IntentOp op = IntentOp::malloc_to;
  std::uint64_t retired = 0;
  std::size_t count = 0;
  std::uint64_t type = 0;  // of typed_malloc
  std::array<IntentElement, kIntentPacked> element{};
};

namespace internal {

// How many of e[0 .. n) have neighbouring destinations and the same size.
inline std::size_t run_of(const IntentElement* e, std::size_t n) {
  std::size_t i = 1;
  while (i < n && e[i].dest.value == e[0].dest.value + 8 * i && e[i].bytes == e[0].bytes) ++i;
  return i;
}
inline std::size_t packed_of(const IntentElement* e, std::size_t n) {
  if (e[0].bytes >= kSlabBytes) return 0;
  const std::uint64_t slab = e[0].block.value / kSlabBytes;
  std::size_t i = 1;
  while (i < n && e[i].block.value / kSlabBytes == slab && e[i].version == e[0].version) ++i;
  return i;
}

}  // namespace internal

// Fills the words of one line. Returns how many elements it took. REQUIRES: n > 0.
inline std::size_t pack_intent(std::uint64_t (&words)[7], IntentOp op, std::uint64_t retired,
                               const IntentElement* e, std::size_t n) {
  using internal::packed_of;
  using internal::run_of;
  const std::size_t run = n > kIntentPairs ? run_of(e, std::min(n, kIntentPacked)) : 1;
  const std::size_t packed = run > kIntentRun ? packed_of(e, run) : 0;
  words[1] = e[0].bytes;
  words[2] = e[0].dest.value;
  words[3] = IntentTarget::make(e[0].block, e[0].version).raw;
  words[4] = words[5] = words[6] = 0;
  if (packed > kIntentRun) {
    words[0] = IntentHead::make(op, IntentForm::packed, packed, retired).raw;
    const PoolOffset slab{round_down(e[0].block.value, kSlabBytes)};
    words[3] = IntentTarget::make(slab, e[0].version).raw;
    // Unrolled: the compiler then knows every shift.
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kIntentPacked; ++i) {
      if (i == packed) break;
      const std::uint64_t place = e[i].block.value % kSlabBytes / 16;
      const std::size_t bit = i * kPackedBits;
      words[4 + bit / 64] |= place << bit % 64;
      if (bit % 64 > 64 - kPackedBits) words[5 + bit / 64] |= place >> (64 - bit % 64);
    }
    return packed;
  }
  if (run > kIntentPairs) {
    const std::size_t count = std::min(run, kIntentRun);
    words[0] = IntentHead::make(op, IntentForm::run, count, retired).raw;
    for (std::size_t i = 1; i < count; ++i) {
      words[3 + i] = IntentTarget::make(e[i].block, e[i].version).raw;
    }
    return count;
  }
  const std::size_t count = std::min(n, kIntentPairs);
  words[0] = IntentHead::make(op, IntentForm::pairs, count, retired).raw;
  if (count == 2) {
    words[4] = e[1].dest.value;
    words[5] = IntentTarget::make(e[1].block, e[1].version).raw;
    words[6] = e[1].bytes;
  }
  return count;
}

// The same for one element. A typed block's type stands where a pair has its second size.
inline void pack_one(std::uint64_t (&words)[7], IntentOp op, std::uint64_t retired,
                     const IntentElement& e, std::uint64_t type) {
  words[0] = IntentHead::make(op, IntentForm::pairs, type != 0 ? 2 : 1, retired).raw;
  words[1] = e.bytes;
  words[2] = e.dest.value;
  words[3] = IntentTarget::make(e.block, e.version).raw;
  words[4] = words[5] = 0;
  words[6] = type;
}

// Nothing when the words are no valid intent.
inline std::optional<IntentView> unpack_intent(const std::uint64_t (&words)[7]) {
  const IntentHead head{words[0]};
  IntentView v;
  v.op = static_cast<IntentOp>(head.op());
  v.retired = head.retired();
  v.count = head.count();
  if (head.op() == 0 || head.op() > static_cast<unsigned>(IntentOp::typed_malloc))
    return std::nullopt;
  if (v.count == 0) return std::nullopt;
  if (v.op == IntentOp::typed_malloc) {
    const bool sound = head.form() == static_cast<unsigned>(IntentForm::pairs) && v.count == 2 &&
                       words[4] == 0 && words[5] == 0 && words[6] != 0;
    if (!sound) return std::nullopt;
    v.count = 1;
    v.type = words[6];
  }
  const IntentTarget first{words[3]};
  const auto set = [&](std::size_t i, IntentTarget target) {
    v.element[i] = {
        PoolOffset{words[2]} + 8 * i, target.block(), words[1], target.version(), 0, nullptr};
  };
  switch (static_cast<IntentForm>(head.form())) {
    case IntentForm::pairs:
      if (v.count > kIntentPairs) return std::nullopt;
      set(0, first);
      if (v.count == 2) {
        const IntentTarget second{words[5]};
        v.element[1] = {{words[4]}, second.block(), words[6], second.version(), 0, nullptr};
      }
      return v;
    case IntentForm::run:
      if (v.count > kIntentRun) return std::nullopt;
      for (std::size_t i = 0; i < v.count; ++i) set(i, {words[3 + i]});
      return v;
    case IntentForm::packed:
      if (v.count > kIntentPacked) return std::nullopt;
      for (std::size_t i = 0; i < v.count; ++i) {
        const std::size_t bit = i * kPackedBits;
        std::uint64_t place = words[4 + bit / 64] >> bit % 64;
        if (bit % 64 > 64 - kPackedBits) place |= words[5 + bit / 64] << (64 - bit % 64);
        place &= (1u << kPackedBits) - 1;
        set(i, IntentTarget::make(first.block() + place * 16, first.version()));
      }
      return v;
  }
  return std::nullopt;
}

}  // namespace TENUTO_NS::heap
