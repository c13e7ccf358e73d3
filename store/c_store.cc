// The C API's upper half: stores, collections, records, batches. Each call is the C++
// call of the same name; what may be null is the only thing looked at here.
#include <string>

#include "store/c_handles.h"

using namespace tenuto;
using c::bytes_of;
using c::give;
using c::null_handle;
using c::slice;
using c::sound;

namespace {

static_assert(static_cast<int>(KeyKind::u64) == TENUTO_KEYS_U64);
static_assert(static_cast<int>(KeyOrder::u64) == TENUTO_KEYS_U64);

template <class Stats>
void copy_tree_stats(tenuto_collection_stats& to, const Stats& from) {
  to = {.records = from.records,
        .record_bytes = from.record_bytes,
        .leaves = from.leaves,
        .inner_nodes = from.inner_nodes,
        .height = from.height,
        .index_dram_bytes = from.index_dram_bytes};
}

Status take_store_options(const tenuto_store_options& from, StoreOptions& to, Report& report) {
  tenuto_store_options o;
  tenuto_store_options_init(&o);
  if (!c::take_options(o, &from)) {
    return fail(Status::invalid_argument, &report,
                "the options were not initialised; call tenuto_store_options_init first");
  }
  to.create_if_missing = o.create_if_missing != 0;
  to.error_if_exists = o.error_if_exists != 0;
  to.key_kind = static_cast<KeyKind>(o.key_kind);
  to.check_key_kind = o.check_key_kind != 0;
  to.verify_reads = o.verify_reads != 0;
  return c::take_pool_options(o.pool, to.pool, report);
}

}  // namespace

