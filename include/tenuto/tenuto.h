/* The C API, upper half: the key-value store. Each call is the C++ call of the same name, whose
 * header (tenuto/kv.h, tenuto/collection.h) says what it promises, costs and returns; what holds
 * for all calls in C is said in tenuto/tenuto_pool.h.
 *
 *   tenuto_store* store;
 *   char* message;
 *   if (tenuto_store_open("data.tnt", NULL, &store, &message) != TENUTO_OK) {
 *     fprintf(stderr, "%s\n", message);
 *     tenuto_free(message);
 *     return 1;
 *   }
 *   tenuto_collection* all = tenuto_default_collection(store);
 *   tenuto_put(all, "key", 3, "value", 5, TENUTO_SYNC);
 *   tenuto_store_close(store);
 *
 * Keys and values are bytes with a length. Handles that come from a store (collections, iterators,
 * views, batches) are released before it is closed.
 */
#ifndef TENUTO_TENUTO_H
#define TENUTO_TENUTO_H

#include <stddef.h>
#include <stdint.h>

#include "tenuto/tenuto_pool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes seen in place: not to be released, and gone with what they were taken from. */
typedef struct tenuto_slice {
  const void* data;
  size_t bytes;
} tenuto_slice;

/* tenuto::KeyKind and tenuto::KeyOrder; a store's own keys have one of the first two. */
enum {
  TENUTO_KEYS_BYTES = 1,
  TENUTO_KEYS_U64 = 2,
  TENUTO_KEYS_REVERSE = 3,
  TENUTO_KEYS_REVERSE_U64 = 4,
  TENUTO_KEYS_REGISTERED = 5
};
typedef int tenuto_key_kind;

/* The eight bytes of an integer key, in the order of numbers. */
void tenuto_u64_key(uint64_t number, unsigned char key[8]);

/* --- the store -------------------------------------------------------------------------------- */

/* Where a codec's functions leave what they make: at most `room` bytes at `data`, and in `bytes`
 * how many there are. If there are more than fit, they say so in `bytes` and are called again. */
typedef struct tenuto_codec_out {
  void* data;
  size_t room;
  size_t bytes;
} tenuto_codec_out;

/* tenuto::KeyCodec. 0: done; anything else: this is no key. `context` is theirs; the name is
 * copied. They are called by all threads at once. */
typedef int (*tenuto_codec_fn)(void* context, tenuto_slice in, tenuto_codec_out* out);
typedef struct tenuto_key_codec {
  const char* name;
  tenuto_codec_fn encode;
  tenuto_codec_fn decode;
  void* context;
} tenuto_key_codec;

/* tenuto::StoreOptions; `pool` is initialised with the rest. */
typedef struct tenuto_store_options {
  size_t struct_bytes; /* set by tenuto_store_options_init */
  tenuto_pool_options pool;
  int create_if_missing;
  int error_if_exists;
  tenuto_key_kind key_kind;
  int check_key_kind;
  int verify_reads;
  uint64_t snapshot_bytes_max;
  uint64_t snapshot_age_ms_max;
  const tenuto_key_codec* codecs;
  size_t codec_count;
  uint64_t reclaim_every_ms;
  uint64_t reclaim_at_once;
  uint64_t (*clock_ms)(void* context); /* NULL: the system's */
  void* clock_context;
  uint64_t clock_jump_ms_max;
  uint64_t clock_confirm_ms;
} tenuto_store_options;

void tenuto_store_options_init(tenuto_store_options* options);

/* tenuto::StoreStats. */
typedef struct tenuto_store_stats {
  uint64_t records, record_bytes;
  uint64_t leaves, inner_nodes, height, index_dram_bytes;
  double rebuild_ms;
  uint64_t snapshots, snapshot_oldest_age_ms, snapshot_versions, snapshot_bytes, snapshots_expired;
  uint64_t retired_items, retired_bytes;
  tenuto_pool_stats pool;
} tenuto_store_stats;

typedef struct tenuto_store tenuto_store;
typedef struct tenuto_collection tenuto_collection;

tenuto_status tenuto_store_open(const char* path, const tenuto_store_options* options,
                                tenuto_store** store, char** message);
