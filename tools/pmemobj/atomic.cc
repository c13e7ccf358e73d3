// Objects outside of transactions: pmemobj_alloc and its family. The destination, an OID in the
// pool or in DRAM, changes together with the allocation.
//
// Cost: three fences, of which the first one also covers the object's contents; in libpmemobj it
// is four. The object's contents are flushed by its constructor, as there.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <cwchar>

#include "pm/plant.h"
#include "tenuto/persist.h"
#include "tools/pmemobj/blocks.h"
#include "tools/pmemobj/error.h"
#include "tools/pmemobj/step.h"

namespace TENUTO_NS::pmemobj {

namespace {

// Makes a place for an OID ready to be stored to, if it is in the pool.
Status add_dest(OpenPool& pool, tx::Txn& txn, PMEMoid* dest) {
  if (dest == nullptr || !pool.file().contains(dest)) return Status::ok;
  if (TENUTO_PLANT("pmemobj_dest_not_logged")) return Status::ok;
  TENUTO_TRY(txn.add_later(dest, sizeof *dest));
  return txn.ready();
}

int call_constructor(OpenPool& pool, void* object, pmemobj_constr constructor, void* arg) {
  if (constructor == nullptr || constructor(pool.handle(), object, arg) == 0) return 0;
  return refuse(ECANCELED, "the constructor refused the object");
}

// Allocates an object, fills it by fill(object) -> errno, and stores its OID. `old` is freed in
// the same step, if it is an object.
template <class Fill>
int make(OpenPool& pool, PMEMoid* dest, Wanted wanted, std::uint64_t valid_flags, PMEMoid old,
         const Fill& fill) {
  AllocOptions options;
  if (const int error = options_for(pool, wanted, valid_flags, options); error != 0) return error;
  const Result<heap::Block> block = reserve_block(pool, wanted.bytes, options);
  if (!block) return refuse(block.error(), "cannot allocate");
  ReservedBlock reserved(pool, block->offset);
  if (const int error = fill(pool.at(block->offset.value)); error != 0) return error;
  const PMEMoid oid{pool.uuid_lo, block->offset.value};
  const Status s = one_step(pool, [&](tx::Txn& txn) {
    TENUTO_TRY(txn.adopt(block->offset, 0));
    reserved.done();  // from here on the step gives it back
    TENUTO_TRY(add_dest(pool, txn, dest));
    const bool frees = old.off != 0 && !TENUTO_PLANT("pmemobj_resized_object_kept");
    if (frees) TENUTO_TRY(txn.free(pool.at(old.off)));
    if (dest != nullptr) store_oid(*dest, oid);
    return Status::ok;
  });
  return s == Status::ok ? 0 : refuse(s, "cannot allocate");
}

int alloc(PMEMobjpool* pop, PMEMoid* dest, const Wanted& wanted, std::uint64_t valid_flags,
          pmemobj_constr constructor, void* arg) {
  OpenPool* const pool = pool_of(pop);
  if (pool == nullptr) return errno;
  return make(*pool, dest, wanted, valid_flags, OID_NULL,
              [&](void* object) { return call_constructor(*pool, object, constructor, arg); });
}

int duplicate(PMEMobjpool* pop, PMEMoid* dest, const void* text, std::size_t bytes,
              std::uint64_t type_num) {
  OpenPool* const pool = pool_of(pop);
  if (pool == nullptr) return errno;
  return make(*pool, dest, {bytes, type_num, 0}, 0, OID_NULL, [&](void* object) {
    copy_flush(object, text, bytes);
    return 0;
  });
}

int free_object(PMEMoid* dest) {
  const PMEMoid oid = *dest;
  if (oid.off == 0) return 0;
  OpenPool* const pool = find_by_uuid(oid.pool_uuid_lo);
  void* const object = pool == nullptr ? nullptr : pool->address(oid);
  if (object == nullptr) return refuse(EINVAL, "the OID is of no open pool");
  const Status s = one_step(*pool, [&](tx::Txn& txn) {
    TENUTO_TRY(txn.free(object));
    TENUTO_TRY(add_dest(*pool, txn, dest));
    store_oid(*dest, OID_NULL);
    return Status::ok;
  });
  if (s == Status::ok) return 0;
  return refuse(s, "cannot free", {"there is no object", pool->impl->describe(object), {}, {}});
}

int realloc_object(PMEMobjpool* pop, PMEMoid* dest, std::size_t bytes, std::uint64_t type_num,
                   bool zero) {
  OpenPool* const pool = pool_of(pop);
  if (pool == nullptr) return errno;
  if (dest == nullptr) return refuse(EINVAL, "the OID pointer is null");
  const std::uint64_t flags = zero ? POBJ_FLAG_ZERO : 0;
  if (dest->off == 0 && bytes == 0) return 0;
  if (dest->off == 0) return alloc(pop, dest, {bytes, type_num, flags}, flags, nullptr, nullptr);
  if (bytes == 0) return free_object(dest);
  const void* const old = pool->address(*dest);
  const std::uint64_t had = old == nullptr ? 0 : usable_bytes(*pool, *dest);
  if (had == 0) return refuse(EINVAL, "the OID is of no object of this pool");
  const auto usable = pool->heap().usable_bytes(bytes, AllocOptions{}.align, true);
  const bool same_type = pool->heap().type_of({dest->off}) == block_type(type_num);
  if (usable && *usable == had && same_type) return 0;
  return make(*pool, dest, {bytes, type_num, flags}, flags, *dest, [&](void* object) {
    const std::uint64_t kept = std::min<std::uint64_t>(had, bytes);
    std::memcpy(object, old, kept);
    if (!TENUTO_PLANT("pmemobj_resized_bytes_not_flushed")) flush_bytes(object, kept);
    return 0;
  });
}

}  // namespace
}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;

