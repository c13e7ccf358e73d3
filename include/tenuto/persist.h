// Flush, fence and publish: how stores become durable, and in which order.
//
// A store is durable when its line was flushed and a later fence of the same thread has returned.
// Before that it may or may not be durable. Stores to one 64-byte line become durable in program
// order: a crash keeps a prefix of them. Different lines become durable in any order. Only aligned
// 8-byte stores are atomic. Every medium keeps this promise (src/pm/README.md).
//
// A fence has two names: what must be durable, and what may happen only then. In the plain build
// they cost nothing. In the traced build (TENUTO_TRACED) they name crash points and reports.
//
// Cost: on medium `line` one CLWB for each line and one SFENCE, inline behind one predictable
// branch. On medium `cache` a compiler barrier. Thread safety: any thread at any time; a fence
// covers only the flushes of the calling thread.
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

// How this process flushes now. It is one word for all open pools. clwb: every pool is on medium
// `line`, and the CPU has CLWB. none: every pool is on `cache`. cold: otherwise; each flush looks
// its pool up, out of line.
enum class FlushPath : std::uint8_t { none, clwb, cold };
TENUTO_API extern constinit std::atomic<FlushPath> flush_path;

TENUTO_API void flush_cold(const void* p, std::size_t bytes);
TENUTO_API void fence_cold();

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
inline void flush_in_line(const void* p, std::size_t bytes) { pm::trace_flush(p, bytes); }
inline void flush_lines(const char* const* lines, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) pm::trace_flush(lines[i], kLineBytes);
}
inline void fence(const char* first, const char* then) { pm::trace_fence(first, then); }
inline constexpr bool kTraced = true;

#else

// Starts to write back the lines that hold [p, p + bytes). They are durable after the next fence.
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

// The same for bytes in one line.
[[gnu::always_inline]] inline void flush_in_line(const void* p, std::size_t bytes) {
  const pm::FlushPath path = pm::flush_path.load(std::memory_order_relaxed);
  if (path == pm::FlushPath::clwb) [[likely]] {
    pm::clwb_line(p);
  } else if (path == pm::FlushPath::cold) {
    pm::flush_cold(p, bytes);
  } else {
    pm::compiler_barrier();
  }
}

// The same for `n` whole lines.
[[gnu::always_inline]] inline void flush_lines(const char* const* lines, std::size_t n) {
  const pm::FlushPath path = pm::flush_path.load(std::memory_order_relaxed);
  if (path == pm::FlushPath::clwb) [[likely]] {
    for (std::size_t i = 0; i < n; ++i) pm::clwb_line(lines[i]);
  } else if (path == pm::FlushPath::cold) {
    for (std::size_t i = 0; i < n; ++i) pm::flush_cold(lines[i], kLineBytes);
  } else {
    pm::compiler_barrier();
  }
}

// Everything that this thread flushed before is durable when this returns. (On medium `journal` it
// is ordered, and durable after the next sync: see Durability.)
[[gnu::always_inline]] inline void fence(const char* /*first*/, const char* /*then*/) {
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
  // Aligned to its size, a power of two: it is in one line.
  if constexpr (sizeof(T) == alignof(T) && sizeof(T) <= kLineBytes) {
    flush_in_line(&object, sizeof object);
  } else {
    flush_bytes(&object, sizeof object);
  }
}

// Stores one aligned 8-byte word (release). The caller flushes it. This is the only way to make
// something reachable. REQUIRES: what the word promises is durable, or is in the same line and is
// flushed under the same fence.
template <class T>
requires(sizeof(T) == 8 &&
         std::is_trivially_copyable_v<T>) inline void store_published(T& word,
                                                                      std::type_identity_t<T> v) {
  __atomic_store(&word, &v, __ATOMIC_RELEASE);
  if constexpr (kTraced) pm::trace_publish(&word);
}

// store_published and the flush of the word.
template <class T>
requires(sizeof(T) == 8 &&
         std::is_trivially_copyable_v<T>) inline void publish(T& word,
                                                              std::type_identity_t<T> value) {
  store_published(word, value);
  flush_in_line(&word, sizeof word);
}

// Declares that the stores to [p, p + bytes) so far need not be durable, because recovery does not
// need them. The crash explorer then does not report them as forgotten. Does nothing in the plain
// build.
inline void transient(const void* p, std::size_t bytes) {
  if constexpr (kTraced) pm::trace_transient(p, bytes);
}

// Stores one word that other threads may read (release). The compiler must not move it past other
// ordered stores to the same line. Not flushed.
template <class T>
requires(std::is_trivially_copyable_v<T> &&
         sizeof(T) <= 8) inline void store_ordered(T& word, std::type_identity_t<T> value) {
  __atomic_store(&word, &value, __ATOMIC_RELEASE);
}

// Where the order of stores is the order in which a crash keeps them (medium `cache`): names it for
// the traced build.
[[gnu::always_inline]] inline void order_stores([[maybe_unused]] const char* first,
                                                [[maybe_unused]] const char* then) {
  if constexpr (kTraced) {
    fence(first, then);
  } else {
    pm::compiler_barrier();
  }
}

// Flushes one object and fences.
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
