// An array in a pool that grows, as std::vector: its elements are in one block, one behind the
// other.
//
//   struct Root {
//     Vector<std::uint64_t> numbers;
//   };
//   pool.run([&](Transaction& tx) { return root.numbers.push_back(tx, 7); });
//
// Every change takes the transaction to which it belongs, and is durable with it. A call that
// fails, or throws std::bad_alloc, leaves the vector as it was, or the transaction rolled back. All
// changes return: ok | full | too_large | invalid_argument (the vector is not in the transaction's
// pool) | what Transaction::status() says.
//
// Elements (tenuto/element.h) of a type without fields, as integers, are read in place, and changed
// by set() and edit(). Elements that have fields or are containers can be changed through
// references. A change of the size or capacity makes references and iterators invalid, as in std.
//
// Room behind the last element has no value, so what is put there is stored at once, flushed and
// not logged. What a change moves or removes is logged. A vector of 24 zero bytes is empty.
//
// Thread safety: as std::vector. Hold a lock until the transaction ends (Transaction::lock); other
// threads see the old size until then. Cost: a transaction that pushes costs three fences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>

#include "tenuto/element.h"
#include "tenuto/p.h"
#include "tenuto/ptr.h"
#include "tenuto/status.h"
#include "tenuto/tx.h"

namespace TENUTO_NS {

namespace tx {

// What is known of a type where its name is not.
struct ElementType {
  std::uint64_t bytes;
  std::uint64_t align;
  void (*relocate)(void* to, void* from) noexcept;  // null: its bytes are copied
};

template <class T>
void relocate_erased(void* to, void* from) noexcept {
  relocate(static_cast<T*>(to), *static_cast<T*>(from));
}
template <class T>
inline constexpr ElementType kElementType{sizeof(T), alignof(T),
                                          PlainElement<T> ? nullptr : &relocate_erased<T>};

// The part of Vector<T> that does not know T (tx/array.cc).
class TENUTO_API Array {
 public:
  struct View {
    std::byte* data = nullptr;
    std::uint64_t size = 0;
    std::uint64_t room = 0;  // elements for which the block has place; size <= room
  };
  View view() const {
    const Head head = head_.get();
    return {static_cast<std::byte*>(PtrWord::decode(this, head.block)), head.size, head.room};
  }

  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  void relocate_from(const Array& from) noexcept { settle(from.view()); }

  // Makes room for n elements before element `at`, and counts them. They have no value: the caller
  // constructs them, and must not fail.
  Result<void*> open(Transaction& tx, const ElementType& type, std::uint64_t at, std::uint64_t n);
  // Removes n elements from `at` on, and moves those behind them.
  Status close(Transaction& tx, const ElementType& type, std::uint64_t at, std::uint64_t n);
  // n elements without a value instead of all. The old ones can be read until the commit.
  Result<void*> replace(Transaction& tx, const ElementType& type, std::uint64_t n);
  Status reserve(Transaction& tx, const ElementType& type, std::uint64_t room);
  Status shrink(Transaction& tx, const ElementType& type);
  Status drop(Transaction& tx);  // gives the block back
  Status swap(Transaction& tx, Array& o);
  // As replace. REQUIRES: this has no value, or is empty and in DRAM.
  Result<void*> start(Transaction& tx, const ElementType& type, std::uint64_t n);

 private:
  // On media. One field, so that one entry logs it. `block` is a PtrWord, and is at `this`.
  struct Head {
    std::uint64_t block;
    std::uint64_t size;
    std::uint64_t room;
  };
  Head encode(const View& v) const { return {PtrWord::encode(this, v.data), v.size, v.room}; }
  Status put(Transaction& tx, const View& v);
  void settle(const View& v) noexcept { new (&head_) p<Head>(encode(v)); }
  Result<void*> rebuild(Transaction& tx, const ElementType& type, std::uint64_t room,
                        std::uint64_t at, std::uint64_t n);

  p<Head> head_;
};
static_assert(sizeof(Array) == 24);

}  // namespace tx

template <class T>
class Vector {
 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;

  Vector() = default;
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;
  Vector(Relocation, Vector& from) noexcept { array_.relocate_from(from.array_); }

  std::size_t size() const { return array_.view().size; }
  bool empty() const { return size() == 0; }
  std::size_t capacity() const { return array_.view().room; }

