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
//
// In a pool with Consistency::gc it also says where its references are (tenuto/references.h).
//
// Damage: a container has no checksum, as all objects of a program. A lookup believes the bytes, so
// on a damaged medium it may read anywhere. validate(pool) of a container finds every pointer,
// size, tag and order that is wrong, and after it readers stay inside the pool. A flipped bit in a
// value, or in a key that stays in its place, is not found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "tenuto/references.h"
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
concept Owner =
    std::is_same_v<decltype(std::declval<T&>().release(std::declval<Transaction&>())), Status>;

// What can be in a container: no destructor, and a constructor that does not throw and finds each
// self-relative pointer (Ptr, p<T*>) at its new place. A raw pointer means nothing in a pool. (A
// class template asks this inside its functions, so that a T may contain a Vector or Queue of T.)
template <class T>
concept Element =
    std::is_object_v<T> && std::is_same_v<T, std::remove_cv_t<T>> && !std::is_pointer_v<T> &&
    std::is_trivially_destructible_v<T> &&
    (std::is_nothrow_move_constructible_v<T> ||
     (std::is_constructible_v<T, Relocation, T&> && Owner<T>));

// Its bytes are its value, as of integers: it has no fields and no self-relative pointers. So it is
// copied as bytes, and logged by who changes it.
template <class T>
concept PlainElement =
    std::is_trivially_copyable_v<T> && std::is_copy_constructible_v<T> && !Owner<T>;

// The two as functions, for what a member of a container requires: clang 14 judges a concept there
// when it makes the class, and T may still be incomplete.
template <class T>
constexpr bool is_plain() {
  return PlainElement<T>;
}
template <class T>
constexpr bool is_owner() {
  return Owner<T>;
}

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

// Passes on the references of an element (tenuto/references.h).
template <class T>
void visit_element(const References& visit, const T& element) {
  if constexpr (HasReferences<T> || !PlainElement<T>) visit(element);
}

// The same for a key of a map, which may be sorted or hashed by what it points to.
template <class T>
void visit_key(const References& visit, const T& key) {
  if constexpr (HasReferences<T> || !PlainElement<T>) {
    visit.fixed(key);
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
// then T::construct(tx, args...), which may allocate. What that allocated is released if it fails,
// so it must leave an object that can be.
template <class T, class... Args>
Status construct(T* at, Transaction& tx, Args&&... args) {
  static_assert(Element<T>);
  if constexpr (std::is_constructible_v<T, Args...>) {
    new (static_cast<void*>(at)) T(std::forward<Args>(args)...);
    return Status::ok;
  } else {
    struct Half {
      T* object;
      Transaction& tx;
      ~Half() {
        if (object != nullptr) static_cast<void>(release(*object, tx));
      }
    } half{new (static_cast<void*>(at)) T(), tx};
    TENUTO_TRY(at->construct(tx, std::forward<Args>(args)...));
    half.object = nullptr;
    return Status::ok;
  }
}

// A T in DRAM, made from arguments as by construct(), until it is placed in a container. Otherwise
// what it owns is freed. So a container makes an element before it changes anything: that may fail,
// and its arguments may be elements.
template <class T>
class Made {
 public:
  template <class... Args>
  explicit Made(Transaction& tx, Args&&... args) : tx_(tx) {
    status_ = construct(get(), tx, std::forward<Args>(args)...);
    owned_ = status_ == Status::ok;
  }
  ~Made() {
    if (owned_) static_cast<void>(release(*get(), tx_));
  }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

  Status status() const { return status_; }
  // REQUIRES: status() is ok. `to` as of relocate().
  T* place(void* to) {
    T* const placed = static_cast<T*>(to);
    relocate(placed, *get());
    owned_ = false;
    return placed;
  }

 private:
  T* get() { return reinterpret_cast<T*>(bytes_); }

  Transaction& tx_;
  Status status_;
  bool owned_ = false;
  alignas(T) std::byte bytes_[sizeof(T)];
};

// For an operation of several steps. Rolls the transaction back unless done() was called, also when
// an allocation of DRAM fails: who may not stop half way would otherwise leave half.
class AllOrAbort {
 public:
  explicit AllOrAbort(Transaction& tx) : tx_(&tx) {}
  ~AllOrAbort() {
    if (tx_ != nullptr) tx_->abort();
  }
  AllOrAbort(const AllOrAbort&) = delete;
  AllOrAbort& operator=(const AllOrAbort&) = delete;
  Status done() {
    tx_ = nullptr;
    return Status::ok;
  }

 private:
  Transaction* tx_;
};

// --- checks of bytes that may be anything --------------------------------------------------------

// A container has no checksum. validate(pool) follows no pointer before a block of the pool was
// found there that is large enough, so it never reads outside the pool, and it ends. Elements with
// such a member are asked before they are compared.
template <class AnyPool>
class BlocksOf {
 public:
  explicit BlocksOf(const AnyPool& pool) : pool_(pool) {}
  // Whether an allocated block of at least so many bytes begins there. Cost: as Pool::usable_size.
  bool has(const void* at, std::uint64_t bytes, std::uint64_t align = 8) const {
    return reinterpret_cast<std::uintptr_t>(at) % align == 0 && pool_.usable_size(at) >= bytes &&
           pool_.usable_size(at) != 0;
  }
  // ok | corrupt, with a report.
  template <class T>
  Status validate(const T& element, Report* report) const {
    if constexpr (requires { element.validate(pool_, report); }) {
      return element.validate(pool_, report);
    } else {
      return Status::ok;
    }
  }

 private:
  const AnyPool& pool_;
};

// For validate without a pool: the pointers are believed, and elements are not asked.
struct BelievedBlocks {
  static bool has(const void*, std::uint64_t, std::uint64_t = 8) { return true; }
  template <class T>
  static Status validate(const T&, Report*) {
    return Status::ok;
  }
};

// What validate takes: Pool, which this header does not know.
template <class T>
concept PoolOfBlocks = requires(const T& pool) {
  pool.usable_size(nullptr);
};

}  // namespace TENUTO_NS
