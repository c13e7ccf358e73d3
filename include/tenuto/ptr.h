// A persistent pointer of 8 bytes. It stores the distance to its target, so it needs no pool to be
// followed, and the pool may be mapped anywhere. It may only point into its own pool. A copy
// recomputes the distance: never memcpy a pointer to another address.
//
// get() loads with acquire order, and an assignment stores with release order. An assignment is not
// flushed: flush it, add it to a transaction first, or let Pool::malloc_to and publish store it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tenuto/abi.h"

namespace TENUTO_NS {

// The word on media: 0 for null, else distance * 2 + 1. So a pointer to itself is not null, and
// zero-filled memory is null.
struct PtrWord {
  std::uint64_t raw = 0;

  static std::uint64_t encode(const void* at, const void* target) {
    if (target == nullptr) return 0;
    const auto d = reinterpret_cast<std::intptr_t>(target) - reinterpret_cast<std::intptr_t>(at);
    return static_cast<std::uint64_t>(d) << 1 | 1;
  }
  // `at` is the address of the word. A copy at another address decodes to another target.
  static void* decode(const void* at, std::uint64_t raw) {
    return raw == 0 ? nullptr : target(at, raw);
  }
  // The same, for a caller that goes where the word leads: it is null only if raw is 0, and the
  // compiler knows it. So a loop over a list has one test a node, of the word, and not two. A
  // damaged word leads anywhere.
  static void* follow(const void* at, std::uint64_t raw) {
    if (raw == 0) return nullptr;
    void* const to = target(at, raw);
    if (to == nullptr) __builtin_unreachable();
    return to;
  }

 private:
  static void* target(const void* at, std::uint64_t raw) {
    const auto d = static_cast<std::int64_t>(raw) >> 1;
    return reinterpret_cast<void*>(reinterpret_cast<std::intptr_t>(at) + d);
  }
};

template <class T>
class Ptr {
 public:
  Ptr() = default;
  Ptr(std::nullptr_t) {}
  Ptr(T* target) { set(target); }
  Ptr(const Ptr& o) noexcept { set(o.get()); }
  Ptr& operator=(const Ptr& o) {
    set(o.get());
    return *this;
  }
  Ptr& operator=(T* target) {
    set(target);
    return *this;
  }

  T* get() const {
    return static_cast<T*>(PtrWord::follow(&word_, __atomic_load_n(&word_.raw, __ATOMIC_ACQUIRE)));
  }
  std::add_lvalue_reference_t<T> operator*() const requires(!std::is_void_v<T>) { return *get(); }
  T* operator->() const { return get(); }
  explicit operator bool() const { return __atomic_load_n(&word_.raw, __ATOMIC_RELAXED) != 0; }
  bool operator==(const Ptr& o) const { return get() == o.get(); }

  // The word itself, for malloc_to and free_from.
  PtrWord& word() { return word_; }
  const PtrWord& word() const { return word_; }

 private:
  void set(T* target) {
    __atomic_store_n(&word_.raw, PtrWord::encode(&word_, target), __ATOMIC_RELEASE);
  }
  PtrWord word_;
};

static_assert(sizeof(Ptr<int>) == 8);

}  // namespace TENUTO_NS
