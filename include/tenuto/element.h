// What a container in a pool asks of its elements, and does with them: Vector, Queue and the maps.
//
// An element is moved to other memory by relocate() and then is only there; nothing is done to the
// old bytes, so nothing has to be logged there. No destructor runs, because its stores would remain
// after an abort. Instead release() frees what an element owns.
//
// A type of your own that contains containers says so by two members:
//
//   struct Person {
//     String name;
//     Vector<std::uint64_t> scores;
//
//     Person() = default;
//     Person(Relocation r, Person& from) : name(r, from.name), scores(r, from.scores) {}
//     Status release(Transaction& tx) {
//       TENUTO_TRY(name.release(tx));
//       return scores.release(tx);
//     }
//   };
#pragma once

#include <concepts>
#include <new>
#include <type_traits>
#include <utility>

#include "tenuto/status.h"
#include "tenuto/tx.h"

namespace TENUTO_NS {

// The argument that tells the constructor T(Relocation, T& from) from a copy. Only relocate() makes
// one. A copy of a container would be a second owner of its blocks.
class Relocation {
 private:
  Relocation() = default;
  template <class T>
  friend void relocate(T* to, T& from) noexcept;
};

// Has a member release(Transaction&), which frees what the object owns. It works as a destructor:
// the object has no value afterwards. An error leaves some of it released; then abort.
template <class T>
concept Owner = requires(T& object, Transaction& tx) {
  { object.release(tx) } -> std::same_as<Status>;
};

// What can be in a container: no destructor, and a constructor that does not throw and finds each
// self-relative pointer (Ptr, p<T*>) at its new place. A raw pointer means nothing in a pool. (A
// class template asks this inside its functions, so that a T may contain a container of T.)
template <class T>
concept Element =
    std::is_object_v<T> && std::is_same_v<T, std::remove_cv_t<T>> && !std::is_pointer_v<T> &&
    std::is_trivially_destructible_v<T> &&
    (std::is_nothrow_move_constructible_v<T> ||
     (std::is_constructible_v<T, Relocation, T&> && Owner<T>));

// Constructs `from` at `to`. The bytes of `from` have no value afterwards. REQUIRES: `to` is memory
// without a value, logged or not in need of it (new, or Transaction::overwrite).
template <class T>
void relocate(T* to, T& from) noexcept {
  static_assert(Element<T>);
  if constexpr (std::is_constructible_v<T, Relocation, T&>) {
    new (static_cast<void*>(to)) T(Relocation(), from);
  } else {
    new (static_cast<void*>(to)) T(std::move(from));
  }
}

// Frees what `object` owns; nothing, if it is no owner. Statuses as Transaction::free.
template <class T>
Status release(T& object, Transaction& tx) {
  if constexpr (Owner<T>) {
    return object.release(tx);
  } else {
    return Status::ok;
  }
}

// Makes an element from arguments, in memory without a value or in DRAM: T(args...), or T() and
// then T::construct(tx, args...), which may allocate. An error leaves nothing allocated.
template <class T, class... Args>
Status construct(T* at, Transaction& tx, Args&&... args) {
  static_assert(Element<T>);
  if constexpr (std::is_constructible_v<T, Args...>) {
    new (static_cast<void*>(at)) T(std::forward<Args>(args)...);
    return Status::ok;
  } else {
    return (new (static_cast<void*>(at)) T())->construct(tx, std::forward<Args>(args)...);
  }
}

}  // namespace TENUTO_NS
