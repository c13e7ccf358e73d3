// The C API: stores and collections. Each call is the C++ call of the same name. Only arguments
// that may be NULL, and options, are checked here.
#include <string>

#include "store/c/handles.h"

using namespace tenuto;
using c::bytes_of;
using c::give;
using c::null_handle;
using c::slice;
using c::sound;

namespace {

static_assert(static_cast<int>(KeyOrder::u64) == TENUTO_KEYS_U64);
static_assert(static_cast<int>(KeyOrder::reverse) == TENUTO_KEYS_REVERSE);
static_assert(static_cast<int>(KeyOrder::reverse_u64) == TENUTO_KEYS_REVERSE_U64);
static_assert(static_cast<int>(KeyOrder::registered) == TENUTO_KEYS_REGISTERED);

// A KeyCodec's function. Calls fn a second time when the first one needs more room.
std::function<bool(std::string_view, std::string&)> codec_function(tenuto_codec_fn fn,
                                                                   void* context) {
  if (fn == nullptr) return {};
  return [fn, context](std::string_view in, std::string& out) {
    out.resize(in.size() + 16);
    for (bool again : {true, false}) {
      tenuto_codec_out to{out.data(), out.size(), 0};
      if (fn(context, slice(in), &to) != 0 || !sound(out.data(), to.bytes)) return false;
      const bool fits = to.bytes <= out.size();
      out.resize(to.bytes);
      if (fits) return true;
      if (!again) return false;  // it has the room that it asked for, and wants more
    }
    return false;
  };
}

Status take_codecs(const tenuto_store_options& from, StoreOptions& to, Report& report) {
  for (std::size_t i = 0; i < from.codec_count; ++i) {
    const tenuto_key_codec* codec = from.codecs == nullptr ? nullptr : from.codecs + i;
    if (codec == nullptr || codec->name == nullptr) {
      return fail(Status::invalid_argument, &report, "a codec, or its name, is NULL", {}, {},
                  std::to_string(i));
    }
    to.codecs.push_back({codec->name, codec_function(codec->encode, codec->context),
                         codec_function(codec->decode, codec->context)});
  }
  return Status::ok;
}

template <class Stats>
void copy_tree_stats(tenuto_collection_stats& to, const Stats& from) {
  to = {.records = from.records,
        .record_bytes = from.record_bytes,
        .leaves = from.leaves,
        .inner_nodes = from.inner_nodes,
        .height = from.height,
        .index_dram_bytes = from.index_dram_bytes,
        .lookup_cache_bytes = from.lookup_cache_bytes,
        .shadow_leaves = from.shadow_leaves};
}

Status take_store_options(const tenuto_store_options& from, StoreOptions& to, Report& report) {
  tenuto_store_options o;
  tenuto_store_options_init(&o);
  TENUTO_TRY(c::take_options(o, &from, "tenuto_store_options", &report));
  if (o.order < TENUTO_KEYS_BYTES || o.order > TENUTO_KEYS_U64) {
    return fail(Status::invalid_argument, &report, "a default collection is in order bytes or u64",
                "tenuto_store_options.order", "1 or 2", std::to_string(o.order));
  }
  to.create_if_missing = o.create_if_missing != 0;
  to.error_if_exists = o.error_if_exists != 0;
  to.order = static_cast<KeyOrder>(o.order);
  to.check_order = o.check_order != 0;
  to.verify_reads = o.verify_reads != 0;
  to.snapshot_bytes_max = o.snapshot_bytes_max;
  to.snapshot_age_ms_max = o.snapshot_age_ms_max;
  to.reclaim_every_ms = o.reclaim_every_ms;
  to.reclaim_at_once = o.reclaim_at_once;
  to.clock_jump_ms_max = o.clock_jump_ms_max;
  to.clock_confirm_ms = o.clock_confirm_ms;
  to.lookup_cache_bytes = o.lookup_cache_bytes;
  if (o.clock_ms != nullptr) {
    to.clock_ms = [clock = o.clock_ms, context = o.clock_context] { return clock(context); };
  }
  TENUTO_TRY(take_codecs(o, to, report));
  return o.pool == nullptr ? Status::ok : c::take_pool_options(*o.pool, to.pool, report);
}

}  // namespace

Status c::take_collection_options(const tenuto_collection_options* from, CollectionOptions& to,
                                  Report& report) {
  tenuto_collection_options o;
  tenuto_collection_options_init(&o);
  TENUTO_TRY(take_options(o, from, "tenuto_collection_options", &report));
  if (o.order < TENUTO_KEYS_BYTES || o.order > TENUTO_KEYS_REGISTERED) {
    return fail(Status::invalid_argument, &report, "there is no such order of keys",
                "tenuto_collection_options.order", "1 to 5", std::to_string(o.order));
  }
  to = {.create_if_missing = o.create_if_missing != 0,
        .error_if_exists = o.error_if_exists != 0,
        .order = static_cast<KeyOrder>(o.order),
        .codec = o.codec == nullptr ? "" : o.codec,
        .duplicates = o.duplicates != 0,
        .expires = o.expires != 0,
        .check_order = o.check_order != 0};
  return Status::ok;
}