  // REQUIRES: the element exists. In a loop take data(), or a span of the vector, once.
  const T& operator[](std::size_t i) const { return data()[i]; }
  const T& front() const { return data()[0]; }
  const T& back() const { return all().back(); }
  const T* data() const { return all().data(); }
  const T* begin() const { return data(); }
  const T* end() const { return end_of(all()); }
  // not_found: there is no element i.
  Result<const T*> at(std::size_t i) const {
    if (i >= size()) return Status::not_found;
    return data() + i;
  }
  // The same for elements that log their changes themselves.
  T& operator[](std::size_t i) requires(!is_plain<T>()) { return all()[i]; }
  T& front() requires(!is_plain<T>()) { return all()[0]; }
  T& back() requires(!is_plain<T>()) { return all().back(); }
  T* data() requires(!is_plain<T>()) { return all().data(); }
  T* begin() requires(!is_plain<T>()) { return all().data(); }
  T* end() requires(!is_plain<T>()) { return end_of(all()); }

  // Adds an element at the end. Cost: no fence, and two lines besides the element's (an entry, the
  // size). When the block is full, the elements move to a new one, in classes of about twice the
  // size: three entries, and the new block is flushed.
  Status push_back(Transaction& tx, const T& value) requires std::is_copy_constructible_v<T> {
    return emplace_back(tx, value).error();
  }
  // The same from the arguments of a constructor, or of T::construct: of a String its text. The
  // reference is valid until the vector changes.
  template <class... Args>
  Result<T*> emplace_back(Transaction& tx, Args&&... args) {
    return emplace(tx, size(), std::forward<Args>(args)...);
  }
  // Removes the last one. not_found: it is empty. The element is logged: another push in this
  // transaction may overwrite it.
  Status pop_back(Transaction& tx) {
    const std::size_t n = size();
    return n == 0 ? Status::not_found : erase(tx, n - 1);
  }

  // Puts an element before element `at`; `at` may be the size. invalid_argument: it is larger.
  // Cost: what is behind it moves and is logged, a line for each 48 bytes, and a fence.
  Status insert(Transaction& tx, std::size_t at,
                const T& value) requires std::is_copy_constructible_v<T> {
    return emplace(tx, at, value).error();
  }
  template <class... Args>
  Result<T*> emplace(Transaction& tx, std::size_t at, Args&&... args) {
    Made<T> made(tx, std::forward<Args>(args)...);
    TENUTO_TRY(made.status());
    const Result<void*> slot = array_.open(tx, type(), at, 1);
    if (!slot) return slot.error();
    return made.place(*slot);
  }
  // Adds copies of all values at the end. They may be of this vector.
  Status append(Transaction& tx,
                std::span<const T> values) requires std::is_nothrow_copy_constructible_v<T> {
    const Result<void*> slots = array_.open(tx, type(), size(), values.size());
    if (!slots) return slots.error();
    return fill(*slots, values);
  }
  Status append(Transaction& tx, std::initializer_list<T> values) {
    return append(tx, span_of(values));
  }

  // Removes the element at `at`, or those of [first, last), and frees what they own. not_found:
  // there are none. Cost: what is removed, and what is behind it, is logged; a fence, if something
  // is behind it.
  Status erase(Transaction& tx, std::size_t at) { return erase(tx, at, at + 1); }
  Status erase(Transaction& tx, std::size_t first, std::size_t last) {
    if (first > last || last > size()) return Status::not_found;
    if constexpr (!Owner<T>) return array_.close(tx, type(), first, last - first);
    AllOrAbort all_of_it(tx);
    TENUTO_TRY(release_range(tx, first, last));
    TENUTO_TRY(array_.close(tx, type(), first, last - first));
    return all_of_it.done();
  }

  // Adds elements T(), or copies of `value`, or removes some, until there are n.
  Status resize(Transaction& tx,
                std::size_t n) requires std::is_nothrow_default_constructible_v<T> {
    return resize_by(tx, n, [](void* slot) { new (slot) T(); });
  }
  Status resize(Transaction& tx, std::size_t n,
                const T& value) requires std::is_nothrow_copy_constructible_v<T> {
    const T copy(value);
    return resize_by(tx, n, [&copy](void* slot) { new (slot) T(copy); });
  }

  // The capacity becomes at least n; or about the size.
  Status reserve(Transaction& tx, std::size_t n) { return array_.reserve(tx, type(), n); }
  Status shrink_to_fit(Transaction& tx) { return array_.shrink(tx, type()); }

  // Copies of the values instead of all elements. They may be of this vector. Cost: a new block,
  // whatever the capacity: the old elements need no log.
  Status assign(Transaction& tx,
                std::span<const T> values) requires std::is_nothrow_copy_constructible_v<T> &&
      (!is_owner<T>()) {
    const Result<void*> slots = array_.replace(tx, type(), values.size());
    if (!slots) return slots.error();
    return fill(*slots, values);
  }
  Status assign(Transaction& tx, std::initializer_list<T> values) {
    return assign(tx, span_of(values));
  }
  // Removes all, and frees the block: one entry, where keeping it would log all elements.
  Status clear(Transaction& tx) {
    if constexpr (!Owner<T>) return array_.drop(tx);
    AllOrAbort all_of_it(tx);
    TENUTO_TRY(release_range(tx, 0, size()));
    TENUTO_TRY(array_.drop(tx));
    return all_of_it.done();
  }
  // Exchanges the contents. No element moves.
  Status swap(Transaction& tx, Vector& o) { return array_.swap(tx, o.array_); }

