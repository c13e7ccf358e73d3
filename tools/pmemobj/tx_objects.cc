// What transactions snapshot, allocate, free and log.
//
// Each call has an inner function that returns errno and destroys what it used; only then the
// exported one aborts, which may jump (tx_state.h).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <cwchar>

#include "tools/pmemobj/blocks.h"
#include "tools/pmemobj/error.h"
#include "tools/pmemobj/step.h"
#include "tools/pmemobj/tx_state.h"

namespace TENUTO_NS::pmemobj {

namespace {

// --- snapshots -----------------------------------------------------------------------------------

int add(TxState& state, const void* p, std::size_t bytes, std::uint64_t flags) {
  if ((flags & ~POBJ_XADD_VALID_FLAGS) != 0) return refuse(EINVAL, "unknown flags");
  if (bytes > PMEMOBJ_MAX_ALLOC_SIZE) return refuse(EINVAL, "snapshot size too large");
  if (bytes == 0) return 0;
  const auto* const begin = static_cast<const std::byte*>(p);
  const auto offset = static_cast<std::uint64_t>(begin - state.pool->base);
  const bool inside =
      begin >= state.pool->base + pm::kHeadBytes && offset + bytes <= state.pool->file().bytes();
  if (!inside) return refuse(EINVAL, "the range is outside of the pool's objects");
  return without_throwing(ENOMEM, [&] {
    const bool saved = (flags & POBJ_XADD_NO_SNAPSHOT) == 0;
    const Status s = saved ? state.txn->add(p, bytes) : state.txn->overwrite(p, bytes);
    return s == Status::ok ? 0 : refuse(s, "cannot add the range to the transaction");
  });
}

int add_of_object(TxState& state, PMEMoid oid, std::uint64_t offset, std::size_t bytes,
                  std::uint64_t flags) {
  if (state.pool->address(oid) == nullptr) return refuse(EINVAL, "invalid pool uuid or offset");
  return add(state, state.pool->base + oid.off + offset, bytes, flags);
}

// --- objects -------------------------------------------------------------------------------------

int alloc(TxState& state, Wanted wanted, PMEMoid& made) {
  AllocOptions options;
  const int error = options_for(*state.pool, wanted, POBJ_TX_XALLOC_VALID_FLAGS, options);
  if (error != 0) return error;
  return without_throwing(ENOMEM, [&] {
    const Result<void*> object = state.txn->alloc(wanted.bytes, options);
    if (!object) return refuse(object.error(), "cannot allocate");
    made = state.pool->oid_of(*object);
    return 0;
  });
}

int free_object(TxState& state, PMEMoid oid) {
  if (oid.off == 0) return 0;
  const void* const object = state.pool->address(oid);
  if (object == nullptr) return refuse(EINVAL, "invalid pool uuid or offset");
  return without_throwing(ENOMEM, [&] {
    const Status s = state.txn->free(object);
    if (s == Status::ok) return 0;
    return refuse(s, "cannot free",
                  {"there is no object", state.pool->impl->describe(object), {}, {}});
  });
}

int duplicate(TxState& state, const void* text, std::size_t bytes, std::uint64_t type_num,
              std::uint64_t flags, PMEMoid& made) {
  if (text == nullptr) return refuse(EINVAL, "cannot duplicate NULL string");
  const int error = alloc(state, {bytes, type_num, flags}, made);
  if (error == 0) std::memcpy(state.pool->at(made.off), text, bytes);
  return error;
}

int resize(TxState& state, PMEMoid oid, std::size_t bytes, std::uint64_t type_num,
           std::uint64_t flags, PMEMoid& made) {
  if (oid.off == 0) return alloc(state, {bytes, type_num, flags}, made);
  if (bytes == 0) return free_object(state, oid);
  if (state.pool->address(oid) == nullptr) return refuse(EINVAL, "invalid pool uuid or offset");
  const std::uint64_t had = pmemobj_alloc_usable_size(oid);
  if (had == 0) return refuse(EINVAL, "there is no object");
  if (const int error = alloc(state, {bytes, type_num, flags}, made); error != 0) return error;
  std::memcpy(state.pool->at(made.off), state.pool->at(oid.off), std::min(had, bytes));
  const int error = free_object(state, oid);
  if (error != 0) {
    free_object(state, made);
    made = OID_NULL;
  }
  return error;
}

// `made` of a call, or a null OID after it failed.
PMEMoid answer(TxState& state, int error, std::uint64_t flags, PMEMoid made) {
  if (error == 0) [[likely]]
    return made;
  fail_in_tx(state, error, flags);
  return OID_NULL;
}

PMEMoid resize_answer(PMEMoid oid, std::size_t bytes, std::uint64_t type_num, std::uint64_t flags,
                      const char* call) {
  TxState& state = tx_in_work(call);
  PMEMoid made = OID_NULL;
  const int error = resize(state, oid, bytes, type_num, flags, made);
  return answer(state, error, 0, made);
}

}  // namespace
}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;

int pmemobj_tx_xadd_range(PMEMoid oid, uint64_t off, size_t size, uint64_t flags) {
  TxState& state = tx_in_work("pmemobj_tx_xadd_range");
  const int error = add_of_object(state, oid, off, size, flags);
  return error == 0 ? 0 : fail_in_tx(state, error, flags);
}

int pmemobj_tx_add_range(PMEMoid oid, uint64_t off, size_t size) {
  return pmemobj_tx_xadd_range(oid, off, size, 0);
}

int pmemobj_tx_xadd_range_direct(const void* ptr, size_t size, uint64_t flags) {
  TxState& state = tx_in_work("pmemobj_tx_xadd_range_direct");
  const int error = add(state, ptr, size, flags);
  return error == 0 ? 0 : fail_in_tx(state, error, flags);
}

