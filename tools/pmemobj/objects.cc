// What is known about objects, the walk through all of them, and the root object.
#include <cerrno>
#include <cstring>

#include "pm/plant.h"
#include "tenuto/persist.h"
#include "tools/pmemobj/blocks.h"
#include "tools/pmemobj/error.h"
#include "tools/pmemobj/step.h"

namespace TENUTO_NS::pmemobj {

namespace {

// Null, with errno and a message: the OID is of no open pool.
OpenPool* pool_of_object(PMEMoid oid, const char* call) {
  OpenPool* const pool = find_by_uuid(oid.pool_uuid_lo);
  if (pool != nullptr && pool->address(oid) != nullptr) return pool;
  refuse(EINVAL, "%s: the OID is of no open pool", call);
  return nullptr;
}

// The first object that starts at or behind `from`. The root object has a type, so that it is no
// garbage (tenuto/garbage.h), but a walk does not show it.
PMEMoid object_from(OpenPool& pool, std::uint64_t from) {
  if (pool.impl->usable() != Status::ok) return OID_NULL;
  for (;;) {
    const std::uint64_t leaving = pool.leaving_root.load(std::memory_order_acquire);
    const PoolOffset found = pool.heap().find_typed({from}, heap::kAnyType);
    if (!found) return OID_NULL;
    const std::uint64_t root = __atomic_load_n(&pool.directory->root, __ATOMIC_ACQUIRE);
    if (found.value != root && found.value != leaving) return {pool.uuid_lo, found.value};
    from = found.value + 1;
  }
}

int make_root(OpenPool& pool, std::size_t bytes, pmemobj_constr constructor, void* arg) {
  Directory& d = *pool.directory;
  const AllocOptions options{.type = block_type(POBJ_ROOT_TYPE_NUM)};
  const Result<heap::Block> block = reserve_block(pool, bytes, options);
  if (!block) return refuse(block.error(), "cannot make the root object");
  ReservedBlock reserved(pool, block->offset);
  auto* const object = static_cast<std::byte*>(pool.at(block->offset.value));
  if (d.root != 0) std::memcpy(object, pool.at(d.root), d.root_bytes);
  std::memset(object + d.root_bytes, 0, pool.heap().usable(*block) - d.root_bytes);
  if (!TENUTO_PLANT("pmemobj_root_not_flushed")) flush_bytes(object, pool.heap().usable(*block));
  if (constructor != nullptr && constructor(pool.handle(), object, arg) != 0) {
    return refuse(ECANCELED, "the constructor refused the root object");
  }
  struct Leaving {
    explicit Leaving(OpenPool& p) : pool(p) {
      pool.leaving_root.store(pool.directory->root, std::memory_order_release);
    }
    ~Leaving() { pool.leaving_root.store(0, std::memory_order_release); }
    OpenPool& pool;
  } const leaving(pool);
  const Status s = one_step(pool, [&](tx::Txn& txn) {
    TENUTO_TRY(txn.adopt(block->offset, 0));
    reserved.done();  // from here on the step gives it back
    if (!TENUTO_PLANT("pmemobj_root_word_not_logged"))
      TENUTO_TRY(txn.add_later(&d.root, sizeof d.root + sizeof d.root_bytes));
    TENUTO_TRY(txn.ready());
    if (d.root != 0) TENUTO_TRY(txn.free(pool.at(d.root)));
    store_ordered(d.root, block->offset.value);
    store_ordered(d.root_bytes, std::uint64_t{bytes});
    return Status::ok;
  });
  return s == Status::ok ? 0 : refuse(s, "cannot make the root object");
}

PMEMoid root_of(PMEMobjpool* pop, std::size_t bytes, pmemobj_constr constructor, void* arg) {
  OpenPool* const pool = pool_of(pop);
  if (pool == nullptr) return OID_NULL;
  if (bytes > PMEMOBJ_MAX_ALLOC_SIZE) {
    refuse(ENOMEM, "requested size too large");
    return OID_NULL;
  }
  const Directory& d = *pool->directory;
  if (bytes == 0 && d.root == 0) {
    refuse(EINVAL, "requested size of the root object is 0");
    return OID_NULL;
  }
  const std::lock_guard lock(pool->root_mu);
  if (bytes > d.root_bytes && make_root(*pool, bytes, constructor, arg) != 0) return OID_NULL;
  return {pool->uuid_lo, d.root};
}

}  // namespace
}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;

PMEMobjpool* pmemobj_pool_by_oid(PMEMoid oid) {
  const OpenPool* const pool = find_by_uuid(oid.pool_uuid_lo);
  return pool == nullptr ? nullptr : pool->handle();
}

PMEMobjpool* pmemobj_pool_by_ptr(const void* addr) {
  const OpenPool* const pool = find_by_address(addr);
  return pool == nullptr ? nullptr : pool->handle();
}

void* pmemobj_direct(PMEMoid oid) { return pmemobj_direct_inline(oid); }

PMEMoid pmemobj_oid(const void* addr) {
  const OpenPool* const pool = find_by_address(addr);
  return pool == nullptr ? OID_NULL : pool->oid_of(addr);
}

size_t pmemobj_alloc_usable_size(PMEMoid oid) {
  if (oid.off == 0) return 0;
  OpenPool* const pool = pool_of_object(oid, "pmemobj_alloc_usable_size");
  if (pool == nullptr) return 0;
  if (const std::uint64_t bytes = usable_bytes(*pool, oid); bytes != 0) return bytes;
  const auto taken = pool->heap().find_taken({oid.off}, tenuto::heap::Kind::logged);
  return taken ? pool->heap().usable(*taken) : 0;  // reserved, or of a transaction
}

uint64_t pmemobj_type_num(PMEMoid oid) {
  if (oid.off == 0) return 0;
  OpenPool* const pool = pool_of_object(oid, "pmemobj_type_num");
  if (pool == nullptr || oid.off == pool->directory->root) return POBJ_ROOT_TYPE_NUM;
  const std::uint64_t type = pool->heap().type_of_taken({oid.off});
  return type == 0 ? 0 : type_num_of(type);
}

PMEMoid pmemobj_first(PMEMobjpool* pop) {
  OpenPool* const pool = pool_of(pop);
  return pool == nullptr ? OID_NULL : object_from(*pool, 0);
}

PMEMoid pmemobj_next(PMEMoid oid) {
  if (oid.off == 0) return OID_NULL;
  OpenPool* const pool = pool_of_object(oid, "pmemobj_next");
  return pool == nullptr ? OID_NULL : object_from(*pool, oid.off + 1);
}

PMEMoid pmemobj_root(PMEMobjpool* pop, size_t size) {
  return without_throwing(OID_NULL, [&] { return root_of(pop, size, nullptr, nullptr); });
}

PMEMoid pmemobj_root_construct(PMEMobjpool* pop, size_t size, pmemobj_constr constructor,
                               void* arg) {
  return without_throwing(OID_NULL, [&] { return root_of(pop, size, constructor, arg); });
}

size_t pmemobj_root_size(PMEMobjpool* pop) {
  const OpenPool* const pool = pool_of(pop);
  return pool == nullptr ? 0 : pool->directory->root_bytes;
}

void pmemobj_set_user_data(PMEMobjpool* pop, void* data) {
  if (OpenPool* const pool = pool_of(pop)) pool->user_data.store(data);
}

void* pmemobj_get_user_data(PMEMobjpool* pop) {
  const OpenPool* const pool = pool_of(pop);
  return pool == nullptr ? nullptr : pool->user_data.load();
}
