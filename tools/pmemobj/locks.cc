// Mutexes, locks for readers and writers, condition variables and other volatile state inside
// objects. Each fills one line: the number of the run (open) that made it, and then what the C
// library needs. What an earlier run left is made anew at its first use, so nothing of it need be
// durable, and zeros are an unlocked lock.
#include <pthread.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "tenuto/persist.h"
#include "tools/pmemobj/error.h"
#include "tools/pmemobj/pools.h"

namespace TENUTO_NS::pmemobj {

namespace {

static_assert(sizeof(pthread_mutex_t) <= sizeof(PMEMmutex) - 8);
static_assert(sizeof(pthread_rwlock_t) <= sizeof(PMEMrwlock) - 8);
static_assert(sizeof(pthread_cond_t) <= sizeof(PMEMcond) - 8);

int make(void* m, pthread_mutex_t*) {
  return pthread_mutex_init(static_cast<pthread_mutex_t*>(m), nullptr);
}
int make(void* l, pthread_rwlock_t*) {
  return pthread_rwlock_init(static_cast<pthread_rwlock_t*>(l), nullptr);
}
int make(void* c, pthread_cond_t*) {
  return pthread_cond_init(static_cast<pthread_cond_t*>(c), nullptr);
}

// Runs init() once in this run for the state that `run` marks; the others wait for it. run_id - 1
// (odd) is a state that a thread makes now. 0 or errno.
template <class Init>
int once_a_run(const OpenPool& pool, std::uint64_t& run, const Init& init) {
  for (;;) {
    std::uint64_t now = __atomic_load_n(&run, __ATOMIC_ACQUIRE);
    if (now == pool.run_id) [[likely]]
      return 0;
    if (now == pool.run_id - 1) continue;
    if (!__atomic_compare_exchange_n(&run, &now, pool.run_id - 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_ACQUIRE)) {
      continue;
    }
    const int error = init();
    __atomic_store_n(&run, error == 0 ? pool.run_id : 0, __ATOMIC_RELEASE);
    return error;
  }
}

// The C library's stores, which need not be durable. The explorer has not seen them.
void stored(const void* lock) {
  if constexpr (kTraced) pm::trace_store(lock, sizeof(PMEMmutex));
  transient(lock, sizeof(PMEMmutex));
}

// The native lock; null with errno.
template <class Native>
Native* native(PMEMobjpool* pop, void* lock) {
  OpenPool* const pool = pool_of(pop);
  if (pool == nullptr) return nullptr;
  if (lock == nullptr) {
    refuse(EINVAL, "the lock is null");
    return nullptr;
  }
  auto& run = *static_cast<std::uint64_t*>(lock);
  auto* const body = reinterpret_cast<Native*>(static_cast<char*>(lock) + sizeof run);
  const int error = once_a_run(*pool, run, [&] { return make(body, body); });
  if (error == 0) return body;
  errno = error;
  return nullptr;
}

// call(native) -> errno
template <class Native, class Call>
int with(PMEMobjpool* pop, void* lock, const Call& call) {
  Native* const body = native<Native>(pop, lock);
  if (body == nullptr) return errno;
  const int result = call(body);
  stored(lock);
  return result;
}

void zero(PMEMobjpool* pop, void* lock) {
  if (pool_of(pop) == nullptr) return;
  auto& run = *static_cast<std::uint64_t*>(lock);
  __atomic_store_n(&run, 0, __ATOMIC_RELEASE);
  flush(run);
  fence("lock", "pmemobj_mutex_zero returns");
}

}  // namespace
}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;
using Mutex = pthread_mutex_t;
using RwLock = pthread_rwlock_t;
using Cond = pthread_cond_t;

void pmemobj_mutex_zero(PMEMobjpool* pop, PMEMmutex* mutexp) { zero(pop, mutexp); }
int pmemobj_mutex_lock(PMEMobjpool* pop, PMEMmutex* mutexp) {
  return with<Mutex>(pop, mutexp, pthread_mutex_lock);
}
int pmemobj_mutex_timedlock(PMEMobjpool* pop, PMEMmutex* __restrict mutexp,
                            const struct timespec* __restrict abs_timeout) {
  return with<Mutex>(pop, mutexp,
                     [&](Mutex* m) { return pthread_mutex_timedlock(m, abs_timeout); });
}
int pmemobj_mutex_trylock(PMEMobjpool* pop, PMEMmutex* mutexp) {
  return with<Mutex>(pop, mutexp, pthread_mutex_trylock);
}
int pmemobj_mutex_unlock(PMEMobjpool* pop, PMEMmutex* mutexp) {
  return with<Mutex>(pop, mutexp, pthread_mutex_unlock);
}

