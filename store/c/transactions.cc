// The C API: snapshots, backup, compaction, transactions over keys.
#include "store/c/handles.h"

using namespace tenuto;
using c::bytes_of;
using c::give;
using c::give_value;
using c::sound;

namespace {

bool sound_read(const void* handle, const void* key, std::size_t key_bytes, void** value,
                const std::size_t* value_bytes) {
  return handle != nullptr && sound(key, key_bytes) && value != nullptr && value_bytes != nullptr;
}

}  // namespace

extern "C" {

// --- snapshots -----------------------------------------------------------------------------------

tenuto_status tenuto_snapshot_take(tenuto_store* store, tenuto_snapshot** snapshot) {
  if (store == nullptr || snapshot == nullptr) return TENUTO_INVALID_ARGUMENT;
  *snapshot = nullptr;
  Result<Snapshot> taken = store->store.snapshot();
  if (taken) *snapshot = new tenuto_snapshot{std::move(*taken)};
  return give(taken.error());
}

void tenuto_snapshot_release(tenuto_snapshot* snapshot) { delete snapshot; }

tenuto_status tenuto_snapshot_get(const tenuto_snapshot* snapshot, const tenuto_collection* in,
                                  const void* key, size_t key_bytes, void** value,
                                  size_t* value_bytes) {
  if (in == nullptr || !sound_read(snapshot, key, key_bytes, value, value_bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give_value(snapshot->snapshot.get({in->collection, bytes_of(key, key_bytes)}), value,
                    value_bytes);
}

tenuto_status tenuto_snapshot_contains(const tenuto_snapshot* snapshot, const tenuto_collection* in,
                                       const void* key, size_t key_bytes) {
  if (snapshot == nullptr || !sound(in, key, key_bytes)) return TENUTO_INVALID_ARGUMENT;
  return give(snapshot->snapshot.contains({in->collection, bytes_of(key, key_bytes)}));
}

tenuto_status tenuto_snapshot_iterator(const tenuto_snapshot* snapshot, const tenuto_collection* in,
                                       const tenuto_iterator_options* options,
                                       tenuto_iterator** it) {
  if (snapshot == nullptr || in == nullptr || it == nullptr) return TENUTO_INVALID_ARGUMENT;
  *it = nullptr;
  IteratorOptions o;
  if (!c::take_iterator_options(options, o)) return TENUTO_INVALID_ARGUMENT;
  return c::give_iterator(snapshot->snapshot.iterator(in->collection, std::move(o)), it);
}

tenuto_status tenuto_store_backup(tenuto_store* store, const char* path,
                                  const tenuto_pool_options* options, char** message) {
  if (store == nullptr || path == nullptr) return c::null_handle(message);
  Report report;
  PoolOptions o;
  Status s = options == nullptr ? Status::ok : c::take_pool_options(*options, o, report);
  if (s == Status::ok) s = store->store.backup(path, o, &report);
  return give(s, report, message);
}

void tenuto_compact_options_init_sized(tenuto_compact_options* options, size_t struct_bytes) {
  const CompactOptions o;
  const tenuto_compact_options all = {.struct_bytes = struct_bytes,
                                      .moves_max = o.moves_max,
                                      .occupancy = o.occupancy,
                                      .in_key_order = o.in_key_order ? 1 : 0};
  c::init_struct(options, struct_bytes, &all, sizeof all);
}

tenuto_status tenuto_compact_sized(tenuto_store* store, const tenuto_compact_options* options,
                                   tenuto_compact_stats* stats, size_t struct_bytes,
                                   char** message) {
  if (store == nullptr) return c::null_handle(message);
  Report report;
  tenuto_compact_options o;
  tenuto_compact_options_init(&o);
  Status s = c::take_options(o, options, "tenuto_compact_options", &report);
  // Asked before the work: afterwards it would be too late to say so.
  if (s == Status::ok && stats != nullptr && !c::give_figures(stats, struct_bytes, {})) {
    s = fail(Status::invalid_argument, &report, "no tenuto_compact_stats has this size", {}, {},
             std::to_string(struct_bytes));
  }
  if (s != Status::ok) return give(s, report, message);
  const auto done = store->store.compact(
      {.moves_max = o.moves_max, .occupancy = o.occupancy, .in_key_order = o.in_key_order != 0},
      &report);
  if (done && stats != nullptr) {
    const tenuto_compact_stats all = {.bytes_before = done->bytes_before,
                                      .bytes_after = done->bytes_after,
                                      .records_moved = done->records_moved,
                                      .leaves_moved = done->leaves_moved,
                                      .leaves_merged = done->leaves_merged,
                                      .slabs_emptied = done->slabs_emptied,
                                      .complete = done->complete ? 1 : 0};
    static_cast<void>(c::give_figures(stats, struct_bytes, all));
  }
  return give(done.error(), report, message);
}

// --- transactions --------------------------------------------------------------------------------

tenuto_status tenuto_begin(tenuto_store* store, int read_only, tenuto_transaction** tx) {
  if (store == nullptr || tx == nullptr) return TENUTO_INVALID_ARGUMENT;
  TransactionOptions options;
  options.read_only = read_only != 0;
  auto* begun = new tenuto_transaction{nullptr, store->store.begin(options)};
  begun->tx = &*begun->own;
  *tx = begun;
  return TENUTO_OK;
}

tenuto_status tenuto_transaction_get(tenuto_transaction* tx, const tenuto_collection* in,
                                     const void* key, size_t key_bytes, void** value,
                                     size_t* value_bytes) {
  if (in == nullptr || !sound_read(tx, key, key_bytes, value, value_bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give_value(tx->tx->get({in->collection, bytes_of(key, key_bytes)}), value, value_bytes);
}

tenuto_status tenuto_transaction_get_for_update(tenuto_transaction* tx, const tenuto_collection* in,
                                                const void* key, size_t key_bytes, void** value,
                                                size_t* value_bytes) {
  if (in == nullptr || !sound_read(tx, key, key_bytes, value, value_bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  std::string found;
  const Status s = tx->tx->get_for_update({in->collection, bytes_of(key, key_bytes)}, found);
  return give_value(s == Status::ok ? Result<std::string>(std::move(found)) : s, value,
                    value_bytes);
}

tenuto_status tenuto_transaction_contains(tenuto_transaction* tx, const tenuto_collection* in,
                                          const void* key, size_t key_bytes) {
  if (tx == nullptr || !sound(in, key, key_bytes)) return TENUTO_INVALID_ARGUMENT;
  return give(tx->tx->contains({in->collection, bytes_of(key, key_bytes)}));
}

tenuto_status tenuto_transaction_put(tenuto_transaction* tx, const tenuto_collection* in,
                                     const void* key, size_t key_bytes, const void* value,
                                     size_t value_bytes, uint64_t ttl_ms) {
  if (tx == nullptr || !sound(in, key, key_bytes) || !sound(value, value_bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give(tx->tx->put({in->collection, bytes_of(key, key_bytes)}, bytes_of(value, value_bytes),
                          ttl_ms));
}

tenuto_status tenuto_transaction_touch(tenuto_transaction* tx, const tenuto_collection* in,
                                       const void* key, size_t key_bytes, uint64_t ttl_ms) {
  if (tx == nullptr || !sound(in, key, key_bytes)) return TENUTO_INVALID_ARGUMENT;
  return give(tx->tx->touch({in->collection, bytes_of(key, key_bytes)}, ttl_ms));
}

tenuto_status tenuto_transaction_erase(tenuto_transaction* tx, const tenuto_collection* in,
                                       const void* key, size_t key_bytes) {
  if (tx == nullptr || !sound(in, key, key_bytes)) return TENUTO_INVALID_ARGUMENT;
  return give(tx->tx->erase({in->collection, bytes_of(key, key_bytes)}));
}

tenuto_status tenuto_transaction_erase_pair(tenuto_transaction* tx, const tenuto_collection* in,
                                            const void* key, size_t key_bytes, const void* value,
                                            size_t value_bytes) {
  if (tx == nullptr || !sound(in, key, key_bytes) || !sound(value, value_bytes)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  return give(
      tx->tx->erase_pair({in->collection, bytes_of(key, key_bytes)}, bytes_of(value, value_bytes)));
}

tenuto_status tenuto_transaction_iterator(tenuto_transaction* tx, const tenuto_collection* in,
                                          const tenuto_iterator_options* options,
                                          tenuto_iterator** it) {
  if (tx == nullptr || in == nullptr || it == nullptr) return TENUTO_INVALID_ARGUMENT;
  *it = nullptr;
  IteratorOptions o;
  if (!c::take_iterator_options(options, o)) return TENUTO_INVALID_ARGUMENT;
  return c::give_iterator(tx->tx->iterator(in->collection, std::move(o)), it);
}

tenuto_status tenuto_transaction_create(tenuto_transaction* tx, const char* name,
                                        const tenuto_collection_options* options,
                                        tenuto_collection** collection, char** message) {
  if (tx == nullptr || name == nullptr || collection == nullptr) return c::null_handle(message);
  *collection = nullptr;
  Report report;
  CollectionOptions wanted;
  Status s = c::take_collection_options(options, wanted, report);
  if (s == Status::ok) {
    Result<Collection> made = tx->tx->create(name, wanted, &report);
    s = made.error();
    if (made) *collection = new tenuto_collection{std::move(*made)};
  }
  return give(s, report, message);
}

tenuto_status tenuto_transaction_drop(tenuto_transaction* tx, const tenuto_collection* collection) {
  if (tx == nullptr || collection == nullptr) return TENUTO_INVALID_ARGUMENT;
  return give(tx->tx->drop(collection->collection));
}

tenuto_savepoint tenuto_transaction_savepoint(const tenuto_transaction* tx) {
  return {tx == nullptr ? 0 : tx->tx->savepoint().writes};
}

tenuto_status tenuto_transaction_rollback_to(tenuto_transaction* tx, tenuto_savepoint point) {
  return tx == nullptr ? TENUTO_INVALID_ARGUMENT : give(tx->tx->rollback_to({point.writes}));
}

tenuto_status tenuto_transaction_commit(tenuto_transaction* tx, tenuto_durability durability) {
  if (tx == nullptr || !tx->own || !c::is_durability(durability)) return TENUTO_INVALID_ARGUMENT;
  const Status s = tx->tx->commit(c::write_options(durability));
  delete tx;
  return give(s);
}

void tenuto_transaction_rollback(tenuto_transaction* tx) {
  if (tx != nullptr && tx->own) delete tx;
}

tenuto_status tenuto_store_run(tenuto_store* store, tenuto_transaction_body body, void* context,
                               unsigned attempts_max, tenuto_durability durability) {
  if (store == nullptr || body == nullptr || !c::is_durability(durability)) {
    return TENUTO_INVALID_ARGUMENT;
  }
  TransactionOptions options;
  if (attempts_max != 0) options.attempts_max = attempts_max;
  options.write = c::write_options(durability);
  c::Answer answer;
  const Status s = store->store.run(
      [&](StoreTransaction& tx) {
        tenuto_transaction handle{&tx};
        return answer.take(body(&handle, context));
      },
      options);
  return answer.give_back(s);
}

}  // extern "C"
