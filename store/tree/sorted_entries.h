// All entries of a locked leaf in key order, for splits. It needs no memory but its own.
#pragma once

#include <array>
#include <cstddef>

#include "store/tree/key_sort.h"
#include "store/tree/leaf_reader.h"

namespace TENUTO_NS::store {

class SortedEntries {
 public:
  // Reads the range and the records, and checks them as LeafReader::entries does. REQUIRES: the
  // leaf is locked.
  Status read(const LeafReader& leaves, ShadowLeaf& locked);

  std::size_t size() const { return count_; }
  const Entry& operator[](std::size_t i) const { return entry_[order_[i].at]; }
  // That of the leaf.
  const KeyRange& range() const { return range_; }

 private:
  std::size_t count_ = 0;
  KeyRange range_;
  std::array<Entry, kSlots> entry_;    // by slot, or in the order that the leaf had
  std::array<KeyRank, kSlots> order_;  // of them
};

}  // namespace TENUTO_NS::store