/* Closes the store and, unless it says busy, releases the handle. */
tenuto_status tenuto_store_close(tenuto_store* store);
tenuto_status tenuto_store_sync(tenuto_store* store);
tenuto_status tenuto_store_validate(const tenuto_store* store, char** message);
tenuto_status tenuto_store_get_stats(const tenuto_store* store, tenuto_store_stats* stats);

/* tenuto::CompactOptions, CompactStats and Store::compact. `stats` may be NULL. */
typedef struct tenuto_compact_options {
  size_t struct_bytes; /* set by tenuto_compact_options_init */
  uint64_t moves_max;
  double occupancy;
} tenuto_compact_options;

typedef struct tenuto_compact_stats {
  uint64_t bytes_before, bytes_after;
  uint64_t records_moved, leaves_moved, leaves_merged, slabs_emptied;
  int complete;
} tenuto_compact_stats;

void tenuto_compact_options_init(tenuto_compact_options* options);
tenuto_status tenuto_compact(tenuto_store* store, const tenuto_compact_options* options,
                             tenuto_compact_stats* stats, char** message);
tenuto_key_kind tenuto_store_key_kind(const tenuto_store* store);
/* erased: how many; may be NULL. */
tenuto_status tenuto_store_reclaim(tenuto_store* store, uint64_t records_max, uint64_t* erased);
/* The pool below, for objects beside the records. It belongs to the store and is closed with it. */
tenuto_pool* tenuto_store_pool(tenuto_store* store);

/* --- collections ------------------------------------------------------------------------------ */

/* tenuto::CollectionOptions. */
typedef struct tenuto_collection_options {
  size_t struct_bytes; /* set by tenuto_collection_options_init */
  int create_if_missing;
  int error_if_exists;
  tenuto_key_kind order;
  int check_order;
  const char* codec; /* with TENUTO_KEYS_REGISTERED; else NULL */
  int duplicates;
  int expires;
} tenuto_collection_options;

void tenuto_collection_options_init(tenuto_collection_options* options);

typedef struct tenuto_collection_stats {
  uint64_t records, record_bytes;
  uint64_t leaves, inner_nodes, height, index_dram_bytes;
} tenuto_collection_stats;

/* The collection without a name. It belongs to the store: not to be released. */
tenuto_collection* tenuto_default_collection(tenuto_store* store);
/* Opens or makes one by its name; release it by tenuto_collection_release. */
tenuto_status tenuto_collection_open(tenuto_store* store, const char* name,
                                     const tenuto_collection_options* options,
                                     tenuto_collection** collection, char** message);
/* Forgets the handle; the collection stays. */
void tenuto_collection_release(tenuto_collection* collection);
tenuto_status tenuto_collection_drop(tenuto_store* store, const char* name, char** message);
/* replace: one that has the new name is dropped in the same step. */
tenuto_status tenuto_collection_rename(tenuto_store* store, const char* from, const char* to,
                                       int replace, char** message);
/* Calls each(context, name, id) for every named collection, in order of the names, until it returns
 * something else than 0. */
typedef int (*tenuto_collection_fn)(void* context, const char* name, uint64_t id);
tenuto_status tenuto_collections(const tenuto_store* store, tenuto_collection_fn each,
                                 void* context, char** message);
/* Release the name by tenuto_free. */
tenuto_status tenuto_collection_name(const tenuto_collection* collection, char** name);
uint64_t tenuto_collection_id(const tenuto_collection* collection);
tenuto_key_kind tenuto_collection_order(const tenuto_collection* collection);
/* Release the codec's name by tenuto_free; "" where there is none. */
tenuto_status tenuto_collection_codec(const tenuto_collection* collection, char** codec);
int tenuto_collection_duplicates(const tenuto_collection* collection);
int tenuto_collection_expires(const tenuto_collection* collection);
tenuto_status tenuto_collection_get_stats(const tenuto_collection* collection,
                                          tenuto_collection_stats* stats);

/* --- records ---------------------------------------------------------------------------------- */

