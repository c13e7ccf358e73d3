// What one object leads to, as the filter of its type says; for who moves it.
#pragma once

#include <cstdint>
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
    const auto* word = static_cast<const std::uint64_t*>(at);
    for (std::uint64_t i = 0; i < bytes / sizeof *word; ++i, ++word) {
      doubtful = doubtful || looks_like_pointer(*word);
    }
  }

 private:
  void lead_to(const void* to, References::Reader, const PtrWord*) override {
    targets.push_back(to);
  }
  void read_later(const void* at, std::uint64_t bytes, References::Reader reader) override {
    depth = 0;
    reader(at, bytes, References(*this));
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
