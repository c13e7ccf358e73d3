// The verbs of durable order. A store becomes durable when its line has been flushed and a later
// fence by the same thread has returned; until then it may or may not be. Stores to one 64-byte
// line become durable in program order (a prefix survives a crash), different lines in any order,
// and only aligned 8-byte stores are atomic. Every medium keeps this promise (src/pm/README.md).
//
// The two names of a fence say what must be safe before what may happen. They cost nothing in the
// plain build; in the traced build (TENUTO_TRACED) they name crash points and reports.
//
// Cost: medium `line` is CLWB a line and one SFENCE, inline behind one predictable branch; medium
// `cache` is a compiler barrier. Thread safety: any thread, any time; a fence orders only the
// calling thread's flushes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tenuto/abi.h"
#include "tenuto/units.h"

#ifndef __x86_64__
#error "tenuto flushes lines with x86-64 instructions; other processors are not supported yet"
#endif

namespace TENUTO_NS {

namespace pm {

// How flushes leave this process at the moment. It is one word for all open pools: `clwb` while
// every open pool is on medium `line` of a CPU with CLWB, `none` while all are on `cache`, else
// `cold`, where each flush looks its pool up out of line.
enum class FlushPath : std::uint8_t { none, clwb, cold };
extern constinit std::atomic<FlushPath> flush_path;

void flush_cold(const void* p, std::size_t bytes);
void fence_cold();

// Traced build only (src/crash/trace_tsan.cc).
void trace_flush(const void* p, std::size_t bytes);
void trace_fence(const char* first, const char* then);
void trace_store(const void* p, std::size_t bytes);
void trace_publish(const void* word);
void trace_transient(const void* p, std::size_t bytes);

inline void clwb_line(const void* line) {
  asm volatile("clwb %0" : : "m"(*static_cast<const char*>(line)) : "memory");
}
inline void sfence() { asm volatile("sfence" : : : "memory"); }
inline void compiler_barrier() { asm volatile("" : : : "memory"); }

inline const char* line_of(const void* p) {
  return reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) & ~(kLineBytes - 1));
}

}  // namespace pm

#ifdef TENUTO_TRACED

inline void flush_bytes(const void* p, std::size_t bytes) { pm::trace_flush(p, bytes); }
inline void fence(const char* first, const char* then) { pm::trace_fence(first, then); }
inline constexpr bool kTraced = true;

#else

// Starts writing back the lines that hold [p, p + bytes). Not durable before the next fence.
inline void flush_bytes(const void* p, std::size_t bytes) {
  const pm::FlushPath path = pm::flush_path.load(std::memory_order_relaxed);
  if (path == pm::FlushPath::clwb) [[likely]] {
    const char* end = static_cast<const char*>(p) + bytes;
    for (const char* line = pm::line_of(p); line < end; line += kLineBytes) pm::clwb_line(line);
  } else if (path == pm::FlushPath::cold) {
    pm::flush_cold(p, bytes);
  } else {
    pm::compiler_barrier();
  }
}

// Everything this thread flushed before is durable when this returns.
inline void fence(const char* /*first*/, const char* /*then*/) {
  const pm::FlushPath path = pm::flush_path.load(std::memory_order_relaxed);
  if (path == pm::FlushPath::clwb) [[likely]] {
    pm::sfence();
  } else if (path == pm::FlushPath::cold) {
    pm::fence_cold();
  } else {
    pm::compiler_barrier();
  }
}
inline constexpr bool kTraced = false;

#endif

template <class T>
requires(!std::is_pointer_v<T>) inline void flush(const T& object) {
  flush_bytes(&object, sizeof object);
}

// Stores one aligned 8-byte word (release), which the caller flushes: the only way to make
// something reachable. What the word promises must be durable, or be flushed under the same fence
// in the same line, when this is called.
template <class T>
requires(sizeof(T) == 8 &&
         std::is_trivially_copyable_v<T>) inline void store_published(T& word,
                                                                      std::type_identity_t<T> v) {
  __atomic_store(&word, &v, __ATOMIC_RELEASE);
  if constexpr (kTraced) pm::trace_publish(&word);
}

// The same with the flush.
template <class T>
requires(sizeof(T) == 8 &&
         std::is_trivially_copyable_v<T>) inline void publish(T& word,
                                                              std::type_identity_t<T> value) {
  store_published(word, value);
  flush_bytes(&word, sizeof word);
}

// Says that what was stored in [p, p + bytes) so far need not be durable, because recovery does
// without it: the crash explorer then does not report it as forgotten. Nothing in the plain build.
inline void transient(const void* p, std::size_t bytes) {
  if constexpr (kTraced) pm::trace_transient(p, bytes);
}

// A plain store of one word that other threads may read, and that must not be moved by the
// compiler past other ordered stores of the same line. Not flushed.
template <class T>
requires(std::is_trivially_copyable_v<T> &&
         sizeof(T) <= 8) inline void store_ordered(T& word, std::type_identity_t<T> value) {
  __atomic_store(&word, &value, __ATOMIC_RELEASE);
}

// Flush and fence of one object.
template <class T>
requires(!std::is_pointer_v<T>) inline void persist(const T& object, const char* first,
                                                    const char* then) {
  flush(object);
  fence(first, then);
}

// Copies bytes into a pool and flushes them.
inline void copy_flush(void* dst, const void* src, std::size_t bytes) {
  std::memcpy(dst, src, bytes);
  flush_bytes(dst, bytes);
}

// Fills bytes of a pool with zeros and flushes them.
inline void zero_flush(void* dst, std::size_t bytes) {
  std::memset(dst, 0, bytes);
  flush_bytes(dst, bytes);
}

}  // namespace TENUTO_NS
