// Inserts, lookups and removals on a structure, and the check of its contents. An engine's
// structure S has
//   bool insert(key, const std::byte* value)    false: refused, or the key is there
//   const std::byte* lookup(key)                null: not there
//   bool remove(key)                            false: refused, or not there
//   void walk(visit)                            visit(key, const std::byte* value) for each element
// In a queue the key is that of the element which must be the first.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "bench/support/rng.h"
#include "bench/tx/engine.h"

namespace bench {

// Values: a word of the key at both ends, and bytes between them that all values share. So a value
// is made and checked in a few instructions, and its digest still covers every byte.
template <std::uint64_t kBytes>
class Values {
 public:
  static constexpr std::uint64_t kLast = kBytes - sizeof(std::uint64_t);

  Values() {
    for (std::uint64_t i = 0; i < kBytes; ++i) value_[i] = static_cast<std::byte>(i * 37 + 11);
  }
  const std::byte* of(std::uint64_t key) {
    const std::uint64_t front = mix64(key);
    const std::uint64_t back = ~front;
    std::memcpy(value_, &front, sizeof front);
    std::memcpy(value_ + kLast, &back, sizeof back);
    return value_;
  }
  static bool fits(std::uint64_t key, const std::byte* value) {
    const std::uint64_t front = mix64(key);
    return word(value) == front && word(value + kLast) == ~front;
  }
  // Of one element. The digest of a structure is the sum, so it does not depend on the order.
  static std::uint64_t digest(std::uint64_t key, const std::byte* value) {
    std::uint64_t sum = mix64(key + 1);
    for (std::uint64_t at = 0; at < kBytes; at += sizeof sum) sum = mix64(sum ^ word(value + at));
    return sum;
  }

 private:
  static std::uint64_t word(const std::byte* at) {
    std::uint64_t w = 0;
    std::memcpy(&w, at, sizeof w);
    return w;
  }
  std::byte value_[kBytes];
};

template <class S, std::uint64_t kBytes>
class StructureWork final : public Work {
 public:
  StructureWork(S structure, const TxCase& what, const WorkSize& size)
      : structure_(std::move(structure)), what_(what), size_(size) {}

  const char* prepare() override { return what_.phase == Phase::insert ? nullptr : fill(); }

  bool run(std::uint64_t first, std::uint64_t n) override {
    switch (what_.phase) {
      case Phase::insert:
        return insert(first, n);
      case Phase::lookup:
        return lookup(first, n);
      case Phase::remove:
        break;
    }
    return remove(first, n);
  }

  const char* settle() override {
    if (what_.phase != Phase::remove) {
      if (const char* wrong = check(size_.batch)) return wrong;
    }
    if (what_.phase == Phase::lookup) return nullptr;
    if (what_.phase == Phase::insert && !remove(0, size_.batch)) return "a removal was refused";
    if (const char* wrong = check(0)) return wrong;
    return what_.phase == Phase::remove ? fill() : nullptr;
  }

 private:
  static constexpr std::uint64_t kFirstOfList = 16;

  bool insert(std::uint64_t first, std::uint64_t n) {
    for (std::uint64_t i = first; i < first + n; ++i) {
      const std::uint64_t key = key_of(i);
      if (!structure_.insert(key, values_.of(key))) return false;
    }
    return true;
  }
  bool lookup(std::uint64_t first, std::uint64_t n) {
    for (std::uint64_t i = first; i < first + n; ++i) {
      const std::uint64_t key = key_of(sought(i));
      const std::byte* value = structure_.lookup(key);
      if (value == nullptr || !Values<kBytes>::fits(key, value)) return false;
    }
    return true;
  }
  bool remove(std::uint64_t first, std::uint64_t n) {
    for (std::uint64_t i = first; i < first + n; ++i) {
      // A list's head is what came last.
      if (!structure_.remove(key_of(what_.part == Part::list ? size_.batch - 1 - i : i)))
        return false;
    }
    return true;
  }

  // The i-th inserted key. A list gets falling ones, so each belongs before the head.
  std::uint64_t key_of(std::uint64_t i) const {
    return what_.part == Part::list ? size_.batch - i : mix64(i + 1);
  }
  std::uint64_t sought(std::uint64_t i) const {
    if (what_.part == Part::queue) return 0;
    if (what_.part == Part::list) return size_.batch - 1 - i % std::min(kFirstOfList, size_.batch);
    return mix64(i + kFirstOfList) % size_.batch;
  }

  const char* fill() { return insert(0, size_.batch) ? nullptr : "an insert was refused"; }

  const char* check(std::uint64_t elements) {
    std::uint64_t expected = 0;
    for (std::uint64_t i = 0; i < elements; ++i) {
      const std::uint64_t key = key_of(i);
      expected += Values<kBytes>::digest(key, values_.of(key));
    }
    std::uint64_t found = 0;
    std::uint64_t n = 0;
    structure_.walk([&](std::uint64_t key, const std::byte* value) {
      found += Values<kBytes>::digest(key, value);
      ++n;
    });
    if (n != elements) return "the structure has another number of elements";
    return found == expected ? nullptr : "the structure has other contents";
  }

  S structure_;
  Values<kBytes> values_;
  const TxCase what_;
  const WorkSize size_;
};

}  // namespace bench