/* A copy of the value, to be released by tenuto_free; a zero byte follows it. NULL and 0 when the
 * status is not TENUTO_OK. */
tenuto_status tenuto_get(const tenuto_collection* in, const void* key, size_t key_bytes,
                         void** value, size_t* value_bytes);
tenuto_status tenuto_contains(const tenuto_collection* in, const void* key, size_t key_bytes);
tenuto_status tenuto_put(tenuto_collection* in, const void* key, size_t key_bytes,
                         const void* value, size_t value_bytes, tenuto_durability durability);
tenuto_status tenuto_erase(tenuto_collection* in, const void* key, size_t key_bytes,
                           tenuto_durability durability);

/* A put with a lifetime, where records expire, and what is left of it (0: it stays). */
tenuto_status tenuto_put_for(tenuto_collection* in, const void* key, size_t key_bytes,
                             const void* value, size_t value_bytes, uint64_t ttl_ms,
                             tenuto_durability durability);
tenuto_status tenuto_ttl_ms(const tenuto_collection* in, const void* key, size_t key_bytes,
                            uint64_t* ttl_ms);
/* Of duplicates. */
tenuto_status tenuto_contains_pair(const tenuto_collection* in, const void* key, size_t key_bytes,
                                   const void* value, size_t value_bytes);
tenuto_status tenuto_erase_pair(tenuto_collection* in, const void* key, size_t key_bytes,
                                const void* value, size_t value_bytes,
                                tenuto_durability durability);
tenuto_status tenuto_count(const tenuto_collection* in, const void* key, size_t key_bytes,
                           uint64_t* count);

tenuto_status tenuto_put_if_absent(tenuto_collection* in, const void* key, size_t key_bytes,
                                   const void* value, size_t value_bytes,
                                   tenuto_durability durability);
/* expected and desired: NULL for "no record". */
tenuto_status tenuto_compare_and_swap(tenuto_collection* in, const void* key, size_t key_bytes,
                                      const tenuto_slice* expected, const tenuto_slice* desired,
                                      tenuto_durability durability);
/* Makes the new value of the old one (NULL: there is no record) and leaves it in *fresh, which may
 * point to memory of its own, to the old value, or to anything that lives until the call returns.
 * Not 0: the record is erased. May be called more than once. */
typedef int (*tenuto_merge_fn)(void* context, const tenuto_slice* old, tenuto_slice* fresh);
tenuto_status tenuto_merge(tenuto_collection* in, const void* key, size_t key_bytes,
                           tenuto_merge_fn fn, void* context, tenuto_durability durability);
/* From `from` (inclusive; NULL: from the first) to `to` (exclusive; NULL: to the end). erased: how
 * many; may be NULL. */
tenuto_status tenuto_erase_range(tenuto_collection* in, const tenuto_slice* from,
                                 const tenuto_slice* to, uint64_t* erased,
                                 tenuto_durability durability);
uint64_t tenuto_approximate_count(const tenuto_collection* in, const tenuto_slice* from,
                                  const tenuto_slice* to);
/* Calls each for all keys in order. The value is seen in place, and gone when `each` returns. */
typedef void (*tenuto_each_fn)(void* context, size_t index, tenuto_status status,
                               tenuto_slice value);
tenuto_status tenuto_multi_get(const tenuto_collection* in, const tenuto_slice* keys, size_t count,
                               tenuto_each_fn each, void* context);
/* Ascending keys into an empty collection. */
typedef struct tenuto_record {
  tenuto_slice key;
  tenuto_slice value;
} tenuto_record;
tenuto_status tenuto_bulk_load(tenuto_collection* in, const tenuto_record* sorted, size_t count,
                               tenuto_durability durability);
/* The first record whose key is >= key (lower), or > key (upper): copies, each to be released by
 * tenuto_free. */
tenuto_status tenuto_lower_bound(const tenuto_collection* in, const void* key, size_t key_bytes,
                                 void** found_key, size_t* found_key_bytes, void** value,
                                 size_t* value_bytes);
tenuto_status tenuto_upper_bound(const tenuto_collection* in, const void* key, size_t key_bytes,
                                 void** found_key, size_t* found_key_bytes, void** value,
                                 size_t* value_bytes);

