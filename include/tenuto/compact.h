// Compaction of a pool's objects: Pool::compact moves objects with a type (AllocOptions::type) out
// of sparse slabs, so that their memory is free for objects of other types and sizes.
//
//   struct Person {
//     String name;
//     Ptr<Person> next;
//     Person(Relocation r, Person& from) : name(r, from.name), next(from.next) {}
//     ... release() (tenuto/element.h), references() (tenuto/references.h)
//   };
//   CompactObjectsOptions options;
//   options.root_filter = reference_filter<Root>();
//   options.types[kPersonType] = movable<Person>();
//   const Result<CompactObjectsStats> done = pool.compact(options);
//
// Only objects of the named types move. All that leads to one must be known: a Ptr or p<T*> that a
// references() passes is changed with the move. An object stays where it is if something else leads
// to it: a VPtr, a word of an object that is read word by word and looks like a pointer, an object
// that nothing leads to, the key of a map. So name the filters of all types that have one.
//
// What no references() passes is not seen, and leads to nothing afterwards: a pointer or an offset
// in DRAM, in a record of the store or in another pool, a Ptr one behind the end of an object.
// CompactObjectsOptions::moved tells of each move, for indexes in DRAM.
//
// Up to 128 objects move in one object transaction, with all that leads to them. After a crash each
// is where it was or where it went, and the next compaction goes on. The pool stays open, and its
// objects stand still during the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <new>

#include "tenuto/abi.h"
#include "tenuto/element.h"
#include "tenuto/references.h"

namespace TENUTO_NS {

// Objects of a type that a compaction may move.
struct Movable {
  PointerFilter references;
  // Makes at `to`, in new memory, the object that is at `from`, and changes nothing there. `bytes`:
  // the usable ones of each block. It throws nothing.
  std::function<void(void* to, void* from, std::uint64_t bytes)> move;
};

// Blocks that begin with a T. Bytes behind it are copied as they are, so they may hold no pointers.
template <class T>
Movable movable() {
  static_assert(Element<T>, "see tenuto/element.h; a T with a VPtr cannot move");
  static_assert(HasReferences<T> || PlainElement<T>, "T needs references(): tenuto/references.h");
  return {reference_filter<T>(), [](void* to, void* from, std::uint64_t bytes) {
            if (bytes < sizeof(T)) return static_cast<void>(std::memcpy(to, from, bytes));
            relocate(static_cast<T*>(to), *static_cast<T*>(from));
            std::memcpy(static_cast<std::byte*>(to) + sizeof(T),
                        static_cast<const std::byte*>(from) + sizeof(T), bytes - sizeof(T));
          }};
}

struct CompactObjectsOptions {
  PointerFilter root_filter = {};               // as in GarbageOptions
  std::map<std::uint64_t, Movable> types = {};  // these move
  // Of other types, which stay.
  std::map<std::uint64_t, PointerFilter> filters = {};
  // Slabs (64 KiB of one size class) are emptied when less than this part is in use. 0 < it <= 1.
  double occupancy = 0.7;
  std::uint64_t moves_max = 0;  // about so many objects; 0: no bound
  unsigned threads = 0;         // that follow the pointers; 0: one a core
  // After each transaction, for each object that it moved. It must not call the pool. The bytes at
  // `from` have no meaning any more. An exception ends the compaction, and is passed on.
  std::function<void(const void* from, void* to)> moved = {};
};

struct CompactObjectsStats {
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of the file on its file system
  std::uint64_t objects_moved = 0;
  std::uint64_t words_changed = 0;  // that led to them
  // Objects of the named types in sparse slabs that stay, because something leads to them that is
  // not known.
  std::uint64_t objects_fixed = 0;
  std::uint64_t slabs_emptied = 0;
  bool complete = false;  // false: moves_max, or a full pool, left some undone
  double mark_ms = 0;     // what following the pointers took
};

}  // namespace TENUTO_NS