// errno of the call is also told by the result, so the value of errno need not survive.
namespace {
template <class F>
int answer(F&& f) {
  return without_throwing(ENOMEM, f) == 0 ? 0 : -1;
}
}  // namespace

int pmemobj_alloc(PMEMobjpool* pop, PMEMoid* oidp, size_t size, uint64_t type_num,
                  pmemobj_constr constructor, void* arg) {
  return answer([&] { return alloc(pop, oidp, {size, type_num, 0}, 0, constructor, arg); });
}

int pmemobj_xalloc(PMEMobjpool* pop, PMEMoid* oidp, size_t size, uint64_t type_num, uint64_t flags,
                   pmemobj_constr constructor, void* arg) {
  return answer([&] {
    return alloc(pop, oidp, {size, type_num, flags}, POBJ_TX_XALLOC_VALID_FLAGS, constructor, arg);
  });
}

int pmemobj_zalloc(PMEMobjpool* pop, PMEMoid* oidp, size_t size, uint64_t type_num) {
  return answer([&] {
    return alloc(pop, oidp, {size, type_num, POBJ_FLAG_ZERO}, POBJ_TX_XALLOC_VALID_FLAGS, nullptr,
                 nullptr);
  });
}

int pmemobj_realloc(PMEMobjpool* pop, PMEMoid* oidp, size_t size, uint64_t type_num) {
  return answer([&] { return realloc_object(pop, oidp, size, type_num, false); });
}

int pmemobj_zrealloc(PMEMobjpool* pop, PMEMoid* oidp, size_t size, uint64_t type_num) {
  return answer([&] { return realloc_object(pop, oidp, size, type_num, true); });
}

int pmemobj_strdup(PMEMobjpool* pop, PMEMoid* oidp, const char* s, uint64_t type_num) {
  return answer([&] {
    if (s == nullptr) return refuse(EINVAL, "cannot duplicate a null string");
    return duplicate(pop, oidp, s, std::strlen(s) + 1, type_num);
  });
}

int pmemobj_wcsdup(PMEMobjpool* pop, PMEMoid* oidp, const wchar_t* s, uint64_t type_num) {
  return answer([&] {
    if (s == nullptr) return refuse(EINVAL, "cannot duplicate a null string");
    return duplicate(pop, oidp, s, (std::wcslen(s) + 1) * sizeof *s, type_num);
  });
}

void pmemobj_free(PMEMoid* oidp) {
  static_cast<void>(answer([&] { return free_object(oidp); }));
}
