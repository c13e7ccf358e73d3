// What one object leads to, as the filter of its type says; for who moves it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "store/pool/pool_impl.h"
#include "tenuto/references.h"
#include "tenuto/vptr.h"

namespace TENUTO_NS {

class ObjectReading final : public References::Marker {
 public:
  ObjectReading(const PoolImpl& pool, const PointerFilter& filter, const void* object,
                std::uint64_t bytes)
      : pool_(pool) {
    filter(object, bytes, References(*this));
  }
  virtual ~ObjectReading() = default;

  // In the order in which the filter tells of them.
  std::vector<const void*> targets;
  // Bytes that are read word by word look like a pointer.
  bool doubtful = false;

  void read_words(const void* at, std::uint64_t bytes) override {
    const auto end = reinterpret_cast<std::uintptr_t>(at) + bytes;
    auto begin = round_up(reinterpret_cast<std::uintptr_t>(at), sizeof(std::uint64_t));
    for (; begin + sizeof(std::uint64_t) <= end; begin += sizeof(std::uint64_t)) {
      doubtful = doubtful || looks_like_pointer(*reinterpret_cast<const std::uint64_t*>(begin));
    }
  }

 private:
  void lead_to(const void* to, References::Reader, const PtrWord*) override {
    targets.push_back(to);
  }
  void read_later(const void* at, std::uint64_t bytes, References::Reader reader) override {
    const unsigned outer = std::exchange(depth, 0u);
    reader(at, bytes, References(*this));
    depth = outer;
  }
  bool is_block(const void* at, std::uint64_t bytes) const override {
    return usable_at(at) >= bytes && usable_at(at) != 0;
  }
  // Not what is in the block: that is another object.
  bool take(const void* block, std::uint64_t, const PtrWord*, References::Reader) override {
    targets.push_back(block);
    return false;
  }

  std::uint64_t usable_at(const void* at) const {
    return pool_.file->contains(at) ? pool_.heap->usable_size(pool_.file->offset_of(at)) : 0;
  }
  bool looks_like_pointer(const std::uint64_t& word) const {
    if (word == 0) return false;
    const bool plain = (word & 1) != 0 && pool_.file->contains(PtrWord::decode(&word, word));
    return plain || usable_at(VPtrWord::decode(&word, word)) != 0;
  }

  const PoolImpl& pool_;
};

}  // namespace TENUTO_NS