extern "C" {

void tenuto_u64_key(uint64_t number, unsigned char key[8]) {
  const U64Key k = u64_key(number);
  std::memcpy(key, k.bytes, sizeof k.bytes);
}

// --- the store ----------------------------------------------------------------------------------

void tenuto_store_options_init(tenuto_store_options* options) {
  if (options == nullptr) return;
  const StoreOptions o;
  *options = {};
  options->struct_bytes = sizeof *options;
  tenuto_pool_options_init(&options->pool);
  options->create_if_missing = o.create_if_missing;
  options->error_if_exists = o.error_if_exists;
  options->key_kind = static_cast<tenuto_key_kind>(o.key_kind);
  options->check_key_kind = o.check_key_kind;
  options->verify_reads = o.verify_reads;
}

tenuto_status tenuto_store_open(const char* path, const tenuto_store_options* options,
                                tenuto_store** store, char** message) {
  if (path == nullptr || store == nullptr) return null_handle(message);
  *store = nullptr;
  Report report;
  StoreOptions o;
  if (options != nullptr) {
    const Status s = take_store_options(*options, o, report);
    if (s != Status::ok) return give(s, report, message);
  }
  Result<Store> opened = Store::open(path, o, &report);
  if (opened) *store = new tenuto_store(std::move(*opened));
  return give(opened.error(), report, message);
}

tenuto_status tenuto_store_close(tenuto_store* store) {
  if (store == nullptr) return TENUTO_INVALID_ARGUMENT;
  const Status s = store->store.close();
  if (s != Status::busy) delete store;
  return give(s);
}

tenuto_status tenuto_store_sync(tenuto_store* store) {
  return store == nullptr ? TENUTO_INVALID_ARGUMENT : give(store->store.sync());
}

tenuto_status tenuto_store_validate(const tenuto_store* store, char** message) {
  if (store == nullptr) return null_handle(message);
  Report report;
  const Status s = store->store.validate(&report);
  return give(s, report, message);
}

tenuto_status tenuto_store_get_stats(const tenuto_store* store, tenuto_store_stats* stats) {
  if (store == nullptr || stats == nullptr) return TENUTO_INVALID_ARGUMENT;
  const StoreStats s = store->store.stats();
  tenuto_collection_stats tree;
  copy_tree_stats(tree, s);
  *stats = {.records = tree.records,
            .record_bytes = tree.record_bytes,
            .leaves = tree.leaves,
            .inner_nodes = tree.inner_nodes,
            .height = tree.height,
            .index_dram_bytes = tree.index_dram_bytes,
            .rebuild_ms = s.rebuild_ms,
            .pool = {}};
  return tenuto_pool_get_stats(&store->pool, &stats->pool);
}

tenuto_key_kind tenuto_store_key_kind(const tenuto_store* store) {
  return store == nullptr ? TENUTO_KEYS_BYTES
                          : static_cast<tenuto_key_kind>(store->store.key_kind());
}

tenuto_pool* tenuto_store_pool(tenuto_store* store) {
  return store == nullptr ? nullptr : &store->pool;
}

// --- collections --------------------------------------------------------------------------------

void tenuto_collection_options_init(tenuto_collection_options* options) {
  if (options == nullptr) return;
  const CollectionOptions o;
  *options = {.struct_bytes = sizeof *options,
              .create_if_missing = o.create_if_missing,
              .error_if_exists = o.error_if_exists,
              .order = static_cast<tenuto_key_kind>(o.order),
              .check_order = o.check_order};
}

tenuto_collection* tenuto_default_collection(tenuto_store* store) {
  return store == nullptr ? nullptr : &store->all;
}

tenuto_status tenuto_collection_open(tenuto_store* store, const char* name,
                                     const tenuto_collection_options* options,
                                     tenuto_collection** collection, char** message) {
  if (store == nullptr || name == nullptr || collection == nullptr) return null_handle(message);
  *collection = nullptr;
  Report report;
  tenuto_collection_options o;
  tenuto_collection_options_init(&o);
  if (!c::take_options(o, options)) {
    return give(fail(Status::invalid_argument, &report,
                     "the options were not initialised; call tenuto_collection_options_init first"),
                report, message);
  }
  const CollectionOptions wanted = {.create_if_missing = o.create_if_missing != 0,
                                    .error_if_exists = o.error_if_exists != 0,
                                    .order = static_cast<KeyOrder>(o.order),
                                    .check_order = o.check_order != 0};
  Result<Collection> opened = store->store.collection(name, wanted, &report);
  if (opened) *collection = new tenuto_collection{std::move(*opened)};
  return give(opened.error(), report, message);
}

void tenuto_collection_release(tenuto_collection* collection) { delete collection; }

tenuto_status tenuto_collection_drop(tenuto_store* store, const char* name, char** message) {
  if (store == nullptr || name == nullptr) return null_handle(message);
  Report report;
  const Status s = store->store.drop(name, &report);
  return give(s, report, message);
}

tenuto_status tenuto_collection_rename(tenuto_store* store, const char* from, const char* to,
                                       int replace, char** message) {
  if (store == nullptr || from == nullptr || to == nullptr) return null_handle(message);
  Report report;
  const Status s = store->store.rename(from, to, RenameOptions{.replace = replace != 0}, &report);
  return give(s, report, message);
}

tenuto_status tenuto_collections(const tenuto_store* store, tenuto_collection_fn each,
                                 void* context, char** message) {
  if (store == nullptr || each == nullptr) return null_handle(message);
  Report report;
  const Result<std::vector<CollectionInfo>> all = store->store.collections(&report);
  if (!all) return give(all.error(), report, message);
  for (const CollectionInfo& info : *all) {
    if (each(context, info.name.c_str(), info.id) != 0) break;
  }
  return give(Status::ok, report, message);
}

tenuto_status tenuto_collection_name(const tenuto_collection* collection, char** name) {
  if (collection == nullptr || name == nullptr) return TENUTO_INVALID_ARGUMENT;
  *name = static_cast<char*>(c::give_bytes(collection->collection.name()));
  return TENUTO_OK;
}

uint64_t tenuto_collection_id(const tenuto_collection* collection) {
  return collection == nullptr ? 0 : collection->collection.id();
}

tenuto_key_kind tenuto_collection_order(const tenuto_collection* collection) {
  return collection == nullptr ? TENUTO_KEYS_BYTES
                               : static_cast<tenuto_key_kind>(collection->collection.order());
}

tenuto_status tenuto_collection_get_stats(const tenuto_collection* collection,
                                          tenuto_collection_stats* stats) {
  if (collection == nullptr || stats == nullptr) return TENUTO_INVALID_ARGUMENT;
  copy_tree_stats(*stats, collection->collection.stats());
  return give(collection->collection.status());
}

// --- records ------------------------------------------------------------------------------------

tenuto_status tenuto_get(const tenuto_collection* in, const void* key, size_t key_bytes,
                         void** value, size_t* value_bytes) {
  if (!sound(in, key, key_bytes) || value == nullptr || value_bytes == nullptr) {
    return TENUTO_INVALID_ARGUMENT;
  }
  *value = nullptr;
  *value_bytes = 0;
  const Result<View> found = in->collection.view(bytes_of(key, key_bytes));
  if (!found) return give(found.error());
  *value = c::give_bytes(found->value());
  *value_bytes = found->value().size();
  return TENUTO_OK;
}

tenuto_status tenuto_contains(const tenuto_collection* in, const void* key, size_t key_bytes) {
  if (!sound(in, key, key_bytes)) return TENUTO_INVALID_ARGUMENT;
  return give(in->collection.contains(bytes_of(key, key_bytes)));
}

tenuto_status tenuto_put(tenuto_collection* in, const void* key, size_t key_bytes,
                         const void* value, size_t value_bytes, tenuto_durability durability) {
  if (!sound(in, key, key_bytes) || !sound(value, value_bytes) || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give(in->collection.put(bytes_of(key, key_bytes), bytes_of(value, value_bytes),
                                 {static_cast<Durability>(durability)}));
}

tenuto_status tenuto_erase(tenuto_collection* in, const void* key, size_t key_bytes,
                           tenuto_durability durability) {
  if (!sound(in, key, key_bytes) || !c::is_durability(durability)) return TENUTO_INVALID_ARGUMENT;
  return give(
      in->collection.erase(bytes_of(key, key_bytes), {static_cast<Durability>(durability)}));
}

tenuto_status tenuto_view_open(const tenuto_collection* in, const void* key, size_t key_bytes,
                               tenuto_view** view, tenuto_slice* value) {
  if (!sound(in, key, key_bytes) || view == nullptr || value == nullptr) {
    return TENUTO_INVALID_ARGUMENT;
  }
  *view = nullptr;
  *value = {};
  Result<View> found = in->collection.view(bytes_of(key, key_bytes));
  if (!found) return give(found.error());
  *view = new tenuto_view{std::move(*found)};
  *value = slice((*view)->view.value());
  return TENUTO_OK;
}

void tenuto_view_release(tenuto_view* view) { delete view; }

// --- batches ------------------------------------------------------------------------------------

tenuto_batch* tenuto_batch_new(void) { return new tenuto_batch; }
void tenuto_batch_release(tenuto_batch* batch) { delete batch; }

tenuto_status tenuto_batch_put(tenuto_batch* batch, const tenuto_collection* in, const void* key,
                               size_t key_bytes, const void* value, size_t value_bytes) {
  if (batch == nullptr || !sound(in, key, key_bytes) || !sound(value, value_bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  batch->batch.put(in->collection, bytes_of(key, key_bytes), bytes_of(value, value_bytes));
  return TENUTO_OK;
}

tenuto_status tenuto_batch_erase(tenuto_batch* batch, const tenuto_collection* in, const void* key,
                                 size_t key_bytes) {
  if (batch == nullptr || !sound(in, key, key_bytes)) return TENUTO_INVALID_ARGUMENT;
  batch->batch.erase(in->collection, bytes_of(key, key_bytes));
  return TENUTO_OK;
}

void tenuto_batch_clear(tenuto_batch* batch) {
  if (batch != nullptr) batch->batch.clear();
}

size_t tenuto_batch_count(const tenuto_batch* batch) {
  return batch == nullptr ? 0 : batch->batch.count();
}

tenuto_status tenuto_write(tenuto_store* store, const tenuto_batch* batch,
                           tenuto_durability durability) {
  if (store == nullptr || batch == nullptr || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give(store->store.write(batch->batch, {static_cast<Durability>(durability)}));
}

}  // extern "C"
