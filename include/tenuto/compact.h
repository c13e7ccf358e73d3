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
// that nothing leads to, the key of a map. So name the filters of all types that have one. It
// stays, too, if what it holds is not known: bytes that are read word by word, or are behind the T,
// and look like a pointer (zero-fill blocks that are larger than a T: AllocOptions::zero).
//
// What no references() passes is not seen, and leads to nothing afterwards: a pointer or an offset
// in DRAM, as in a list of Actions or a Handle of a ConcurrentHashMap, in a record of the store or
// in another pool; a Ptr one behind the end of an object. CompactObjectsOptions::moved tells of
// each move, for indexes in DRAM.
//
// Up to 128 objects move in one object transaction, with all that leads to them. After a crash, a
// failure or an exception each is where it was or where it went, and the next compaction goes on.
// The pool stays open, and its objects stand still during the call. Under wear levelling new blocks
// are spread over slabs, so what moved is soon sparse again: compact seldom there.
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
  // the usable ones of each block. It throws nothing. What the object leads to stays the same, also
  // if that is an object that moves; a pointer into itself may lead to either place.
  std::function<void(void* to, void* from, std::uint64_t bytes)> move;
  // What references() tells of. Smaller blocks stay. 0: all of a block, whatever its size.
  std::uint64_t object_bytes = 0;
};

// Blocks that begin with a T. Bytes behind it are copied as they are.
template <class T>
Movable movable() {
  static_assert(Element<T>, "see tenuto/element.h; a T with a VPtr cannot move");
  static_assert(HasReferences<T>, "T needs references(), also if it has none: tenuto/references.h");
  return {reference_filter<T>(),
          [](void* to, void* from, std::uint64_t bytes) {
            relocate(static_cast<T*>(to), *static_cast<T*>(from));
            std::memcpy(static_cast<std::byte*>(to) + sizeof(T),
                        static_cast<const std::byte*>(from) + sizeof(T), bytes - sizeof(T));
          },
          sizeof(T)};
}

struct CompactObjectsOptions {
  PointerFilter root_filter = {};               // as in GarbageOptions; empty: of PoolOptions
  std::map<std::uint64_t, Movable> types = {};  // these move
  // Of other types, which stay. Those of PoolOptions are taken, too.
  std::map<std::uint64_t, PointerFilter> filters = {};
  // Slabs (64 KiB of one size class) are emptied when less than this part is in use. 0 < it <= 1.
  double occupancy = 0.7;
  std::uint64_t moves_max = 0;  // about so many objects; 0: no bound
  unsigned threads = 0;         // that follow the pointers; 0: one a core
  // Called at the end, also of a compaction that failed, for each object that has moved. The bytes
  // at `from` have no meaning any more. It may call the pool.
  std::function<void(const void* from, void* to)> moved = {};
};

struct CompactObjectsStats {
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of the file on its file system
  std::uint64_t objects_moved = 0;
  std::uint64_t words_changed = 0;  // that led to them
  // Objects of the named types in sparse slabs that stay, for what leads to them or is in them is
  // not known, or is more than one transaction can log. One of them, for Pool::describe.
  std::uint64_t objects_fixed = 0;
  const void* one_fixed = nullptr;
  std::uint64_t slabs_emptied = 0;
  // false: moves_max, a full pool, or blocks that rest (wear levelling, NUMA) left some undone.
  bool complete = false;
  double mark_ms = 0;  // what following the pointers took
};

}  // namespace TENUTO_NS