/* A value in place, until the view is released, by any thread. TENUTO_BUSY: too many of them. */
typedef struct tenuto_view tenuto_view;
tenuto_status tenuto_view_open(const tenuto_collection* in, const void* key, size_t key_bytes,
                               tenuto_view** view, tenuto_slice* value);
void tenuto_view_release(tenuto_view* view);

/* --- batches ---------------------------------------------------------------------------------- */

typedef struct tenuto_batch tenuto_batch;
tenuto_batch* tenuto_batch_new(void);
void tenuto_batch_release(tenuto_batch* batch);
tenuto_status tenuto_batch_put(tenuto_batch* batch, const tenuto_collection* in, const void* key,
                               size_t key_bytes, const void* value, size_t value_bytes);
tenuto_status tenuto_batch_erase(tenuto_batch* batch, const tenuto_collection* in, const void* key,
                                 size_t key_bytes);
/* ttl_ms as in tenuto_put_for. */
tenuto_status tenuto_batch_put_for(tenuto_batch* batch, const tenuto_collection* in,
                                   const void* key, size_t key_bytes, const void* value,
                                   size_t value_bytes, uint64_t ttl_ms);
tenuto_status tenuto_batch_erase_pair(tenuto_batch* batch, const tenuto_collection* in,
                                      const void* key, size_t key_bytes, const void* value,
                                      size_t value_bytes);
void tenuto_batch_clear(tenuto_batch* batch);
size_t tenuto_batch_count(const tenuto_batch* batch);
/* All of it or nothing. The batch stays as it is. */
tenuto_status tenuto_write(tenuto_store* store, const tenuto_batch* batch,
                           tenuto_durability durability);

/* --- iterators -------------------------------------------------------------------------------- */

/* tenuto::IteratorOptions. NULL: no bound. The bytes are copied. */
typedef struct tenuto_iterator_options {
  size_t struct_bytes; /* set by tenuto_iterator_options_init */
  tenuto_slice prefix;
  tenuto_slice lower; /* inclusive */
  tenuto_slice upper; /* exclusive */
} tenuto_iterator_options;

void tenuto_iterator_options_init(tenuto_iterator_options* options);

typedef struct tenuto_iterator tenuto_iterator;
tenuto_status tenuto_iterator_open(const tenuto_collection* in,
                                   const tenuto_iterator_options* options, tenuto_iterator** it);
void tenuto_iterator_release(tenuto_iterator* it);
/* A key that is NULL and has bytes: it stands nowhere, and its status is TENUTO_INVALID_ARGUMENT
 * until it is sent elsewhere. */
void tenuto_iterator_seek_first(tenuto_iterator* it);
void tenuto_iterator_seek_last(tenuto_iterator* it);
void tenuto_iterator_seek(tenuto_iterator* it, const void* key, size_t key_bytes);
void tenuto_iterator_seek_for_prev(tenuto_iterator* it, const void* key, size_t key_bytes);
/* Nothing happens where the iterator stands nowhere. */
void tenuto_iterator_next(tenuto_iterator* it);
void tenuto_iterator_prev(tenuto_iterator* it);
/* Where there are duplicates. */
void tenuto_iterator_seek_pair(tenuto_iterator* it, const void* key, size_t key_bytes,
                               const void* value, size_t value_bytes);
void tenuto_iterator_next_key(tenuto_iterator* it);
void tenuto_iterator_prev_key(tenuto_iterator* it);
int tenuto_iterator_valid(const tenuto_iterator* it);
/* Until the iterator moves; NULL and 0 where it stands nowhere. */
tenuto_slice tenuto_iterator_key(const tenuto_iterator* it);
tenuto_slice tenuto_iterator_value(const tenuto_iterator* it);
/* What the record has left; 0: it stays, or the iterator stands nowhere. */
uint64_t tenuto_iterator_ttl_ms(const tenuto_iterator* it);
tenuto_status tenuto_iterator_status(const tenuto_iterator* it);

/* --- snapshots and backup (tenuto/snapshot.h) ---------------------------------------------------
 */

