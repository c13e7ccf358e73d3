// Shared words: how every packed word of this layer is read and changed. A word is a struct with
// one unsigned field `raw` and pure transitions: give it the word as it is, it gives the word as
// it should be, or nothing. update() is the one loop that carries a transition into memory, so
// the transitions can be tested without threads.
//
// Order: reads acquire, a successful update is acq_rel. What a thread did before it gave frames
// back is seen by the thread that takes them next, whichever of the words it meets first; and who
// sees a counter gone sees that it is in transit (moves.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "tenuto/abi.h"

namespace TENUTO_NS::frame {

// A number that was found, or none. A register rather than a std::optional, whose flag and value
// gcc returns through memory with a stalled load on every get.
struct Found {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t value = kNone;

  constexpr explicit operator bool() const { return value != kNone; }
  constexpr std::uint32_t operator*() const { return value; }
  constexpr bool operator==(const Found&) const = default;
};

template <class W>
inline W load(const W& word, std::memory_order order = std::memory_order_acquire) {
  // atomic_ref<const T> comes only with C++26; nothing is written here.
  return W{std::atomic_ref(const_cast<W&>(word).raw).load(order)};
}

template <class W>
inline void store(W& word, W value, std::memory_order order = std::memory_order_release) {
  std::atomic_ref(word.raw).store(value.raw, order);
}

template <class W>
inline W exchange(W& word, W value) {
  return W{std::atomic_ref(word.raw).exchange(value.raw, std::memory_order_acq_rel)};
}

// Replaces the word by next(word) and returns the word that was there; nothing when `next` has
// no answer. The loop ends: each turn but the last means that another thread made progress.
template <class W, class Next>
inline std::optional<W> update(W& word, Next&& next) {
  std::atomic_ref ref(word.raw);
  auto raw = ref.load(std::memory_order_acquire);
  for (;;) {
    const std::optional<W> to = next(W{raw});
    if (!to) return std::nullopt;
    if (ref.compare_exchange_weak(raw, to->raw, std::memory_order_acq_rel,
                                  std::memory_order_acquire)) {
      return W{raw};
    }
  }
}

}  // namespace TENUTO_NS::frame
