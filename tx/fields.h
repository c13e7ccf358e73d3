// The values of fields (tenuto/p.h) that wait in DRAM until their old bytes are durable. A field
// has one value, the last. make_room() gets all memory, before anything changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tenuto/abi.h"

namespace TENUTO_NS::tx {

class WaitingFields {
 public:
  bool empty() const { return fields_.empty(); }

  // After this, the next put() of so many bytes needs no memory.
  void make_room(std::size_t bytes);
  // False: a value of another size waits at this offset. REQUIRES: make_room was called since the
  // last put.
  bool put(std::uint64_t offset, const void* value, std::size_t bytes);
  // Null: no value of this size waits.
  const std::byte* find(std::uint64_t offset, std::size_t bytes) const;
  void clear();

  // Calls f(offset, value, bytes) for each, in the order of their first assignments.
  template <class F>
  void for_each(F&& f) const {
    for (const Field& field : fields_) f(field.offset, &values_[field.at], field.bytes);
  }

 private:
  static constexpr std::size_t kSearchMax = 16;  // up to so many: linear search

  struct Field {
    std::uint64_t offset;
    std::size_t at;  // in values_
    std::size_t bytes;
  };
  const Field* search(std::uint64_t offset) const;
  void index(std::size_t i);

  std::vector<Field> fields_;
  std::vector<std::byte> values_;
  // By offset, open addressing, at most half full; 0: free, else an index in fields_ + 1. Empty
  // until there were many.
  std::vector<std::uint32_t> table_;
};

}  // namespace TENUTO_NS::tx
