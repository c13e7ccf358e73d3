// A versioned word: a persistent pointer of 8 bytes with a version. A malloc_to, free_from or swap
// of it needs one fence, where a plain pointer needs two for malloc_to. By the version recovery
// tells what a log says from what the word held later. Each change raises the version, so only the
// pool may change the word (Pool::malloc_to, free_from, publish, swap), and it must not be copied.
// Zero-filled memory holds null pointers of version 0.
//
// Contract
//   - The word is in a pool's root object, or in a block that malloc_to, publish or a transaction
//     allocated. Once the pool has changed the word, plain stores must not overwrite, zero or copy
//     over it while that block is allocated. After the free its memory may hold anything again: the
//     pool does not reuse the block while a log names the word.
//   - The word takes no part in transactions. Memory given to Transaction::add must not contain a
//     versioned word that changes before the transaction ends, because an undo would set its
//     version back. A transaction may free a block that contains versioned words. Only
//     Pool::free_from frees the block that a versioned word points to.
//   - Other threads may use the word and the block as soon as the call has returned. (A plain
//     pointer asks more: see Pool::malloc_to.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenuto/abi.h"

namespace TENUTO_NS {

// The word on media: 24 bits of version, and 40 bits of distance to the target. The distance is in
// units of 16 bytes, from the word's address rounded down. Distance 0 is null. A pool may have up
// to 8 TiB (kPoolBytesMax).
struct VPtrWord {
  static constexpr unsigned kVersionBits = 24;
  static constexpr unsigned kDistanceBits = 64 - kVersionBits;
  static constexpr std::uint32_t kVersions = 1u << kVersionBits;
  static constexpr std::uint64_t kUnit = 16;  // every block starts at a multiple of it
  static constexpr std::uint64_t kPoolBytesMax = kUnit << (kDistanceBits - 1);

  std::uint64_t raw = 0;

  static std::uint64_t encode(const void* at, const void* target, std::uint32_t version) {
    const auto from = reinterpret_cast<std::uintptr_t>(at) / kUnit;
    const auto to = reinterpret_cast<std::uintptr_t>(target) / kUnit;
    const std::uint64_t distance = target == nullptr ? 0 : to - from;
    return std::uint64_t{version} << kDistanceBits | (distance & kDistanceMask);
  }
  static void* decode(const void* at, std::uint64_t raw) {
    const auto distance = static_cast<std::int64_t>(raw << kVersionBits) >> kVersionBits;
    if (distance == 0) return nullptr;
    const auto from = reinterpret_cast<std::uintptr_t>(at) / kUnit;
    return reinterpret_cast<void*>((from + static_cast<std::uintptr_t>(distance)) * kUnit);
  }
  static constexpr std::uint32_t version(std::uint64_t raw) {
    return static_cast<std::uint32_t>(raw >> kDistanceBits);
  }
  // Leaves out the first and the last version, 0 and 2^24 - 1. So what leads to a block has none of
  // these, and no number below 2^40, nor a PtrWord in a pool of up to 512 GiB, looks like it.
  static constexpr std::uint32_t next(std::uint32_t version) {
    return version + 1 < kVersions - 1 ? version + 1 : 1;
  }
  // Versions wrap around. Whether `version` came before `than`; valid for two versions that are
  // less than half of the range apart.
  static constexpr bool older(std::uint32_t version, std::uint32_t than) {
    const std::uint32_t ahead = (than - version) & (kVersions - 1);
    return ahead != 0 && ahead < kVersions / 2;
  }

 private:
  static constexpr std::uint64_t kDistanceMask = (1ull << kDistanceBits) - 1;
};
static_assert(VPtrWord::older(5, 6) && !VPtrWord::older(6, 5) && !VPtrWord::older(5, 5));
static_assert(VPtrWord::older(VPtrWord::kVersions - 1, VPtrWord::next(VPtrWord::kVersions - 1)));

template <class T>
class VPtr {
 public:
  VPtr() = default;
  VPtr(const VPtr&) = delete;
  VPtr& operator=(const VPtr&) = delete;

  T* get() const {
    const std::uint64_t raw = __atomic_load_n(&word_.raw, __ATOMIC_ACQUIRE);
    return static_cast<T*>(VPtrWord::decode(&word_, raw));
  }
  T& operator*() const requires(!__is_same(T, void)) { return *get(); }
  T* operator->() const { return get(); }
  explicit operator bool() const { return get() != nullptr; }

  // The word itself, for the pool.
  VPtrWord& word() { return word_; }
  const VPtrWord& word() const { return word_; }

 private:
  VPtrWord word_;
};

static_assert(sizeof(VPtr<int>) == 8);

}  // namespace TENUTO_NS