extern "C" {

void tenuto_u64_key(uint64_t number, unsigned char key[8]) {
  const U64Key k = u64_key(number);
  std::memcpy(key, k.bytes, sizeof k.bytes);
}
tenuto_status tenuto_u64_of_key(const void* key, size_t key_bytes, uint64_t* number) {
  if (!c::sound(key, key_bytes) || number == nullptr) return TENUTO_INVALID_ARGUMENT;
  const std::optional<std::uint64_t> n = u64_of_key(c::bytes_of(key, key_bytes));
  if (!n) return TENUTO_INVALID_ARGUMENT;
  *number = *n;
  return TENUTO_OK;
}

// --- the store -----------------------------------------------------------------------------------

void tenuto_store_options_init_sized(tenuto_store_options* to, size_t struct_bytes) {
  const StoreOptions o;
  tenuto_store_options all = {};
  all.create_if_missing = o.create_if_missing;
  all.error_if_exists = o.error_if_exists;
  all.order = static_cast<tenuto_key_order>(o.order);
  all.check_order = o.check_order;
  all.verify_reads = o.verify_reads;
  all.snapshot_bytes_max = o.snapshot_bytes_max;
  all.snapshot_age_ms_max = o.snapshot_age_ms_max;
  all.reclaim_every_ms = o.reclaim_every_ms;
  all.reclaim_at_once = o.reclaim_at_once;
  all.clock_jump_ms_max = o.clock_jump_ms_max;
  all.clock_confirm_ms = o.clock_confirm_ms;
  all.lookup_cache_bytes = o.lookup_cache_bytes;
  c::init_struct(to, struct_bytes, &all, sizeof all);
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

tenuto_status tenuto_store_get_stats_sized(const tenuto_store* store, tenuto_store_stats* stats,
                                           size_t struct_bytes) {
  if (store == nullptr) return TENUTO_INVALID_ARGUMENT;
  const StoreStats s = store->store.stats();
  tenuto_collection_stats tree;
  copy_tree_stats(tree, s);
  const tenuto_store_stats all = {.records = tree.records,
                                  .record_bytes = tree.record_bytes,
                                  .leaves = tree.leaves,
                                  .inner_nodes = tree.inner_nodes,
                                  .height = tree.height,
                                  .index_dram_bytes = tree.index_dram_bytes,
                                  .rebuild_ms = s.rebuild_ms,
                                  .snapshots = s.snapshots,
                                  .snapshot_oldest_age_ms = s.snapshot_oldest_age_ms,
                                  .snapshot_versions = s.snapshot_versions,
                                  .snapshot_bytes = s.snapshot_bytes,
                                  .snapshots_expired = s.snapshots_expired,
                                  .retired_items = s.retired_items,
                                  .retired_bytes = s.retired_bytes,
                                  .lookup_cache_bytes = tree.lookup_cache_bytes,
                                  .shadow_leaves = tree.shadow_leaves};
  return c::give_figures(stats, struct_bytes, all) ? TENUTO_OK : TENUTO_INVALID_ARGUMENT;
}

tenuto_status tenuto_store_reclaim(tenuto_store* store, uint64_t records_max, uint64_t* erased) {
  if (store == nullptr) return TENUTO_INVALID_ARGUMENT;
  const Result<std::uint64_t> n = store->store.reclaim(records_max);
  if (erased != nullptr) *erased = n.value_or(0);
  return give(n.error());
}

tenuto_pool* tenuto_store_pool(tenuto_store* store) {
  return store == nullptr ? nullptr : &store->pool;
}

// --- collections ---------------------------------------------------------------------------------

void tenuto_collection_options_init_sized(tenuto_collection_options* options, size_t struct_bytes) {
  const CollectionOptions o;
  const tenuto_collection_options all = {.struct_bytes = struct_bytes,
                                         .create_if_missing = o.create_if_missing,
                                         .error_if_exists = o.error_if_exists,
                                         .order = static_cast<tenuto_key_order>(o.order),
                                         .check_order = o.check_order,
                                         .codec = nullptr,
                                         .duplicates = o.duplicates,
                                         .expires = o.expires};
  c::init_struct(options, struct_bytes, &all, sizeof all);
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
  CollectionOptions wanted;
  const Status s = c::take_collection_options(options, wanted, report);
  if (s != Status::ok) return give(s, report, message);
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

tenuto_key_order tenuto_collection_order(const tenuto_collection* collection) {
  return collection == nullptr ? TENUTO_KEYS_BYTES
                               : static_cast<tenuto_key_order>(collection->collection.order());
}

tenuto_status tenuto_collection_codec(const tenuto_collection* collection, char** codec) {
  if (collection == nullptr || codec == nullptr) return TENUTO_INVALID_ARGUMENT;
  *codec = static_cast<char*>(c::give_bytes(collection->collection.codec()));
  return TENUTO_OK;
}

int tenuto_collection_duplicates(const tenuto_collection* collection) {
  return collection != nullptr && collection->collection.duplicates();
}

int tenuto_collection_expires(const tenuto_collection* collection) {
  return collection != nullptr && collection->collection.expires();
}

tenuto_status tenuto_collection_get_stats_sized(const tenuto_collection* collection,
                                                tenuto_collection_stats* stats,
                                                size_t struct_bytes) {
  if (collection == nullptr) return TENUTO_INVALID_ARGUMENT;
  tenuto_collection_stats all;
  copy_tree_stats(all, collection->collection.stats());
  if (!c::give_figures(stats, struct_bytes, all)) return TENUTO_INVALID_ARGUMENT;
  return give(collection->collection.status());
}

}  // extern "C"
