// The functions that compilers call for `-fsanitize=thread`, in place of the thread sanitizer's own
// runtime. So each store of the traced build calls this file. It also replaces memcpy, memset and
// memmove of the whole program. A store outside the watched pools costs one range test.
//
// The compiler does not report inline assembly, non-temporal intrinsics, and the stores of
// uninstrumented code (system calls, other libraries). Wrappers report the first two with
// trace_store(). The rest is found when the line is flushed (Recorder::unseen).
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "crash/interleave.h"
#include "crash/trace_files.h"
#include "crash/trace_recorder.h"
#include "pm/trace.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

void trace_map(void* base, std::uint64_t bytes, int fd) {
  Recorder::instance().map(base, bytes, fd);
}
void trace_unmap(void* base) { Recorder::instance().unmap(base); }
void trace_flush(const void* p, std::size_t bytes) {
  Interleaver::point();
  Recorder::instance().flush(p, bytes, trace_stack.site(__builtin_return_address(0)));
}
void trace_fence(const char* first, const char* then) {
  Interleaver::point();
  Recorder::instance().fence(first, then);
}
void trace_store(const void* p, std::size_t bytes) {
  if (!trace_regions.touches(p, bytes)) return;
  const TraceSite site = trace_stack.site(__builtin_return_address(0));
  Recorder::instance().after_store(p, bytes, site, true);
}

void trace_publish(const void* word) {
  if (!trace_regions.touches(word, sizeof(std::uint64_t))) return;
  Recorder::instance().publish(word, trace_stack.site(__builtin_return_address(0)));
}
void trace_transient(const void* p, std::size_t bytes) {
  if (trace_regions.touches(p, bytes)) Recorder::instance().transient(p, bytes);
}
void trace_tx(TraceTx what) { Recorder::instance().transaction(what); }

}  // namespace TENUTO_NS::pm

namespace {

using tenuto::pm::Interleaver;
using tenuto::pm::Recorder;
using tenuto::pm::trace_regions;
using tenuto::pm::trace_stack;
using tenuto::pm::TraceLock;
using tenuto::pm::TraceStack;

inline void plain(const void* p, std::size_t n, const void* site) {
  if (trace_regions.touches(p, n)) [[unlikely]] {
    Interleaver::point();
    Recorder::instance().before_store(p, n, trace_stack.site(site));
  }
}

constexpr bool releases(int order) { return order >= __ATOMIC_RELEASE; }

// Does the atomic operation and records what it stored, without another event between.
template <class T, class Op>
inline auto atomic_event(const volatile T* p, bool ordered, bool locked_op, const void* site,
                         Op op) {
  const auto* at = const_cast<const T*>(p);
  Interleaver::point();
  Recorder& r = Recorder::instance();
  if (locked_op) r.locked_instruction();
  if (!trace_regions.touches(at, sizeof(T))) [[likely]]
    return op();
  const TraceLock lock;
  r.prepare_store(at, sizeof(T));
  if constexpr (std::is_void_v<decltype(op())>) {
    op();
    r.after_store(at, sizeof(T), trace_stack.site(site), ordered);
  } else {
    const auto result = op();
    r.after_store(at, sizeof(T), trace_stack.site(site), ordered);
    return result;
  }
}

template <class Lock>
using LockFunction = int (*)(Lock*);

template <class Lock>
LockFunction<Lock> next_function(std::atomic<LockFunction<Lock>>& known, const char* name) {
  LockFunction<Lock> f = known.load(std::memory_order_relaxed);
  if (f == nullptr) {
    f = reinterpret_cast<LockFunction<Lock>>(::dlsym(RTLD_NEXT, name));
    known.store(f, std::memory_order_relaxed);
  }
  return f;
}

}  // namespace

#define SITE __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void* caller) {
  TraceStack& s = trace_stack;
  if (s.depth < TraceStack::kDepthMax) s.callers[s.depth] = caller;
  ++s.depth;
}
void __tsan_func_exit() {
  if (trace_stack.depth != 0) --trace_stack.depth;
}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void** p, void*) { plain(p, sizeof(void*), SITE); }
void __tsan_read_range(void*, std::size_t) {}
void __tsan_write_range(void* p, std::size_t n) { plain(p, n, SITE); }