  // Replaces an element of a type without fields. not_found | as Transaction::add. Cost: a line for
  // each 48 bytes, and a fence.
  Status set(Transaction& tx, std::size_t i, const T& value) requires(is_plain<T>()) {
    const Result<T*> element = edit(tx, i);
    if (!element) return element.error();
    **element = value;
    return Status::ok;
  }
  // Logs an element, and gives it for changes in place. Statuses and cost as set.
  Result<T*> edit(Transaction& tx, std::size_t i) {
    if (i >= size()) return Status::not_found;
    T* const element = all().data() + i;
    TENUTO_TRY(tx.add(element, sizeof(T)));
    return element;
  }

  // Whether the block is there, with room for all elements, and whether these are sound; of any
  // bytes (BlocksOf in tenuto/element.h). ok | corrupt, with a report. REQUIRES: no transaction is
  // open on the pool.
  template <PoolOfBlocks AnyPool>
  Status validate(const AnyPool& pool, Report* report = nullptr) const {
    const BlocksOf blocks(pool);
    const auto v = array_.view();
    const auto wrong = [&](const char* what) { return fail(Status::corrupt, report, what); };
    if (v.size > v.room) return wrong("a vector has more elements than room");
    if (v.data == nullptr) return v.room == 0 ? Status::ok : wrong("a vector has no block");
    if (v.room > ~std::uint64_t{0} / sizeof(T) ||
        !blocks.has(v.data, v.room * sizeof(T), alignof(T))) {
      return wrong("the elements of a vector are no block");
    }
    for (const T& element : *this) TENUTO_TRY(blocks.validate(element, report));
    return Status::ok;
  }

  bool operator==(const Vector& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }

  // As an element (tenuto/element.h). Frees the block, and what the elements own. The vector has no
  // value afterwards; clear() leaves an empty one.
  Status release(Transaction& tx) {
    TENUTO_TRY(release_range(tx, 0, size()));
    const auto v = array_.view();
    return v.data == nullptr ? Status::ok : tx.free(v.data);
  }
  // For collections (tenuto/references.h).
  void references(const References& visit) const {
    const auto v = array_.view();
    if (v.data == nullptr) return;
    const bool sound = v.size <= v.room && v.room <= ~std::uint64_t{0} / sizeof(T) &&
                       visit.has(v.data, v.room * sizeof(T), alignof(T));
    if (!sound) return visit.words(this, sizeof *this);
    if (!visit.owns(v.data, v.room * sizeof(T))) return;
    for (const T& element : *this) visit_element(visit, element);
  }
  // REQUIRES: this has no value yet. Copies the values to a new block.
  Status construct(Transaction& tx,
                   std::span<const T> values) requires std::is_nothrow_copy_constructible_v<T> {
    const Result<void*> slots = array_.start(tx, type(), values.size());
    if (!slots) return slots.error();
    return fill(*slots, values);
  }

 private:
  static const tx::ElementType& type() {
    static_assert(Element<T>, "see tenuto/element.h");
    return tx::kElementType<T>;
  }
  std::span<T> all() const {
    const auto v = array_.view();
    return {reinterpret_cast<T*>(v.data), v.size};
  }
  static T* end_of(std::span<T> s) { return s.data() + s.size(); }
  static std::span<const T> span_of(std::initializer_list<T> list) {
    return {list.begin(), list.size()};
  }
  static Status fill(void* slots, std::span<const T> values) {
    T* to = static_cast<T*>(slots);
    for (const T& value : values) new (static_cast<void*>(to++)) T(value);
    return Status::ok;
  }
  Status release_range(Transaction& tx, std::size_t first, std::size_t last) {
    if constexpr (Owner<T>) {
      for (T& element : all().subspan(first, last - first)) TENUTO_TRY(element.release(tx));
    }
    return Status::ok;
  }
  template <class Make>
  Status resize_by(Transaction& tx, std::size_t n, Make&& make) {
    const std::size_t before = size();
    if (n <= before) return erase(tx, n, before);
    const Result<void*> slots = array_.open(tx, type(), before, n - before);
    if (!slots) return slots.error();
    auto* slot = static_cast<std::byte*>(*slots);
    for (std::size_t i = before; i < n; ++i, slot += sizeof(T)) make(slot);
    return Status::ok;
  }

  tx::Array array_;
};

}  // namespace TENUTO_NS
