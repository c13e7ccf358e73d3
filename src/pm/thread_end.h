// What the library keeps for a thread (lanes, slots for line images, counts, epoch slots), and how
// it ends. No thread_local of the library has a destructor. A thread_local of the program may use a
// pool after such a destructor would have run. Static objects of the program, a pool among them,
// are destroyed after all of them.
//
// A part is made when a thread first needs it. All parts end in one place (end_thread), the
// destructor of a POSIX thread key. It runs after all thread_locals of the thread are destroyed. If
// the destructor of another key needs a part still later, the thread gets a new one, and end_thread
// runs once more. end_thread does not run for the thread that ends the process. That thread's parts
// live as long as the process, so a pool in a static object closes as anywhere else.
//
// A child of fork inherits the forking thread's parts, which belong to another process's pools. It
// forgets them (pm/process.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// In the order in which they end: the fence of an ending thread needs its slots and counts.
enum class ThreadPart : std::uint8_t { lanes, captures, counts, readers };
inline constexpr std::size_t kThreadParts = 4;

inline constinit thread_local std::array<void*, kThreadParts> thread_parts{};

// Registers a part of the calling thread: `end` is called with it when the thread ends. Throws
// bad_alloc, after end(part), if there is no memory. REQUIRES: the thread has no part of this kind.
void keep_thread_part(ThreadPart which, void* part, void (*end)(void*));

// Called in a child, and before a process opens its first pool: drops the calling thread's parts.
void forget_thread_parts();

// The part, or null.
template <class T>
T* find_thread_part(ThreadPart which) {
  return static_cast<T*>(thread_parts[static_cast<std::size_t>(which)]);
}
// The part; made now if there is none. ~T runs at the thread's end.
template <class T>
T& thread_part(ThreadPart which) {
  if (T* part = find_thread_part<T>(which)) [[likely]]
    return *part;
  T* const part = new T;
  keep_thread_part(which, part, [](void* p) { delete static_cast<T*>(p); });
  return *part;
}

}  // namespace TENUTO_NS::pm
