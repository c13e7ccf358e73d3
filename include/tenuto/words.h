// The arguments of Pool::malloc_to and free_from: destinations, each plain (tenuto/ptr.h) or
// versioned (tenuto/vptr.h), and the sizes of blocks.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "tenuto/ptr.h"
#include "tenuto/vptr.h"

namespace TENUTO_NS {

template <class W>
concept PointerWord = std::same_as<W, PtrWord> || std::same_as<W, VPtrWord>;

// Ptr<T> or VPtr<T>.
template <class P>
concept PersistentPointer = requires(P& p) {
  requires PointerWord<std::remove_reference_t<decltype(p.word())>>;
};

// What one block can be attached to.
template <class D>
concept Destination = PointerWord<D> || PersistentPointer<D>;

template <PointerWord W>
W& word_of(W& word) {
  return word;
}
template <PersistentPointer P>
auto& word_of(P& pointer) {
  return pointer.word();
}
template <Destination D>
using WordOf = std::remove_reference_t<decltype(word_of(std::declval<D&>()))>;

// The destinations of a batch, all plain or all versioned: words or pointers that are neighbours in
// an array, or words anywhere. A view: the array must stay until the call returns.
template <PointerWord W>
class Words {
 public:
  using value_type = W;

  Words(std::span<W> neighbours) : first_(neighbours.data()), count_(neighbours.size()) {}
  Words(std::span<W* const> anywhere) : each_(anywhere.data()), count_(anywhere.size()) {}
  template <PersistentPointer P, std::size_t N>
  requires std::same_as<WordOf<P>, W> Words(std::span<P, N> neighbours)
      : first_(neighbours.empty() ? nullptr : &neighbours.front().word()),
        count_(neighbours.size()) {
    static_assert(sizeof(P) == sizeof(W));  // it has no other members
  }

  W& operator[](std::size_t i) const { return each_ != nullptr ? *each_[i] : first_[i]; }
  std::size_t count() const { return count_; }
  bool scattered() const { return each_ != nullptr; }

 private:
  W* first_ = nullptr;
  W* const* each_ = nullptr;
  std::size_t count_;
};
template <PersistentPointer P, std::size_t N>
Words(std::span<P, N>) -> Words<WordOf<P>>;
template <PointerWord W, std::size_t N>
Words(std::span<W, N>) -> Words<W>;
template <PointerWord W, std::size_t N>
Words(std::span<W* const, N>) -> Words<W>;
template <PointerWord W, std::size_t N>
Words(std::span<W*, N>) -> Words<W>;

// What a batch of words can be made of.
template <class D>
concept Destinations = requires(const D& dests) {
  Words(dests);
};

// The sizes of a batch's blocks: one for all, or one for each.
class Sizes {
 public:
  Sizes(std::uint64_t all) : all_(all) {}
  Sizes(std::span<const std::uint64_t> of_each) : each_(of_each) {}
  std::uint64_t operator[](std::size_t i) const { return each_.empty() ? all_ : each_[i]; }
  bool fit(std::size_t count) const { return each_.empty() || each_.size() == count; }

 private:
  std::uint64_t all_ = 0;
  std::span<const std::uint64_t> each_;
};

}  // namespace TENUTO_NS
