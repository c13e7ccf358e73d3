// What a thread has of ours, and its end: lanes, slots for line images, counts, epoch slots. No
// thread_local of the library has a destructor: those of a program may use a pool after ours would
// be gone, and static objects of a program, a pool among them, are destroyed after all of them.
//
// Parts are made at a thread's first need and end in one place (end_thread), as the destructor of a
// POSIX thread key. That runs after every thread_local of the thread was destroyed. Who needs a
// part again still later, in another key's destructor, gets a new one, and another round. For the
// thread that ends the process it does not run: what that thread has lives as long as the process,
// and a pool in a static object closes with it as anywhere else.
//
// A child of a fork inherits the forking thread's parts, which are of another process's pools: it
// forgets them (pm/process.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// In the order of their ends: the fence of an ending thread needs its slots and counts.
enum class ThreadPart : std::uint8_t { lanes, captures, counts, readers };
inline constexpr std::size_t kThreadParts = 4;

inline constinit thread_local std::array<void*, kThreadParts> thread_parts{};

// The calling thread's part will end with it. REQUIRES: thread_parts has none of the kind.
void keep_thread_part(ThreadPart which, void* part, void (*end)(void*));

// In a child, and before its first pool: the calling thread has no parts.
void forget_thread_parts();

// The part, or null.
template <class T>
T* find_thread_part(ThreadPart which) {
  return static_cast<T*>(thread_parts[static_cast<std::size_t>(which)]);
}
// The part, made now if there is none; ~T is its end.
template <class T>
T& thread_part(ThreadPart which) {
  if (T* part = find_thread_part<T>(which)) [[likely]]
    return *part;
  T* const part = new T;
  keep_thread_part(which, part, [](void* p) { delete static_cast<T*>(p); });
  return *part;
}

}  // namespace TENUTO_NS::pm
