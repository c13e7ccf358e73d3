// The blocks that a transaction has allocated. make_room() gets all memory, before anything
// changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tenuto/units.h"
#include "tx/ranges.h"

namespace TENUTO_NS::tx {

struct NewBlock {
  PoolOffset offset;
  std::uint64_t bytes;  // requested
  bool cancelled;       // freed again by the same transaction
};

class NewBlocks {
 public:
  // After this, the next add() needs no memory.
  void make_room();
  // REQUIRES: make_room() was called since the last add.
  void add(PoolOffset block, std::uint64_t bytes);
  // Null: the transaction did not allocate it. Cancelled blocks are found, too.
  NewBlock* find(PoolOffset block);
  // The bytes of all of them, cancelled ones included.
  RangeSet::Answer at(std::uint64_t offset) const { return ranges_.at(offset); }

  std::size_t size() const { return blocks_.size(); }
  NewBlock& operator[](std::size_t i) { return blocks_[i]; }
  std::size_t index_of(const NewBlock& b) const {
    return static_cast<std::size_t>(&b - blocks_.data());
  }
  auto begin() { return blocks_.begin(); }
  auto end() { return blocks_.end(); }
  // In the order of their offsets. No find(), operator[] or add() follows before clear().
  void sort();
  void clear();

 private:
  static constexpr std::size_t kSearchMax = 32;  // up to so many: linear search
  using Index = std::unordered_map<std::uint64_t, std::size_t>;

  std::vector<NewBlock> blocks_;
  RangeSet ranges_;
  Index index_;  // used only when there are many
  Index::node_type node_;
};

}  // namespace TENUTO_NS::tx
