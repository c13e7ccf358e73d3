/* The C API, upper half: the key-value store. Each call does what the C++ call of the same name
 * does. Its meaning, cost and statuses are in tenuto/kv.h, collection.h, snapshot.h and
 * transaction.h; here are only the differences. The rules for all calls in C are in
 * tenuto/tenuto_pool.h.
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
 * Keys and values are bytes with a length. Release all handles that come from a store (collections,
 * iterators, views, batches) before you close it.
 */
#ifndef TENUTO_TENUTO_H
#define TENUTO_TENUTO_H

#include <stddef.h>
#include <stdint.h>

#include "tenuto/tenuto_options.h"
#include "tenuto/tenuto_pool.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Writes the eight bytes of an integer key, whose byte order is that of the numbers. */
void tenuto_u64_key(uint64_t number, unsigned char key[8]);
/* tenuto::u64_of_key. invalid_argument: the key does not have 8 bytes. */
tenuto_status tenuto_u64_of_key(const void* key, size_t key_bytes, uint64_t* number);

/* --- the store -------------------------------------------------------------------------------- */

tenuto_status tenuto_store_open(const char* path, const tenuto_store_options* options,
                                tenuto_store** store, char** message);
/* Closes the store. Releases the handle unless it returns TENUTO_BUSY. */
tenuto_status tenuto_store_close(tenuto_store* store);
tenuto_status tenuto_store_sync(tenuto_store* store);
tenuto_status tenuto_store_validate(const tenuto_store* store, char** message);

/* *erased: the number of erased records. erased may be NULL. */
tenuto_status tenuto_store_reclaim(tenuto_store* store, uint64_t records_max, uint64_t* erased);
/* The store's pool, for objects beside the records. It belongs to the store and closes with it. */
tenuto_pool* tenuto_store_pool(tenuto_store* store);

/* --- collections ------------------------------------------------------------------------------ */

/* The default collection. It belongs to the store: do not release it. */
tenuto_collection* tenuto_default_collection(tenuto_store* store);
/* Opens or makes a collection. Release it by tenuto_collection_release. */
tenuto_status tenuto_collection_open(tenuto_store* store, const char* name,
                                     const tenuto_collection_options* options,
                                     tenuto_collection** collection, char** message);
/* Releases the handle. The collection itself stays. */
void tenuto_collection_release(tenuto_collection* collection);
tenuto_status tenuto_collection_drop(tenuto_store* store, const char* name, char** message);
/* replace not 0: a collection that has the new name is dropped in the same atomic step. */
tenuto_status tenuto_collection_rename(tenuto_store* store, const char* from, const char* to,
                                       int replace, char** message);
/* Calls each(context, name, id) for every named collection, in order of their names. Stops when
 * `each` does not return 0. */
typedef int (*tenuto_collection_fn)(void* context, const char* name, uint64_t id);
tenuto_status tenuto_collections(const tenuto_store* store, tenuto_collection_fn each,
                                 void* context, char** message);
/* Release the name by tenuto_free. */
tenuto_status tenuto_collection_name(const tenuto_collection* collection, char** name);
uint64_t tenuto_collection_id(const tenuto_collection* collection);
tenuto_key_order tenuto_collection_order(const tenuto_collection* collection);
/* Release the codec's name by tenuto_free. "": there is no codec. */
tenuto_status tenuto_collection_codec(const tenuto_collection* collection, char** codec);
int tenuto_collection_duplicates(const tenuto_collection* collection);
int tenuto_collection_expires(const tenuto_collection* collection);

/* --- records ---------------------------------------------------------------------------------- */

/* *value: a copy of the value, with a zero byte behind it. Release it by tenuto_free. NULL and 0
 * if the status is not TENUTO_OK. */
tenuto_status tenuto_get(const tenuto_collection* in, const void* key, size_t key_bytes,
                         void** value, size_t* value_bytes);
/* Into the caller's memory: copies the value, or as much of it as fits into `room` bytes.
 * *value_bytes: its size; 0 if the status is not TENUTO_OK. */
tenuto_status tenuto_get_into(const tenuto_collection* in, const void* key, size_t key_bytes,
                              void* to, size_t room, size_t* value_bytes);
