#include "tools/pmemobj/pools.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "tools/pmemobj/error.h"

// Part of the ABI: pmemobj_direct_inline keeps the pool that it used last there.
extern "C" {
int _pobj_cache_invalidate;
__thread struct _pobj_pcache _pobj_cached_pool;
}

namespace TENUTO_NS::pmemobj {

namespace {

using Table = std::vector<OpenPool*>;  // by address

// Tables that were replaced are kept until the process ends: another thread may still read them.
// They are as many as there were opens and closes. Never destroyed: pools may be used at exit.
struct Registry {
  std::atomic<const Table*> table{new Table};
  std::atomic<std::uint64_t> changes{1};
  std::mutex mu;
  std::vector<const Table*> replaced;  // guarded by mu
};
Registry& registry() {
  static auto* const r = new Registry;
  return *r;
}

// The pool that this thread looked up last.
struct Last {
  std::uint64_t changes = 0;
  OpenPool* pool = nullptr;
};
constinit thread_local Last last;

template <class Found>
OpenPool* find(const Found& found) {
  Registry& r = registry();
  const std::uint64_t changes = r.changes.load(std::memory_order_acquire);
  if (last.changes == changes && found(*last.pool)) [[likely]]
    return last.pool;
  for (OpenPool* pool : *r.table.load(std::memory_order_acquire)) {
    if (!found(*pool)) continue;
    last = {changes, pool};
    return pool;
  }
  return nullptr;
}

// REQUIRES: r.mu.
void replace(Registry& r, Table fresh) {
  std::sort(fresh.begin(), fresh.end());
  r.replaced.push_back(r.table.load(std::memory_order_relaxed));
  r.table.store(new Table(std::move(fresh)), std::memory_order_release);
  r.changes.fetch_add(1, std::memory_order_release);
}

}  // namespace

OpenPool* pool_of(PMEMobjpool* handle) {
  OpenPool* const pool = find([&](const OpenPool& p) { return p.handle() == handle; });
  if (pool == nullptr) [[unlikely]] {
    refuse(EINVAL, "%p is no open pool", static_cast<void*>(handle));
    return nullptr;
  }
  return pool;
}

OpenPool* find_by_uuid(std::uint64_t uuid_lo) {
  return find([&](const OpenPool& p) { return p.uuid_lo == uuid_lo; });
}

OpenPool* find_by_address(const void* p) {
  return find([&](const OpenPool& pool) { return pool.file().contains(p); });
}

bool add_open_pool(std::unique_ptr<OpenPool> pool) {
  Registry& r = registry();
  const std::lock_guard lock(r.mu);
  Table fresh = *r.table.load(std::memory_order_relaxed);
  // In a child that opens the pool itself, what it inherited is no longer looked up.
  std::erase_if(fresh, [&](const OpenPool* other) {
    return other->uuid_lo == pool->uuid_lo && other->file().forked();
  });
  for (const OpenPool* other : fresh) {
    if (other->uuid_lo == pool->uuid_lo) return false;
  }
  fresh.push_back(pool.release());
  replace(r, std::move(fresh));
  return true;
}

std::unique_ptr<OpenPool> remove_open_pool(OpenPool* pool) {
  Registry& r = registry();
  const std::lock_guard lock(r.mu);
  Table fresh = *r.table.load(std::memory_order_relaxed);
  std::erase(fresh, pool);
  replace(r, std::move(fresh));
  __atomic_add_fetch(&_pobj_cache_invalidate, 1, __ATOMIC_RELEASE);
  if (_pobj_cached_pool.pop == pool->handle()) _pobj_cached_pool = {};
  return std::unique_ptr<OpenPool>(pool);
}

}  // namespace TENUTO_NS::pmemobj