typedef struct tenuto_snapshot tenuto_snapshot;
tenuto_status tenuto_snapshot_take(tenuto_store* store, tenuto_snapshot** snapshot);
void tenuto_snapshot_release(tenuto_snapshot* snapshot);
tenuto_status tenuto_snapshot_get(const tenuto_snapshot* snapshot, const tenuto_collection* in,
                                  const void* key, size_t key_bytes, void** value,
                                  size_t* value_bytes);
tenuto_status tenuto_snapshot_contains(const tenuto_snapshot* snapshot, const tenuto_collection* in,
                                       const void* key, size_t key_bytes);
tenuto_status tenuto_snapshot_iterator(const tenuto_snapshot* snapshot, const tenuto_collection* in,
                                       const tenuto_iterator_options* options,
                                       tenuto_iterator** it);
/* options: of the new pool. */
tenuto_status tenuto_store_backup(tenuto_store* store, const char* path,
                                  const tenuto_pool_options* options, char** message);

/* --- transactions over keys (tenuto/transaction.h) -------------------------------------------- */

typedef struct tenuto_transaction tenuto_transaction;
tenuto_status tenuto_begin(tenuto_store* store, int read_only, tenuto_transaction** tx);
tenuto_status tenuto_transaction_get(tenuto_transaction* tx, const tenuto_collection* in,
                                     const void* key, size_t key_bytes, void** value,
                                     size_t* value_bytes);
tenuto_status tenuto_transaction_get_for_update(tenuto_transaction* tx, const tenuto_collection* in,
                                                const void* key, size_t key_bytes, void** value,
                                                size_t* value_bytes);
tenuto_status tenuto_transaction_contains(tenuto_transaction* tx, const tenuto_collection* in,
                                          const void* key, size_t key_bytes);
/* ttl_ms: 0, or as in tenuto_put_for. */
tenuto_status tenuto_transaction_put(tenuto_transaction* tx, const tenuto_collection* in,
                                     const void* key, size_t key_bytes, const void* value,
                                     size_t value_bytes, uint64_t ttl_ms);
tenuto_status tenuto_transaction_erase(tenuto_transaction* tx, const tenuto_collection* in,
                                       const void* key, size_t key_bytes);
tenuto_status tenuto_transaction_erase_pair(tenuto_transaction* tx, const tenuto_collection* in,
                                            const void* key, size_t key_bytes, const void* value,
                                            size_t value_bytes);
tenuto_status tenuto_transaction_iterator(tenuto_transaction* tx, const tenuto_collection* in,
                                          const tenuto_iterator_options* options,
                                          tenuto_iterator** it);
/* Release the handle by tenuto_collection_release, whatever becomes of the transaction. */
tenuto_status tenuto_transaction_create(tenuto_transaction* tx, const char* name,
                                        const tenuto_collection_options* options,
                                        tenuto_collection** collection, char** message);
tenuto_status tenuto_transaction_drop(tenuto_transaction* tx, const tenuto_collection* collection);
/* A point to return to: rollback_to forgets what was written since. */
typedef struct tenuto_savepoint {
  size_t writes;
} tenuto_savepoint;
tenuto_savepoint tenuto_transaction_savepoint(const tenuto_transaction* tx);
tenuto_status tenuto_transaction_rollback_to(tenuto_transaction* tx, tenuto_savepoint point);
/* Both end the transaction and release the handle, whatever they return. */
tenuto_status tenuto_transaction_commit(tenuto_transaction* tx, tenuto_durability durability);
void tenuto_transaction_rollback(tenuto_transaction* tx);
/* Runs body until its transaction commits without a conflict, attempts_max times at most (0: the
 * default). TENUTO_OK commits, anything else but a conflict rolls back and is handed on. The handle
 * is the call's own: body must not end it. */
typedef tenuto_status (*tenuto_transaction_body)(tenuto_transaction* tx, void* context);
tenuto_status tenuto_store_run(tenuto_store* store, tenuto_transaction_body body, void* context,
                               unsigned attempts_max, tenuto_durability durability);

#ifdef __cplusplus
}
#endif

#endif