tenuto_status tenuto_contains(const tenuto_collection* in, const void* key, size_t key_bytes);
tenuto_status tenuto_put(tenuto_collection* in, const void* key, size_t key_bytes,
                         const void* value, size_t value_bytes, tenuto_durability durability);
tenuto_status tenuto_erase(tenuto_collection* in, const void* key, size_t key_bytes,
                           tenuto_durability durability);

/* A put with a lifetime, and the milliseconds that are left of it (0: the record does not expire).
 * For collections whose records expire. */
tenuto_status tenuto_put_for(tenuto_collection* in, const void* key, size_t key_bytes,
                             const void* value, size_t value_bytes, uint64_t ttl_ms,
                             tenuto_durability durability);
tenuto_status tenuto_ttl_ms(const tenuto_collection* in, const void* key, size_t key_bytes,
                            uint64_t* ttl_ms);
/* tenuto::Collection::touch: a new lifetime for a record. */
tenuto_status tenuto_touch(tenuto_collection* in, const void* key, size_t key_bytes,
                           uint64_t ttl_ms, tenuto_durability durability);
/* For collections with duplicates. */
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
/* expected, desired: NULL stands for "no record". */
tenuto_status tenuto_compare_and_swap(tenuto_collection* in, const void* key, size_t key_bytes,
                                      const tenuto_slice* expected, const tenuto_slice* desired,
                                      tenuto_durability durability);
/* Sets *fresh to the new value. old: the old value; NULL: there is no record. *fresh may point to
 * the old value, or to any memory that is valid until tenuto_merge returns. NULL only with 0
 * bytes; bytes that cannot be (NULL, -1) change nothing, and are TENUTO_INVALID_ARGUMENT. Returns
 * 0; another number erases the record. May be called more than once. */
typedef int (*tenuto_merge_fn)(void* context, const tenuto_slice* old, tenuto_slice* fresh);
tenuto_status tenuto_merge(tenuto_collection* in, const void* key, size_t key_bytes,
                           tenuto_merge_fn fn, void* context, tenuto_durability durability);
/* From `from` (inclusive; NULL: the first key) to `to` (exclusive; NULL: the end). *erased: the
 * number of erased records. erased may be NULL. */
tenuto_status tenuto_erase_range(tenuto_collection* in, const tenuto_slice* from,
                                 const tenuto_slice* to, uint64_t* erased,
                                 tenuto_durability durability);
uint64_t tenuto_approximate_count(const tenuto_collection* in, const tenuto_slice* from,
                                  const tenuto_slice* to);
/* Calls `each` for all keys in order. The value is in place, and valid until `each` returns. */
typedef void (*tenuto_each_fn)(void* context, size_t index, tenuto_status status,
                               tenuto_slice value);
tenuto_status tenuto_multi_get(const tenuto_collection* in, const tenuto_slice* keys, size_t count,
                               tenuto_each_fn each, void* context);
/* Puts records with ascending keys into an empty collection. */
typedef struct tenuto_record {
  tenuto_slice key;
  tenuto_slice value;
} tenuto_record;
tenuto_status tenuto_bulk_load(tenuto_collection* in, const tenuto_record* sorted, size_t count,
                               tenuto_durability durability);
/* tenuto_lower_bound: the first record with a key >= key. tenuto_upper_bound: the first with a key
 * > key. *found_key and *value are copies. Release each by tenuto_free. NULL and 0 if the status is
 * not TENUTO_OK. */
tenuto_status tenuto_lower_bound(const tenuto_collection* in, const void* key, size_t key_bytes,
                                 void** found_key, size_t* found_key_bytes, void** value,
                                 size_t* value_bytes);
tenuto_status tenuto_upper_bound(const tenuto_collection* in, const void* key, size_t key_bytes,
                                 void** found_key, size_t* found_key_bytes, void** value,
                                 size_t* value_bytes);

/* A value in place, valid until the view is released. Any thread may release it. TENUTO_BUSY: too
 * many iterators and views. */
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
/* Applies all entries or none. The batch is unchanged. */
tenuto_status tenuto_write(tenuto_store* store, const tenuto_batch* batch,
                           tenuto_durability durability);

/* --- iterators -------------------------------------------------------------------------------- */

