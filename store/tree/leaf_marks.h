// After a crash: which blocks the leaves of a tree name. The heap asks for them when a call first
// needs it (heap::Marks). So an open reads two lines of a leaf, not eight.
//
// **The slots are still those of the open then**, in every leaf that was there. A slot gets another
// word only from a thread that has reserved a record, and the memory of a leaf another use only
// after a release. Both need the heap. What needs no heap clears bits of the bitmap, so the bitmap
// is kept here. The record of a bit that was cleared meanwhile gets its mark, too: whoever cleared
// the bit releases the record behind it.
#pragma once

#include <cstdint>
#include <vector>

#include "file/pool_file.h"
#include "heap/heap.h"
#include "store/tree/format.h"

namespace TENUTO_NS::store {

struct LeafAtOpen {
  PoolOffset at;
  std::uint64_t used;  // the bitmap, after unfinished splits were finished
};

class LeafMarks final : public heap::Marks {
 public:
  LeafMarks(const pm::PoolFile& file, std::vector<LeafAtOpen> leaves)
      : file_(file), leaves_(std::move(leaves)) {}

  std::size_t parts() const override { return (leaves_.size() + kAtOnce - 1) / kAtOnce; }
  // The leaves, the blocks of their separators and the records.
  Status blocks(std::size_t part, std::vector<PoolOffset>& out, Report* report) const override;

 private:
  static constexpr std::size_t kAtOnce = 2048;  // so that a slab gets several marks at a time

  const pm::PoolFile& file_;
  const std::vector<LeafAtOpen> leaves_;
};

}  // namespace TENUTO_NS::store