#define TENUTO_TSAN_SIZE(n)                                               \
  void __tsan_read##n(void*) {}                                           \
  void __tsan_unaligned_read##n(void*) {}                                 \
  void __tsan_volatile_read##n(void*) {}                                  \
  void __tsan_unaligned_volatile_read##n(void*) {}                        \
  void __tsan_write##n(void* p) { plain(p, n, SITE); }                    \
  void __tsan_unaligned_write##n(void* p) { plain(p, n, SITE); }          \
  void __tsan_volatile_write##n(void* p) { plain(p, n, SITE); }           \
  void __tsan_unaligned_volatile_write##n(void* p) { plain(p, n, SITE); } \
  void __tsan_read_write##n(void* p) { plain(p, n, SITE); }               \
  void __tsan_unaligned_read_write##n(void* p) { plain(p, n, SITE); }     \
  void __tsan_read##n##_pc(void*, void*) {}                               \
  void __tsan_write##n##_pc(void* p, void* pc) { plain(p, n, pc); }
TENUTO_TSAN_SIZE(1)
TENUTO_TSAN_SIZE(2)
TENUTO_TSAN_SIZE(4)
TENUTO_TSAN_SIZE(8)
TENUTO_TSAN_SIZE(16)

void __tsan_atomic_thread_fence(int order) {
  __atomic_thread_fence(order);
  Recorder::instance().locked_instruction();
}
void __tsan_atomic_signal_fence(int order) { __atomic_signal_fence(order); }

#define TENUTO_TSAN_RMW(bits, T, name)                                            \
  T __tsan_atomic##bits##_##name(volatile T* p, T v, int order) {                 \
    return atomic_event(p, releases(order), true, SITE,                           \
                        [&] { return __atomic_##name(p, v, __ATOMIC_SEQ_CST); }); \
  }
#define TENUTO_TSAN_CAS(bits, T, name, weak)                                                      \
  int __tsan_atomic##bits##_compare_exchange_##name(volatile T* p, T* expected, T v, int order,   \
                                                    int) {                                        \
    return atomic_event(p, releases(order), true, SITE, [&] {                                     \
      return static_cast<int>(                                                                    \
          __atomic_compare_exchange_n(p, expected, v, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
    });                                                                                           \
  }
#define TENUTO_TSAN_ATOMIC(bits, T)                                                              \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                       \
    Interleaver::point();                                                                        \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                              \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int order) {                              \
    atomic_event(p, releases(order), order == __ATOMIC_SEQ_CST, SITE,                            \
                 [&] { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); });                             \
  }                                                                                              \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int order) {                              \
    return atomic_event(p, releases(order), true, SITE,                                          \
                        [&] { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); });            \
  }                                                                                              \
  TENUTO_TSAN_RMW(bits, T, fetch_add)                                                            \
  TENUTO_TSAN_RMW(bits, T, fetch_sub)                                                            \
  TENUTO_TSAN_RMW(bits, T, fetch_and)                                                            \
  TENUTO_TSAN_RMW(bits, T, fetch_or)                                                             \
  TENUTO_TSAN_RMW(bits, T, fetch_xor)                                                            \
  TENUTO_TSAN_RMW(bits, T, fetch_nand)                                                           \
  TENUTO_TSAN_CAS(bits, T, strong, false)                                                        \
  TENUTO_TSAN_CAS(bits, T, weak, true)                                                           \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T v, int order, int) { \
    return atomic_event(p, releases(order), true, SITE, [&] {                                    \
      __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
      return expected;                                                                           \
    });                                                                                          \
  }
TENUTO_TSAN_ATOMIC(8, std::uint8_t)
TENUTO_TSAN_ATOMIC(16, std::uint16_t)
TENUTO_TSAN_ATOMIC(32, std::uint32_t)
TENUTO_TSAN_ATOMIC(64, std::uint64_t)

