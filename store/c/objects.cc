// The C API: allocation to a pointer in the pool, and transactions over objects. Each call is the
// C++ call of the same name. Only arguments that may be NULL, and options, are checked here.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/c/handles_tx.h"
#include "store/c/parts.h"
#include "tenuto/actions.h"
#include "tenuto/persist.h"
#include "tenuto/tx.h"

namespace TENUTO_NS::c {

static_assert(sizeof(tenuto_ptr) == sizeof(PtrWord) && sizeof(tenuto_vptr) == sizeof(VPtrWord));
static_assert(alignof(tenuto_ptr) == alignof(PtrWord) && alignof(tenuto_vptr) == alignof(VPtrWord));

namespace {

// The C struct and the C++ one are the same bytes (asserted above).
PtrWord& word(tenuto_ptr* p) { return *reinterpret_cast<PtrWord*>(p); }
VPtrWord& word(tenuto_vptr* p) { return *reinterpret_cast<VPtrWord*>(p); }

bool take(const tenuto_alloc_options* from, AllocOptions& to) {
  tenuto_alloc_options o;
  tenuto_alloc_options_init(&o);
  if (take_options(o, from, "tenuto_alloc_options") != Status::ok) return false;
  to = {.align = o.align, .zero = o.zero != 0, .type = o.type};
  return true;
}

template <class Word>
tenuto_status malloc_one(tenuto_pool* pool, std::uint64_t bytes, Word* dest,
                         const tenuto_alloc_options* options) {
  AllocOptions o;
  if (pool == nullptr || dest == nullptr || !take(options, o)) return TENUTO_INVALID_ARGUMENT;
  return give(pool->pool->malloc_to(bytes, word(dest), o));
}

template <class Word>
tenuto_status free_one(tenuto_pool* pool, Word* dest) {
  if (pool == nullptr || dest == nullptr) return TENUTO_INVALID_ARGUMENT;
  return give(pool->pool->free_from(word(dest)));
}

// The destinations of a batch. Empty: one of them is NULL.
template <class CppWord, class Word>
std::vector<CppWord*> words_of(Word* const* dests, std::size_t count) {
  std::vector<CppWord*> words(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (dests[i] == nullptr) return {};
    words[i] = &word(dests[i]);
  }
  return words;
}

template <class CppWord, class Word>
tenuto_status malloc_many(tenuto_pool* pool, const std::uint64_t* bytes, Word* const* dests,
                          std::size_t count, const tenuto_alloc_options* options) {
  AllocOptions o;
  if (pool == nullptr || !take(options, o)) return TENUTO_INVALID_ARGUMENT;
  if (count == 0) return TENUTO_OK;
  if (!sound_array(bytes, count) || !sound_array(dests, count)) return TENUTO_INVALID_ARGUMENT;
  const std::vector<CppWord*> words = words_of<CppWord>(dests, count);
  if (words.empty()) return TENUTO_INVALID_ARGUMENT;
  return give(pool->pool->malloc_to(std::span<const std::uint64_t>(bytes, count),
                                    std::span<CppWord* const>(words), o));
}

template <class CppWord, class Word>
tenuto_status free_many(tenuto_pool* pool, Word* const* dests, std::size_t count) {
  if (pool == nullptr) return TENUTO_INVALID_ARGUMENT;
  if (count == 0) return TENUTO_OK;
  if (!sound_array(dests, count)) return TENUTO_INVALID_ARGUMENT;
  const std::vector<CppWord*> words = words_of<CppWord>(dests, count);
  if (words.empty()) return TENUTO_INVALID_ARGUMENT;
  return give(pool->pool->free_from(std::span<CppWord* const>(words)));
}

Reserved reserved(const tenuto_reserved& block) {
  return {PoolOffset{block.offset}, block.data, block.bytes};
}

template <class Word>
tenuto_status publish_to(tenuto_pool* pool, const tenuto_reserved* block, Word* dest) {
  if (pool == nullptr || block == nullptr || dest == nullptr) return TENUTO_INVALID_ARGUMENT;
  return give(pool->pool->publish(reserved(*block), word(dest)));
}

tenuto_status walked(const Result<void*>& found, void** block) {
  *block = found.value_or(nullptr);
  return give(found.error());
}

}  // namespace
}  // namespace TENUTO_NS::c

struct tenuto_actions {
  explicit tenuto_actions(tenuto::Pool& pool) : actions(pool) {}
  tenuto::Actions actions;
};

using namespace tenuto;
using c::give;