typedef struct tenuto_iterator tenuto_iterator;
/* Opens an iterator, which is not positioned yet. If *it is not NULL, release it, also when the
 * status is not TENUTO_OK. The same holds for iterators of snapshots and transactions. */
tenuto_status tenuto_iterator_open(const tenuto_collection* in,
                                   const tenuto_iterator_options* options, tenuto_iterator** it);
void tenuto_iterator_release(tenuto_iterator* it);
/* After a key that is NULL and has bytes the iterator is not valid, and its status is
 * TENUTO_INVALID_ARGUMENT until the next seek. */
void tenuto_iterator_seek_first(tenuto_iterator* it);
void tenuto_iterator_seek_last(tenuto_iterator* it);
void tenuto_iterator_seek(tenuto_iterator* it, const void* key, size_t key_bytes);
void tenuto_iterator_seek_for_prev(tenuto_iterator* it, const void* key, size_t key_bytes);
/* next, prev, next_key and prev_key do nothing if the iterator is not valid. */
void tenuto_iterator_next(tenuto_iterator* it);
void tenuto_iterator_prev(tenuto_iterator* it);
/* For collections with duplicates. */
void tenuto_iterator_seek_pair(tenuto_iterator* it, const void* key, size_t key_bytes,
                               const void* value, size_t value_bytes);
void tenuto_iterator_next_key(tenuto_iterator* it);
void tenuto_iterator_prev_key(tenuto_iterator* it);
int tenuto_iterator_valid(const tenuto_iterator* it);
/* Valid until the iterator moves. NULL and 0 if the iterator is not valid. */
tenuto_slice tenuto_iterator_key(const tenuto_iterator* it);
tenuto_slice tenuto_iterator_value(const tenuto_iterator* it);
/* Milliseconds until the record expires. 0: it does not expire, or the iterator is not valid. */
uint64_t tenuto_iterator_ttl_ms(const tenuto_iterator* it);
tenuto_status tenuto_iterator_status(const tenuto_iterator* it);

/* --- snapshots and backup (tenuto/snapshot.h) ------------------------------------------------- */

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
/* options: those of the new pool. */
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
tenuto_status tenuto_transaction_touch(tenuto_transaction* tx, const tenuto_collection* in,
                                       const void* key, size_t key_bytes, uint64_t ttl_ms);
tenuto_status tenuto_transaction_erase(tenuto_transaction* tx, const tenuto_collection* in,
                                       const void* key, size_t key_bytes);
tenuto_status tenuto_transaction_erase_pair(tenuto_transaction* tx, const tenuto_collection* in,
                                            const void* key, size_t key_bytes, const void* value,
                                            size_t value_bytes);
tenuto_status tenuto_transaction_iterator(tenuto_transaction* tx, const tenuto_collection* in,
                                          const tenuto_iterator_options* options,
                                          tenuto_iterator** it);
/* Release *collection by tenuto_collection_release, also if the transaction fails. */
tenuto_status tenuto_transaction_create(tenuto_transaction* tx, const char* name,
                                        const tenuto_collection_options* options,
                                        tenuto_collection** collection, char** message);
tenuto_status tenuto_transaction_drop(tenuto_transaction* tx, const tenuto_collection* collection);
/* A point in the transaction. rollback_to discards the writes made since. */
typedef struct tenuto_savepoint {
  size_t writes;
} tenuto_savepoint;
tenuto_savepoint tenuto_transaction_savepoint(const tenuto_transaction* tx);
tenuto_status tenuto_transaction_rollback_to(tenuto_transaction* tx, tenuto_savepoint point);
/* Both end the transaction and release the handle, also when the commit fails. If `durability` is
 * no tenuto_durability, commit does nothing and returns TENUTO_INVALID_ARGUMENT. */
tenuto_status tenuto_transaction_commit(tenuto_transaction* tx, tenuto_durability durability);
void tenuto_transaction_rollback(tenuto_transaction* tx);
/* tenuto::Store::run with at most attempts_max attempts (0: the default). If body returns
 * TENUTO_OK, the transaction commits. The handle belongs to this call: body must not end it. */
typedef tenuto_status (*tenuto_transaction_body)(tenuto_transaction* tx, void* context);
tenuto_status tenuto_store_run(tenuto_store* store, tenuto_transaction_body body, void* context,
                               unsigned attempts_max, tenuto_durability durability);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
