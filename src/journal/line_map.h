// The newest line image of each line: what a checkpoint writes. Blocks are added one after the
// other, each with its line images by ascending line. Room for them is made before the block is
// written: one that is durable and not in the map would be lost by the next checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "journal/lines.h"

namespace TENUTO_NS::pm {

// Grows, and keeps what it grew to.
class LineMap {
 public:
  // For so many line images more; the only call that may throw, and it changes nothing then.
  void make_room(std::size_t images);
  // Each goes over the line image before. Lines that follow each other are found in one look.
  // REQUIRES: there is room.
  void put_all(std::span<const LineImage> images);
  bool has(std::uint64_t line) const { return !index_.empty() && is_taken(probe(line)); }
  void clear();
  std::size_t size() const { return lines_.size(); }
  // By ascending line; they stand until the map changes.
  std::vector<LineImage> in_order() const;

 private:
  struct Entry {
    std::uint64_t line;
    std::uint32_t generation;
    std::uint32_t at;
  };
  // Where in the index the line is, or could be put.
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
  std::uint32_t generation_ = 1;  // entries of another one are empty
};

}  // namespace TENUTO_NS::pm