extern "C" {

void tenuto_alloc_options_init_sized(tenuto_alloc_options* options, size_t struct_bytes) {
  const AllocOptions o;
  const tenuto_alloc_options all = {struct_bytes, o.align, o.zero, o.type};
  c::init_struct(options, struct_bytes, &all, sizeof all);
}

void* tenuto_ptr_get(const tenuto_ptr* at) {
  return PtrWord::decode(at, __atomic_load_n(&at->raw, __ATOMIC_ACQUIRE));
}
void tenuto_ptr_set(tenuto_ptr* at, const void* target) {
  __atomic_store_n(&at->raw, PtrWord::encode(at, target), __ATOMIC_RELEASE);
}
void* tenuto_vptr_get(const tenuto_vptr* at) {
  return VPtrWord::decode(at, __atomic_load_n(&at->raw, __ATOMIC_ACQUIRE));
}

tenuto_status tenuto_malloc_to(tenuto_pool* pool, uint64_t bytes, tenuto_ptr* dest,
                               const tenuto_alloc_options* options) {
  return c::malloc_one(pool, bytes, dest, options);
}
tenuto_status tenuto_free_from(tenuto_pool* pool, tenuto_ptr* dest) {
  return c::free_one(pool, dest);
}
tenuto_status tenuto_realloc_to(tenuto_pool* pool, uint64_t bytes, tenuto_ptr* dest,
                                const tenuto_alloc_options* options) {
  AllocOptions o;
  if (pool == nullptr || dest == nullptr || !c::take(options, o)) return TENUTO_INVALID_ARGUMENT;
  return give(pool->pool->realloc_to(bytes, c::word(dest), o));
}
tenuto_status tenuto_vmalloc_to(tenuto_pool* pool, uint64_t bytes, tenuto_vptr* dest,
                                const tenuto_alloc_options* options) {
  return c::malloc_one(pool, bytes, dest, options);
}
tenuto_status tenuto_vfree_from(tenuto_pool* pool, tenuto_vptr* dest) {
  return c::free_one(pool, dest);
}
tenuto_status tenuto_vswap(tenuto_pool* pool, tenuto_vptr* a, tenuto_vptr* b) {
  if (pool == nullptr || a == nullptr || b == nullptr) return TENUTO_INVALID_ARGUMENT;
  return give(pool->pool->swap(c::word(a), c::word(b)));
}

tenuto_status tenuto_malloc_to_many(tenuto_pool* pool, const uint64_t* bytes,
                                    tenuto_ptr* const* dests, size_t count,
                                    const tenuto_alloc_options* options) {
  return c::malloc_many<PtrWord>(pool, bytes, dests, count, options);
}
tenuto_status tenuto_free_from_many(tenuto_pool* pool, tenuto_ptr* const* dests, size_t count) {
  return c::free_many<PtrWord>(pool, dests, count);
}
tenuto_status tenuto_vmalloc_to_many(tenuto_pool* pool, const uint64_t* bytes,
                                     tenuto_vptr* const* dests, size_t count,
                                     const tenuto_alloc_options* options) {
  return c::malloc_many<VPtrWord>(pool, bytes, dests, count, options);
}
tenuto_status tenuto_vfree_from_many(tenuto_pool* pool, tenuto_vptr* const* dests, size_t count) {
  return c::free_many<VPtrWord>(pool, dests, count);
}

tenuto_status tenuto_reserve(tenuto_pool* pool, uint64_t bytes, const tenuto_alloc_options* options,
                             tenuto_reserved* block) {
  AllocOptions o;
  if (pool == nullptr || block == nullptr || !c::take(options, o)) return TENUTO_INVALID_ARGUMENT;
  *block = {};
  const Result<Reserved> made = pool->pool->reserve(bytes, o);
  if (made) *block = {made->offset.value, made->data, made->bytes};
  return give(made.error());
}
tenuto_status tenuto_publish(tenuto_pool* pool, const tenuto_reserved* block, tenuto_ptr* dest) {
  return c::publish_to(pool, block, dest);
}
tenuto_status tenuto_vpublish(tenuto_pool* pool, const tenuto_reserved* block, tenuto_vptr* dest) {
  return c::publish_to(pool, block, dest);
}
tenuto_status tenuto_cancel(tenuto_pool* pool, const tenuto_reserved* block) {
  if (pool == nullptr || block == nullptr) return TENUTO_INVALID_ARGUMENT;
  return give(pool->pool->cancel(c::reserved(*block)));
}

char* tenuto_describe(const tenuto_pool* pool, const void* p) {
  if (tenuto_pool_contains(pool, p) == 0) return nullptr;
  const std::string words = pool->pool->describe(p);
  return words.empty() ? nullptr : ::strdup(words.c_str());
}
uint64_t tenuto_usable_size(const tenuto_pool* pool, const void* block) {
  return pool == nullptr ? 0 : pool->pool->usable_size(block);
}
uint64_t tenuto_type_of(const tenuto_pool* pool, const void* block) {
  return pool == nullptr ? 0 : pool->pool->type_of(block);
}
tenuto_status tenuto_first(const tenuto_pool* pool, uint64_t type, void** block) {
  if (pool == nullptr || block == nullptr) return TENUTO_INVALID_ARGUMENT;
  return c::walked(pool->pool->first(type), block);
}
tenuto_status tenuto_next(const tenuto_pool* pool, const void* behind, uint64_t type,
                          void** block) {
  if (pool == nullptr || block == nullptr) return TENUTO_INVALID_ARGUMENT;
  return c::walked(pool->pool->next(behind, type), block);
}

void tenuto_flush(const void* p, size_t bytes) { flush_bytes(p, bytes); }
void tenuto_fence(const char* first, const char* then) { fence(first, then); }

static tenuto_status give_begun(std::unique_ptr<tenuto_tx> begun, tenuto_tx** tx) {
  const Status s = begun->tx.status();
  if (s == Status::ok) *tx = begun.release();
  return give(s);
}
tenuto_status tenuto_tx_begin(tenuto_pool* pool, tenuto_tx** tx) {
  if (pool == nullptr || tx == nullptr) return TENUTO_INVALID_ARGUMENT;
  *tx = nullptr;
  return give_begun(std::make_unique<tenuto_tx>(*pool->pool), tx);
}
tenuto_status tenuto_tx_begin_with(tenuto_pool* pool, tenuto_tx* first, tenuto_tx** tx) {
  if (pool == nullptr || first == nullptr || tx == nullptr) return TENUTO_INVALID_ARGUMENT;
  *tx = nullptr;
  return give_begun(std::make_unique<tenuto_tx>(*pool->pool, *first), tx);
}
tenuto_status tenuto_tx_add(tenuto_tx* tx, const void* p, size_t bytes) {
  return tx == nullptr ? TENUTO_INVALID_ARGUMENT : give(tx->tx.add(p, bytes));
}
tenuto_status tenuto_tx_add_later(tenuto_tx* tx, const void* p, size_t bytes) {
  return tx == nullptr ? TENUTO_INVALID_ARGUMENT : give(tx->tx.add_later(p, bytes));
}
tenuto_status tenuto_tx_ready(tenuto_tx* tx) {
  return tx == nullptr ? TENUTO_INVALID_ARGUMENT : give(tx->tx.ready());
}
tenuto_status tenuto_tx_overwrite(tenuto_tx* tx, const void* p, size_t bytes) {
  return tx == nullptr ? TENUTO_INVALID_ARGUMENT : give(tx->tx.overwrite(p, bytes));
}
tenuto_status tenuto_tx_set(tenuto_tx* tx, void* at, const void* value, size_t bytes) {
  if (tx == nullptr || !c::sound(value, bytes)) return TENUTO_INVALID_ARGUMENT;
  return give(tx->tx.set(at, value, bytes));
}
tenuto_status tenuto_tx_get(const tenuto_tx* tx, const void* at, void* value, size_t bytes) {
  if (tx == nullptr || !c::sound(at, bytes) || !c::sound(value, bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  tx->tx.get(at, value, bytes);
  return TENUTO_OK;
}
tenuto_status tenuto_tx_alloc(tenuto_tx* tx, uint64_t bytes, const tenuto_alloc_options* options,
                              void** block) {
  AllocOptions o;
  if (tx == nullptr || block == nullptr || !c::take(options, o)) return TENUTO_INVALID_ARGUMENT;
  return c::walked(tx->tx.alloc(bytes, o), block);
}
tenuto_status tenuto_tx_free(tenuto_tx* tx, const void* block) {
  return tx == nullptr ? TENUTO_INVALID_ARGUMENT : give(tx->tx.free(block));
}
tenuto_status tenuto_tx_lock(tenuto_tx* tx, pthread_mutex_t* mutex) {
  if (tx == nullptr || mutex == nullptr) return TENUTO_INVALID_ARGUMENT;
  return give(tx->tx.lock(*mutex));
}
tenuto_status tenuto_tx_on_commit(tenuto_tx* tx, tenuto_tx_fn fn, void* context) {
  if (tx == nullptr || fn == nullptr) return TENUTO_INVALID_ARGUMENT;
  return give(tx->tx.on_commit([fn, context] { fn(context); }));
}
tenuto_status tenuto_tx_on_abort(tenuto_tx* tx, tenuto_tx_fn fn, void* context) {
  if (tx == nullptr || fn == nullptr) return TENUTO_INVALID_ARGUMENT;
  return give(tx->tx.on_abort([fn, context] { fn(context); }));
}
tenuto_status tenuto_tx_on_end(tenuto_tx* tx, tenuto_tx_end_fn fn, void* context) {
  if (tx == nullptr || fn == nullptr) return TENUTO_INVALID_ARGUMENT;
  return give(tx->tx.on_end([fn, context](bool committed) { fn(context, committed); }));
}
tenuto_status tenuto_tx_savepoint(tenuto_tx* tx, uint64_t* point) {
  if (tx == nullptr || point == nullptr) return TENUTO_INVALID_ARGUMENT;
  const Result<Transaction::Savepoint> made = tx->tx.savepoint();
  *point = made ? made->number : 0;
  return give(made.error());
}
tenuto_status tenuto_tx_rollback_to(tenuto_tx* tx, uint64_t point) {
  return tx == nullptr ? TENUTO_INVALID_ARGUMENT : give(tx->tx.rollback_to({point}));
}
tenuto_status tenuto_tx_commit(tenuto_tx* tx, tenuto_durability durability) {
  if (tx == nullptr || !c::is_durability(durability)) return TENUTO_INVALID_ARGUMENT;
  const Status s = tx->tx.commit(static_cast<Durability>(durability));
  delete tx;
  return give(s);
}
void tenuto_tx_abort(tenuto_tx* tx) {
  if (tx == nullptr) return;
  tx->tx.abort();
  delete tx;
}
tenuto_status tenuto_run(tenuto_pool* pool, tenuto_tx_body body, void* context) {
  if (pool == nullptr || body == nullptr) return TENUTO_INVALID_ARGUMENT;
  tenuto_tx own(*pool->pool);
  const Status s = own.tx.status();
  if (s != Status::ok) return give(s);
  const tenuto_status done = body(&own, context);
  if (done == TENUTO_OK) return give(own.tx.commit());
  own.tx.abort();
  return done;
}

tenuto_status tenuto_grow_root(tenuto_pool* pool, const char* layout, uint64_t bytes,
                               tenuto_migrate_fn migrate, void* context, void** root,
                               char** message) {
  if (pool == nullptr || layout == nullptr || root == nullptr) return c::null_root(message);
  MigrateRoot hook;
  c::Answer answer;
  if (migrate != nullptr) {
    hook = [=, &answer](const OldRoot& old, void* fresh, Transaction&) -> Status {
      tenuto_tx joined(*pool->pool);
      TENUTO_TRY(joined.tx.status());
      const std::string named(old.layout);
      const tenuto_old_root from{sizeof from, named.c_str(), old.data, old.bytes};
      TENUTO_TRY(answer.take(migrate(context, &from, fresh, &joined)));
      return joined.tx.commit();
    };
  }
  Report report;
  const Result<void*> found = pool->pool->grow_root(layout, bytes, hook, &report);
  *root = found.value_or(nullptr);
  give(found.error(), report, message);
  return answer.give_back(found.error());
}

tenuto_status tenuto_actions_new(tenuto_pool* pool, tenuto_actions** actions) {
  if (pool == nullptr || actions == nullptr) return TENUTO_INVALID_ARGUMENT;
  *actions = new tenuto_actions(*pool->pool);
  return TENUTO_OK;
}
tenuto_status tenuto_actions_reserve(tenuto_actions* actions, uint64_t bytes,
                                     const tenuto_alloc_options* options, void** block) {
  AllocOptions o;
  if (actions == nullptr || block == nullptr || !c::take(options, o)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return c::walked(actions->actions.reserve(bytes, o), block);
}
tenuto_status tenuto_actions_set(tenuto_actions* actions, void* dest, const void* value,
                                 size_t bytes) {
  if (actions == nullptr || dest == nullptr || !c::sound(value, bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  actions->actions.set_bytes(dest, value, bytes);
  return TENUTO_OK;
}
tenuto_status tenuto_actions_set_ptr(tenuto_actions* actions, tenuto_ptr* dest, void* target) {
  const PtrWord word{dest == nullptr ? 0 : PtrWord::encode(dest, target)};
  return tenuto_actions_set(actions, dest, &word, sizeof word);
}
tenuto_status tenuto_actions_free(tenuto_actions* actions, const void* block) {
  if (actions == nullptr || block == nullptr) return TENUTO_INVALID_ARGUMENT;
  actions->actions.free(block);
  return TENUTO_OK;
}
tenuto_status tenuto_actions_publish(tenuto_actions* actions) {
  return actions == nullptr ? TENUTO_INVALID_ARGUMENT : give(actions->actions.publish());
}
void tenuto_actions_delete(tenuto_actions* actions) { delete actions; }

}  // extern "C"
