// Reads and changes the packed shared words of this layer. A word is a struct with one unsigned
// field `raw` and pure transitions. A transition maps the present word to the new word, or to
// nothing if it does not apply. update() is the one loop that applies a transition to memory. So
// the transitions can be tested without threads.
//
// Memory order: a read is acquire, a successful update is acq_rel. So the thread that takes frames
// sees everything that a thread did before it gave them back, whichever word it reads first. And a
// thread that finds a counter gone also sees that it is in transit (moves.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "tenuto/abi.h"

namespace TENUTO_NS::frame {

// A number that was found, or none. It is returned in a register. gcc returns a std::optional
// through memory, with a stalled load on every get.
struct Found {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t value = kNone;

  constexpr explicit operator bool() const { return value != kNone; }
  constexpr std::uint32_t operator*() const { return value; }
  constexpr bool operator==(const Found&) const = default;
};

template <class W>
inline W load(const W& word, std::memory_order order = std::memory_order_acquire) {
  // atomic_ref<const T> needs C++26, hence the cast; nothing is written here.
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

// Replaces the word by next(word) and returns the word before. Returns nothing, and changes
// nothing, when `next` returns nothing. Lock-free: a failed turn means that another thread changed
// the word.
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
