// Where the references of an object are: for collections after a crash (Consistency::gc), for
// Pool::find_garbage and for Pool::compact. Without that an object is read word by word, and a
// number that looks like a pointer keeps a block, in its place.
//
//   struct Person {
//     std::uint64_t id;  // may look like a pointer, and is none
//     String name;
//     Vector<std::uint64_t> scores;
//     Ptr<Person> next;
//     void references(const References& visit) const { visit(name, scores, next); }
//   };
//   struct Root {
//     OrderedMap<std::uint64_t, Person> people;
//     void references(const References& visit) const { visit(people); }
//   };
//   PoolOptions options;
//   options.root_filter = reference_filter<Root>();
//   Result<Pool> pool = Pool::open(path, options);
//
// The member references() of a type passes on every member that leads to memory or may lead there:
//   - containers (Vector, String, Queue and the maps), which all have references(), and other
//     objects that have it. So containers in containers need nothing more;
//   - Ptr<T>, VPtr<T>, p<T*>: they lead to one T, which is read by its own references(). A number
//     T, also a char, has none. A class T without references(), and void, is read word by word, to
//     the end of its block;
//   - arrays of all these; a T* leads to a block that is read word by word;
//   - any other class without references(): its bytes are read word by word.
// Numbers and fields of numbers may be passed, and have no effect. Elements of containers whose
// bytes are their value (PlainElement in tenuto/element.h) have no references.
//
// What is not passed on is freed by the next collection. So a Ptr to an array of T, or to a class
// that is derived from T, must be passed as visit.all(ptr) (word by word) or, with a number of
// elements, visit.array(ptr, n). A container that was released has no value: do not pass it on, or
// clear() it instead. To test a type, compare Pool::find_garbage with the filter and without it.
//
// Objects with a type (AllocOptions::type) may have a filter of their own, by type:
// options.filters[kPersonType] = reference_filter<Person>(). It comes before what a Ptr says.
//
// Pool::compact moves objects, and stores their new addresses in the members that were passed. So
// pass the Ptr or p<T*> itself: of a copy, a T* or a VPtr only the target is known, which stays
// where it is. What is sorted or hashed by an address is passed as visit.fixed(member). The maps do
// that for their keys.
//
// A block that is reached in several ways is read as each of them says; by several arrays of one
// type as the first one says. One that is read word by word keeps more, never less. Containers
// inside a block are checked against the blocks of the pool as they are read, so damaged ones lead
// to no block, and end.
//
// Thread safety: references() runs in several threads at once, on objects that nobody changes. It
// must not call the pool, and throws nothing but std::bad_alloc.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "tenuto/abi.h"
#include "tenuto/ptr.h"
#include "tenuto/vptr.h"

namespace TENUTO_NS {

template <class T>
class p;  // tenuto/p.h
class References;

// Has a member references(const References&), which says where its references are.
template <class T>
concept HasReferences = std::is_void_v<decltype(std::declval<const T&>().references(
    std::declval<const References&>()))>;

// The argument of references(). Only a collection makes one.
class References {
 public:
  // Reads an object or a block.
  using Reader = void (*)(const void* object, std::uint64_t bytes, const References& visit);
  // What a collection does.
  class Marker {
   public:
    // The block that `to` points to or into. `reader`: how it is read, if `to` is its begin. Null:
    // word by word. `word`: where that is stored, and may be changed. Null: unknown.
    virtual void lead_to(const void* to, Reader reader, const PtrWord* word) = 0;
    // Reads the words of [at, at + bytes).
    virtual void read_words(const void* at, std::uint64_t bytes) = 0;
    // Reads an object inside a block some time later.
    virtual void read_later(const void* at, std::uint64_t bytes, Reader reader) = 0;
    virtual bool is_block(const void* at, std::uint64_t bytes) const = 0;
    // `word` as of lead_to. `reader`: who reads it now. Null: its owner, a container.
    virtual bool take(const void* block, std::uint64_t bytes, const PtrWord* word,
                      Reader reader) = 0;
    unsigned depth = 0;  // of objects in objects, as they are read
    bool fixed = false;  // what is read now leads to what stays

   protected:
    ~Marker() = default;
  };
  explicit References(Marker& marker) : marker_(&marker) {}

