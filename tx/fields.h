// The values of fields (tenuto/p.h) that wait in DRAM until their old bytes are durable. A field
// has one value, the last. make_room() gets all memory, before anything changes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tenuto/abi.h"

namespace TENUTO_NS::tx {

class WaitingFields {
 public:
  bool empty() const { return fields_.empty(); }
  // Parts of objects wait, too: others may overlap them.
  bool parts() const { return parts_; }
  void have_parts() { parts_ = true; }
  std::size_t size() const { return fields_.size(); }

  // After this, the next put() of so many bytes needs no memory.
  void make_room(std::size_t bytes) {
    const std::size_t n = fields_.size();
    if (n >= std::min(fields_.capacity(), kSearchMax) || bytes > sizeof(std::uint64_t))
      make_more_room(bytes);
  }
  // False: a value of another size waits at this offset. REQUIRES: make_room was called since the
  // last put.
  bool put(std::uint64_t offset, const void* value, std::size_t bytes) {
    if (const Field* const field = search(offset)) return replace(*field, value, bytes);
    mask_ |= bit(offset);
    if (bytes != sizeof(std::uint64_t) || !table_.empty()) [[unlikely]] {
      append(offset, value, bytes);
      return true;
    }
    Field field{offset, 0, bytes};
    std::memcpy(&field.word, value, sizeof field.word);  // no call for the copy
    fields_.push_back(field);
    return true;
  }
  // Null: no value of this size waits.
  const std::byte* find(std::uint64_t offset, std::size_t bytes) const {
    const Field* const field = search(offset);
    return field == nullptr || field->bytes != bytes ? nullptr : value_of(*field);
  }
  void clear();

  // Calls f(offset, value, bytes) for each, in the order of their first assignments.
  template <class F>
  void for_each(F&& f) const {
    for (const Field& field : fields_) f(field.offset, value_of(field), field.bytes);
  }

 private:
  static constexpr std::size_t kSearchMax = 16;  // up to so many: linear search

  struct Field {
    std::uint64_t offset;
    std::uint64_t word;  // the value if it fits, else its place in values_
    std::size_t bytes;
  };
  static constexpr std::uint64_t hash(std::uint64_t offset) {
    return offset * 0x9E3779B97F4A7C15 >> 32;
  }
  // A field that waits has its bit in mask_. The product's upper bits spread equal distances best.
  static constexpr std::uint64_t bit(std::uint64_t offset) {
    return std::uint64_t{1} << (offset * 0x9E3779B97F4A7C15 >> 58);
  }
  const std::byte* value_of(const Field& f) const {
    return f.bytes <= sizeof f.word ? reinterpret_cast<const std::byte*>(&f.word)
                                    : &values_[f.word];
  }
  const Field* search(std::uint64_t offset) const {
    return (mask_ & bit(offset)) == 0 ? nullptr : search_all(offset);
  }
  const Field* search_all(std::uint64_t offset) const;
  bool replace(const Field& field, const void* value, std::size_t bytes);
  void append(std::uint64_t offset, const void* value, std::size_t bytes);
  void index(std::size_t i);
  void make_more_room(std::size_t bytes);

  std::uint64_t mask_ = 0;
  bool parts_ = false;
  std::vector<Field> fields_;
  std::vector<std::byte> values_;
  // By offset, open addressing, at most half full; 0: free, else an index in fields_ + 1. Empty
  // until there were many.
  std::vector<std::uint32_t> table_;
};

}  // namespace TENUTO_NS::tx
