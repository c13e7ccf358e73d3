// What the containers of include/tenuto share: sizes of their blocks, and a guard for a new one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "heap/size_class.h"
#include "tenuto/tx.h"
#include "tenuto/units.h"

namespace TENUTO_NS::tx {

inline constexpr std::uint64_t kContainerBytesMax = std::uint64_t{1} << 46;  // above it: too_large
inline constexpr std::uint64_t kExtentStep = 4096;

// The largest block that costs no more than one of `bytes`: a whole size class, or whole pages.
constexpr std::uint64_t whole_block(std::uint64_t bytes) {
  if (bytes > heap::kSmallBytesMax) return round_up(bytes, kExtentStep);
  return heap::kClassBytes[heap::class_of(bytes).value];
}

// The size of the next block of something that outgrew `old_bytes`. A small one doubles. A large
// one grows by half: a commit flushes the whole new block.
constexpr std::uint64_t grown_block(std::uint64_t old_bytes, std::uint64_t needed) {
  const std::uint64_t more = old_bytes <= heap::kSmallBytesMax ? old_bytes : old_bytes / 2;
  return whole_block(std::max({needed, old_bytes + more, std::uint64_t{kLineBytes}}));
}

// A block that this transaction allocated, and frees again unless it is attached.
class LooseBlock {
 public:
  LooseBlock(Transaction& tx, std::uint64_t bytes, std::uint64_t align = 1)
      : tx_(tx), block_(tx.alloc(bytes, {.align = std::max(align, AllocOptions{}.align)})) {}
  ~LooseBlock() {
    if (block_ && !attached_) static_cast<void>(tx_.free(*block_));
  }
  LooseBlock(const LooseBlock&) = delete;
  LooseBlock& operator=(const LooseBlock&) = delete;

  Status status() const { return block_.error(); }
  template <class T = std::byte>
  T* get() const {
    return static_cast<T*>(*block_);
  }
  void attached() { attached_ = true; }

 private:
  Transaction& tx_;
  Result<void*> block_;
  bool attached_ = false;
};

}  // namespace TENUTO_NS::tx
