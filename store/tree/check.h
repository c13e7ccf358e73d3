// Validation of trees against their leaves, their records and the heap (Store::validate).
#pragma once

#include <cstdint>

#include "heap/block_marks.h"
#include "pm/no_memory.h"
#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// The blocks that the trees of a pool reach, those included that only wait for readers. A bit for
// each 16 bytes of the pool.
class Reached {
 public:
  // Throws bad_alloc. REQUIRES: the pool does not grow meanwhile.
  explicit Reached(std::uint64_t pool_bytes) : pool_bytes_(pool_bytes), marks_(pool_bytes) {
    if (!marks_.there()) pm::throw_bad_alloc();
  }

  // False: it was noted before.
  bool note(PoolOffset block) {
    if (block.value >= pool_bytes_) return true;  // damage: the heap will miss it
    const bool first = marks_.set(block);
    blocks_ += first ? 1 : 0;
    return first;
  }
  // REQUIRES: a block of the pool.
  bool has(PoolOffset block) const { return marks_.has(block); }
  std::uint64_t blocks() const { return blocks_; }

 private:
  const std::uint64_t pool_bytes_;
  heap::BlockMarks marks_;
  std::uint64_t blocks_ = 0;
};

// Checks the tree and notes the blocks that it reaches. REQUIRES: no thread writes meanwhile.
Status validate(const Tree& tree, Reached& reached, Report* report);
// Notes the blocks of a tree that waits to be given back.
void note_dropped(const Tree& tree, Reached& reached);
// Compares the heap with the blocks that all trees of a pool reach.
Status check_heap(const Ground& ground, const Reached& reached, Report* report);

}  // namespace TENUTO_NS::store