void pmemobj_rwlock_zero(PMEMobjpool* pop, PMEMrwlock* rwlockp) { zero(pop, rwlockp); }
int pmemobj_rwlock_rdlock(PMEMobjpool* pop, PMEMrwlock* rwlockp) {
  return with<RwLock>(pop, rwlockp, pthread_rwlock_rdlock);
}
int pmemobj_rwlock_wrlock(PMEMobjpool* pop, PMEMrwlock* rwlockp) {
  return with<RwLock>(pop, rwlockp, pthread_rwlock_wrlock);
}
int pmemobj_rwlock_timedrdlock(PMEMobjpool* pop, PMEMrwlock* __restrict rwlockp,
                               const struct timespec* __restrict abs_timeout) {
  return with<RwLock>(pop, rwlockp,
                      [&](RwLock* l) { return pthread_rwlock_timedrdlock(l, abs_timeout); });
}
int pmemobj_rwlock_timedwrlock(PMEMobjpool* pop, PMEMrwlock* __restrict rwlockp,
                               const struct timespec* __restrict abs_timeout) {
  return with<RwLock>(pop, rwlockp,
                      [&](RwLock* l) { return pthread_rwlock_timedwrlock(l, abs_timeout); });
}
int pmemobj_rwlock_tryrdlock(PMEMobjpool* pop, PMEMrwlock* rwlockp) {
  return with<RwLock>(pop, rwlockp, pthread_rwlock_tryrdlock);
}
int pmemobj_rwlock_trywrlock(PMEMobjpool* pop, PMEMrwlock* rwlockp) {
  return with<RwLock>(pop, rwlockp, pthread_rwlock_trywrlock);
}
int pmemobj_rwlock_unlock(PMEMobjpool* pop, PMEMrwlock* rwlockp) {
  return with<RwLock>(pop, rwlockp, pthread_rwlock_unlock);
}

void pmemobj_cond_zero(PMEMobjpool* pop, PMEMcond* condp) { zero(pop, condp); }
int pmemobj_cond_broadcast(PMEMobjpool* pop, PMEMcond* condp) {
  return with<Cond>(pop, condp, pthread_cond_broadcast);
}
int pmemobj_cond_signal(PMEMobjpool* pop, PMEMcond* condp) {
  return with<Cond>(pop, condp, pthread_cond_signal);
}
int pmemobj_cond_timedwait(PMEMobjpool* pop, PMEMcond* __restrict condp,
                           PMEMmutex* __restrict mutexp,
                           const struct timespec* __restrict abs_timeout) {
  return with<Cond>(pop, condp, [&](Cond* c) {
    return with<Mutex>(pop, mutexp,
                       [&](Mutex* m) { return pthread_cond_timedwait(c, m, abs_timeout); });
  });
}
int pmemobj_cond_wait(PMEMobjpool* pop, PMEMcond* condp, PMEMmutex* __restrict mutexp) {
  return with<Cond>(pop, condp, [&](Cond* c) {
    return with<Mutex>(pop, mutexp, [&](Mutex* m) { return pthread_cond_wait(c, m); });
  });
}

// A variable that is made at its first use in each run.
void* pmemobj_volatile(PMEMobjpool* pop, struct pmemvlt* vlt, void* ptr, size_t size,
                       int (*constr)(void* ptr, void* arg), void* arg) {
  const OpenPool* const pool = pool_of(pop);
  if (pool == nullptr) return nullptr;
  const int error = once_a_run(*pool, vlt->runid, [&] {
    return constr == nullptr || constr(ptr, arg) == 0 ? 0
                                                      : refuse(ECANCELED, "the constructor failed");
  });
  tenuto::transient(vlt, sizeof *vlt);
  tenuto::transient(ptr, size);
  return error == 0 ? ptr : nullptr;
}