// glibc's own functions, under the names that its fortified headers use. They are called through
// volatile pointers, because a compiler would turn direct calls into calls of memcpy again.
void* libc_memcpy(void*, const void*, std::size_t, std::size_t) __asm__("__memcpy_chk");
void* libc_memmove(void*, const void*, std::size_t, std::size_t) __asm__("__memmove_chk");
void* libc_memset(void*, int, std::size_t, std::size_t) __asm__("__memset_chk");
static decltype(&libc_memcpy) volatile real_memcpy = libc_memcpy;
static decltype(&libc_memmove) volatile real_memmove = libc_memmove;
static decltype(&libc_memset) volatile real_memset = libc_memset;

void* memcpy(void* __restrict dst, const void* __restrict src, std::size_t n) {
  if (!trace_regions.touches(dst, n)) [[likely]]
    return real_memcpy(dst, src, n, n);
  Interleaver::point();
  const TraceLock lock;
  Recorder::instance().prepare_store(dst, n);
  real_memcpy(dst, src, n, n);
  Recorder::instance().after_store(dst, n, trace_stack.site(SITE), false);
  return dst;
}

void* memmove(void* dst, const void* src, std::size_t n) {
  if (!trace_regions.touches(dst, n)) [[likely]]
    return real_memmove(dst, src, n, n);
  Interleaver::point();
  const TraceLock lock;
  Recorder::instance().prepare_store(dst, n);
  real_memmove(dst, src, n, n);
  Recorder::instance().after_store(dst, n, trace_stack.site(SITE), false);
  return dst;
}

void* memset(void* dst, int value, std::size_t n) {
  if (!trace_regions.touches(dst, n)) [[likely]]
    return real_memset(dst, value, n, n);
  Interleaver::point();
  const TraceLock lock;
  Recorder::instance().prepare_store(dst, n);
  real_memset(dst, value, n, n);
  Recorder::instance().after_store(dst, n, trace_stack.site(SITE), false);
  return dst;
}

// Locking and unlocking are locked instructions in a library that is not instrumented. An
// interleaved thread must not block in it, because the lock's holder could then not run. So it
// tries, and lets another thread run when the lock is taken.
#define TENUTO_LOCK(type, name, try_name)                                \
  int name(type* m) {                                                    \
    static constinit std::atomic<LockFunction<type>> next = nullptr;     \
    static constinit std::atomic<LockFunction<type>> next_try = nullptr; \
    int result = 0;                                                      \
    if (Interleaver::managed()) {                                        \
      Interleaver::point();                                              \
      const auto attempt = next_function(next_try, #try_name);           \
      while ((result = attempt(m)) == EBUSY) Interleaver::blocked();     \
    } else {                                                             \
      result = next_function(next, #name)(m);                            \
    }                                                                    \
    Recorder::instance().locked_instruction();                           \
    return result;                                                       \
  }
#define TENUTO_UNLOCK(type, name)                                    \
  int name(type* m) {                                                \
    static constinit std::atomic<LockFunction<type>> next = nullptr; \
    Recorder::instance().locked_instruction();                       \
    const int result = next_function(next, #name)(m);                \
    Interleaver::point();                                            \
    return result;                                                   \
  }
TENUTO_LOCK(pthread_mutex_t, pthread_mutex_lock, pthread_mutex_trylock)
TENUTO_UNLOCK(pthread_mutex_t, pthread_mutex_unlock)
TENUTO_LOCK(pthread_rwlock_t, pthread_rwlock_rdlock, pthread_rwlock_tryrdlock)
TENUTO_LOCK(pthread_rwlock_t, pthread_rwlock_wrlock, pthread_rwlock_trywrlock)
TENUTO_UNLOCK(pthread_rwlock_t, pthread_rwlock_unlock)

// A thread that yields waits for another thread. When threads run one at a time, the yield must
// run one of the others, and not whatever else the machine has to do.
int sched_yield() noexcept {
  if (!Interleaver::managed()) return static_cast<int>(::syscall(SYS_sched_yield));
  Interleaver::blocked();
  return 0;
}

}  // extern "C"
