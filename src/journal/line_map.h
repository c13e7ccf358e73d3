// The newest line image of each line: what a checkpoint writes. Blocks are added one after the
// other, each with its line images by ascending line. Room for them is made before the block is
// written. If a durable block were not in the map, the next checkpoint would lose it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "journal/lines.h"

namespace TENUTO_NS::pm {

// It grows and never shrinks.
class LineMap {
 public:
  // Makes room for this many more line images. This is the only call that may throw; it changes
  // nothing then.
  void make_room(std::size_t images);
  // Each one overwrites the line's image before it. Neighbouring lines share a cache line of the
  // index. REQUIRES: there is room.
  void put_all(std::span<const LineImage> images);
  bool has(std::uint64_t line) const { return !index_.empty() && is_taken(probe(line)); }
  void clear();
  std::size_t size() const { return lines_.size(); }
  // By ascending line. Valid until the map changes.
  std::vector<LineImage> in_order() const;

 private:
  struct Entry {
    std::uint64_t line;
    std::uint32_t generation;
    std::uint32_t at;
  };
  // The index entry that has the line, or the free one to put it.
  std::size_t probe(std::uint64_t line) const {
    std::size_t i = slot_of(line);
    while (is_taken(i) && index_[i].line != line) i = (i + 1) & (index_.size() - 1);
    return i;
  }
  bool is_taken(std::size_t i) const { return index_[i].generation == generation_; }
  // Neighbours share a cache line of the index.
  std::size_t slot_of(std::uint64_t line) const {
    return ((line / kNeighbours * 0x9e3779b97f4a7c15ull >> 20) * kNeighbours + line % kNeighbours) &
           (index_.size() - 1);
  }
  void rehash(std::size_t slots);

  static constexpr std::uint64_t kNeighbours = kLineBytes / sizeof(Entry);
  std::vector<std::uint64_t> lines_;
  std::vector<LineBytes> images_;
  std::vector<Entry> index_;      // by hash, linear probing
  std::uint32_t generation_ = 1;  // entries of other generations are empty
};

}  // namespace TENUTO_NS::pm