  template <class... Members>
  void operator()(const Members&... members) const {
    (member(members), ...);
  }
  // The same, but a compaction moves nothing that these members lead to.
  template <class... Members>
  void fixed(const Members&... members) const {
    const bool outer = std::exchange(marker_->fixed, true);
    (member(members), ...);
    marker_->fixed = outer;
  }
  // The block that a Ptr, a VPtr, a field or a T* leads to, word by word.
  template <class Pointer>
  void all(const Pointer& to) const {
    marker_->lead_to(address(to), nullptr, word_of(to));
  }
  // n objects, one behind the other from the begin of their block on.
  template <class Pointer>
  void array(const Pointer& to, std::uint64_t n) const {
    const auto* const first = address(to);
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(first)>>;
    if (first == nullptr) return;
    if (n > kBytesMost / sizeof(T) || !has(first, n * sizeof(T))) return all(to);
    if (!marker_->take(first, n * sizeof(T), word_of(to), &read_array<T>)) return;
    for (std::uint64_t i = 0; i < n; ++i) member(first[i]);
  }

  // For containers. Whether an allocated block of at least so many bytes may begin there.
  bool has(const void* at, std::uint64_t bytes, std::uint64_t align = 8) const {
    return reinterpret_cast<std::uintptr_t>(at) % align == 0 && marker_->is_block(at, bytes);
  }
  // The same, and the block is reached now, which it was not yet. Then the caller reads it. It
  // stays where it is.
  bool owns(const void* at, std::uint64_t bytes) const {
    return marker_->take(at, bytes, nullptr, nullptr);
  }
  void words(const void* at, std::uint64_t bytes) const { marker_->read_words(at, bytes); }

  // A T begins there.
  template <class T>
  static void read(const void* object, std::uint64_t bytes, const References& visit) {
    if (bytes < sizeof(T)) return visit.words(object, bytes);
    visit.member(*static_cast<const T*>(object));
  }

 private:
  static constexpr std::uint64_t kBytesMost = std::uint64_t{1} << 47;
  // An object deeper in others is read later, so that a stack is enough for every tree.
  static constexpr unsigned kDepthMost = 32;

  template <class T>
  static constexpr bool kIsNumber = std::is_arithmetic_v<T> || std::is_enum_v<T>;
  static void read_nothing(const void*, std::uint64_t, const References&) {}
  // Stands for array(), which reads itself.
  template <class T>
  static void read_array(const void*, std::uint64_t, const References&) {}

  template <class T>
  static constexpr Reader reader_of() {
    if constexpr (std::is_void_v<T>) {
      return nullptr;
    } else if constexpr (kIsNumber<std::remove_cv_t<T>>) {
      return &read_nothing;
    } else if constexpr (HasReferences<T>) {
      return &read<T>;
    } else {
      return nullptr;
    }
  }
  template <class T>
  void lead_to(const T* to, const PtrWord* word) const {
    if (to != nullptr) marker_->lead_to(to, reader_of<T>(), word);
  }
  template <class T>
  void member(const Ptr<T>& m) const {
    lead_to<T>(m.get(), word_of(m));
  }
  template <class T>
  void member(const VPtr<T>& m) const {
    lead_to<T>(m.get(), nullptr);
  }
  template <class T>
  void member(const p<T>& m) const {
    if constexpr (std::is_pointer_v<T>) lead_to<std::remove_pointer_t<T>>(m.get(), word_of(m));
  }
  template <class T, std::size_t kCount>
  void member(const T (&m)[kCount]) const {
    for (const T& each : m) member(each);
  }
  template <class T>
  void member(const T& m) const {
    if constexpr (std::is_pointer_v<T>) {
      marker_->lead_to(m, nullptr, nullptr);
    } else if constexpr (HasReferences<T>) {
      if (marker_->depth == kDepthMost) return marker_->read_later(&m, sizeof m, &read<T>);
      ++marker_->depth;
      m.references(*this);
      --marker_->depth;
    } else if constexpr (!kIsNumber<T> && !std::is_null_pointer_v<T>) {
      marker_->read_words(&m, sizeof m);
    }
  }

  template <class Pointer>
  static auto address(const Pointer& to) {
    if constexpr (std::is_pointer_v<Pointer>) {
      return to;
    } else {
      return to.get();
    }
  }

  template <class T>
  static const PtrWord* word_of(const Ptr<T>& m) {
    return &m.word();
  }
  template <class T>
  static const PtrWord* word_of(const p<T*>& m) {
    return reinterpret_cast<const PtrWord*>(&m);
  }
  static const PtrWord* word_of(const auto&) { return nullptr; }

  Marker* marker_;
};

// Tells the references of an object: those of a type's objects, or of the root object. `bytes`: the
// usable bytes of its block.
using PointerFilter =
    std::function<void(const void* object, std::uint64_t bytes, const References& visit)>;

// The filter of objects that are a T.
template <class T>
PointerFilter reference_filter() {
  return &References::read<T>;
}

}  // namespace TENUTO_NS