int pmemobj_tx_add_range_direct(const void* ptr, size_t size) {
  return pmemobj_tx_xadd_range_direct(ptr, size, 0);
}

PMEMoid pmemobj_tx_xalloc(size_t size, uint64_t type_num, uint64_t flags) {
  TxState& state = tx_in_work("pmemobj_tx_xalloc");
  PMEMoid made = OID_NULL;
  const int error = alloc(state, {size, type_num, flags}, made);
  return answer(state, error, flags, made);
}

PMEMoid pmemobj_tx_alloc(size_t size, uint64_t type_num) {
  return pmemobj_tx_xalloc(size, type_num, 0);
}

PMEMoid pmemobj_tx_zalloc(size_t size, uint64_t type_num) {
  return pmemobj_tx_xalloc(size, type_num, POBJ_FLAG_ZERO);
}

PMEMoid pmemobj_tx_realloc(PMEMoid oid, size_t size, uint64_t type_num) {
  return resize_answer(oid, size, type_num, 0, "pmemobj_tx_realloc");
}

PMEMoid pmemobj_tx_zrealloc(PMEMoid oid, size_t size, uint64_t type_num) {
  return resize_answer(oid, size, type_num, POBJ_FLAG_ZERO, "pmemobj_tx_zrealloc");
}

PMEMoid pmemobj_tx_xstrdup(const char* s, uint64_t type_num, uint64_t flags) {
  TxState& state = tx_in_work("pmemobj_tx_xstrdup");
  PMEMoid made = OID_NULL;
  const size_t bytes = s == nullptr ? 0 : std::strlen(s) + 1;
  const int error = duplicate(state, s, bytes, type_num, flags, made);
  return answer(state, error, flags, made);
}

PMEMoid pmemobj_tx_strdup(const char* s, uint64_t type_num) {
  return pmemobj_tx_xstrdup(s, type_num, 0);
}

PMEMoid pmemobj_tx_xwcsdup(const wchar_t* s, uint64_t type_num, uint64_t flags) {
  TxState& state = tx_in_work("pmemobj_tx_xwcsdup");
  PMEMoid made = OID_NULL;
  const size_t bytes = s == nullptr ? 0 : (std::wcslen(s) + 1) * sizeof *s;
  const int error = duplicate(state, s, bytes, type_num, flags, made);
  return answer(state, error, flags, made);
}

PMEMoid pmemobj_tx_wcsdup(const wchar_t* s, uint64_t type_num) {
  return pmemobj_tx_xwcsdup(s, type_num, 0);
}

int pmemobj_tx_xfree(PMEMoid oid, uint64_t flags) {
  TxState& state = tx_in_work("pmemobj_tx_xfree");
  int error = (flags & ~POBJ_XFREE_VALID_FLAGS) == 0 ? 0 : refuse(EINVAL, "unknown flags");
  if (error == 0) error = free_object(state, oid);
  return error == 0 ? 0 : fail_in_tx(state, error, flags);
}

int pmemobj_tx_free(PMEMoid oid) { return pmemobj_tx_xfree(oid, 0); }

// The engine's log grows by itself, so a buffer for it is taken note of and not used.
int pmemobj_tx_xlog_append_buffer(enum pobj_log_type type, void* addr, size_t size,
                                  uint64_t flags) {
  TxState& state = tx_in_work("pmemobj_tx_xlog_append_buffer");
  const bool known = type == TX_LOG_TYPE_SNAPSHOT || type == TX_LOG_TYPE_INTENT;
  int error = 0;
  if ((flags & ~POBJ_XLOG_APPEND_BUFFER_VALID_FLAGS) != 0) {
    error = refuse(EINVAL, "unknown flags");
  } else if (!known || size == 0 || !state.pool->file().contains(addr)) {
    error = refuse(EINVAL, "the buffer is outside of the pool, or its type is unknown");
  }
  return error == 0 ? 0 : fail_in_tx(state, error, flags);
}

int pmemobj_tx_log_append_buffer(enum pobj_log_type type, void* addr, size_t size) {
  return pmemobj_tx_xlog_append_buffer(type, addr, size, 0);
}

int pmemobj_tx_log_auto_alloc(enum pobj_log_type type, int) {
  TxState& state = tx_in_work("pmemobj_tx_log_auto_alloc");
  if (type == TX_LOG_TYPE_SNAPSHOT || type == TX_LOG_TYPE_INTENT) return 0;
  return fail_in_tx(state, refuse(EINVAL, "unknown log type"), 0);
}

namespace {
constexpr size_t kLine = 64;
size_t lines(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }
}  // namespace

// At least as large as libpmemobj's: each snapshot has a head, and the buffer another one.
size_t pmemobj_tx_log_snapshots_max_size(size_t* sizes, size_t nsizes) {
  size_t sum = kLine;
  for (size_t i = 0; i < nsizes; ++i) {
    if (sizes[i] > PMEMOBJ_MAX_ALLOC_SIZE || sum > SIZE_MAX / 2) {
      refuse(EINVAL, "the size is too large");
      return SIZE_MAX;
    }
    sum += lines(sizes[i] + 32);
  }
  return sum <= PMEMOBJ_MAX_ALLOC_SIZE ? sum : (refuse(EINVAL, "the size is too large"), SIZE_MAX);
}

size_t pmemobj_tx_log_intents_max_size(size_t nintents) {
  constexpr size_t kIntent = 16;
  const bool fits = nintents < PMEMOBJ_MAX_ALLOC_SIZE / kIntent - kLine;
  if (fits) return lines(nintents * kIntent) + kLine;
  refuse(ERANGE, "the number of intents is too large");
  return SIZE_MAX;
}
