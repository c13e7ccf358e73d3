/* The C API of the containers. Each is the C++ container of the same name with elements of bytes:
 *
 *   tenuto_string     tenuto::String (tenuto/string.h)
 *   tenuto_vector     tenuto::Vector<String> (tenuto/vector.h)
 *   tenuto_queue      tenuto::Queue<String> (tenuto/queue.h)
 *   tenuto_map        tenuto::OrderedMap<String, String> (tenuto/ordered_map.h), keys in the order
 *                     of their bytes
 *   tenuto_hash_map   tenuto::HashMap<String, String> (tenuto/hash_map.h)
 *
 * So meaning, cost and statuses are in those headers; here are only the differences. A program in
 * C++ may use the same object by its C++ type.
 *
 * - A container is a member of a struct in the pool, for example of the root. Zero bytes are an
 *   empty one. It is neither copied nor moved, and never in memory outside a pool: a change of one
 *   that is returns TENUTO_INVALID_ARGUMENT.
 * - Every change needs an open transaction on the container's pool, and is a part of it. If a call
 *   fails halfway, the transaction is rolled back; its later calls return TENUTO_ABORTED, or
 *   TENUTO_FULL when the log had no room.
 * - What a read returns points into the pool. It is valid until the container changes.
 * - _validate: all pointers, sizes and orders, for a damaged medium (tenuto/element.h). TENUTO_OK,
 *   or TENUTO_CORRUPT with a message.
 * - _clear frees all that the container owns. Call it before the object is freed that contains it.
 * - Threads, messages and NULL are as in tenuto/tenuto_pool.h. bytes may be 0; then the pointer may
 *   be NULL.
 */
#ifndef TENUTO_TENUTO_CONTAINERS_H
#define TENUTO_TENUTO_CONTAINERS_H

#include "tenuto/tenuto_pool.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tenuto_string {
  uint64_t opaque[3];
} tenuto_string;
typedef struct tenuto_vector {
  uint64_t opaque[3];
} tenuto_vector;
typedef struct tenuto_queue {
  uint64_t opaque[5];
} tenuto_queue;
typedef struct tenuto_map {
  uint64_t opaque[3];
} tenuto_map;
typedef struct tenuto_hash_map {
  uint64_t opaque[3];
} tenuto_hash_map;

/* Bytes in the pool. A zero byte follows them. */
typedef struct tenuto_bytes {
  const char* data;
  size_t bytes;
} tenuto_bytes;

tenuto_status tenuto_string_assign(tenuto_tx* tx, tenuto_string* string, const void* data,
                                   size_t bytes);
tenuto_status tenuto_string_append(tenuto_tx* tx, tenuto_string* string, const void* data,
                                   size_t bytes);
tenuto_bytes tenuto_string_view(const tenuto_string* string); /* of NULL: no bytes */
tenuto_status tenuto_string_clear(tenuto_tx* tx, tenuto_string* string);
tenuto_status tenuto_string_validate(const tenuto_pool* pool, const tenuto_string* string,
                                     char** message);

/* TENUTO_NOT_FOUND: there is no element `at`. _insert: `at` may be the size. */
size_t tenuto_vector_size(const tenuto_vector* vector);
tenuto_status tenuto_vector_at(const tenuto_vector* vector, size_t at, tenuto_bytes* element);
tenuto_status tenuto_vector_set(tenuto_tx* tx, tenuto_vector* vector, size_t at, const void* data,
                                size_t bytes);
tenuto_status tenuto_vector_push(tenuto_tx* tx, tenuto_vector* vector, const void* data,
                                 size_t bytes);
tenuto_status tenuto_vector_insert(tenuto_tx* tx, tenuto_vector* vector, size_t at,
                                   const void* data, size_t bytes);
tenuto_status tenuto_vector_erase(tenuto_tx* tx, tenuto_vector* vector, size_t at);
tenuto_status tenuto_vector_clear(tenuto_tx* tx, tenuto_vector* vector);
tenuto_status tenuto_vector_validate(const tenuto_pool* pool, const tenuto_vector* vector,
                                     char** message);

/* _front and _pop: TENUTO_NOT_FOUND if the queue is empty. */
size_t tenuto_queue_size(const tenuto_queue* queue);
tenuto_status tenuto_queue_front(const tenuto_queue* queue, tenuto_bytes* element);
tenuto_status tenuto_queue_push(tenuto_tx* tx, tenuto_queue* queue, const void* data, size_t bytes);
tenuto_status tenuto_queue_pop(tenuto_tx* tx, tenuto_queue* queue);
tenuto_status tenuto_queue_clear(tenuto_tx* tx, tenuto_queue* queue);
tenuto_status tenuto_queue_validate(const tenuto_pool* pool, const tenuto_queue* queue,
                                    char** message);

typedef struct tenuto_entry {
  tenuto_bytes key, value;
} tenuto_entry;

/* _put inserts, or replaces the value. _insert: TENUTO_EXISTS if the key is there. */
uint64_t tenuto_map_size(const tenuto_map* map);
tenuto_status tenuto_map_get(const tenuto_map* map, const void* key, size_t key_bytes,
                             tenuto_bytes* value);
tenuto_status tenuto_map_insert(tenuto_tx* tx, tenuto_map* map, const void* key, size_t key_bytes,
                                const void* value, size_t value_bytes);
tenuto_status tenuto_map_put(tenuto_tx* tx, tenuto_map* map, const void* key, size_t key_bytes,
                             const void* value, size_t value_bytes);
tenuto_status tenuto_map_erase(tenuto_tx* tx, tenuto_map* map, const void* key, size_t key_bytes);
tenuto_status tenuto_map_clear(tenuto_tx* tx, tenuto_map* map);
tenuto_status tenuto_map_validate(const tenuto_pool* pool, const tenuto_map* map, char** message);
/* The first entry whose key is not below `key`, that is above it, and the last one whose key is
 * below it. A NULL key stands before all keys; with _below, behind all. TENUTO_NOT_FOUND: there is
 * none. A walk begins with the _lower_bound of NULL and goes on with the _upper_bound of each key:
 * a search a step. */
tenuto_status tenuto_map_lower_bound(const tenuto_map* map, const void* key, size_t key_bytes,
                                     tenuto_entry* entry);
tenuto_status tenuto_map_upper_bound(const tenuto_map* map, const void* key, size_t key_bytes,
                                     tenuto_entry* entry);
tenuto_status tenuto_map_below(const tenuto_map* map, const void* key, size_t key_bytes,
                               tenuto_entry* entry);

uint64_t tenuto_hash_map_size(const tenuto_hash_map* map);
tenuto_status tenuto_hash_map_get(const tenuto_hash_map* map, const void* key, size_t key_bytes,
                                  tenuto_bytes* value);
tenuto_status tenuto_hash_map_insert(tenuto_tx* tx, tenuto_hash_map* map, const void* key,
                                     size_t key_bytes, const void* value, size_t value_bytes);
tenuto_status tenuto_hash_map_put(tenuto_tx* tx, tenuto_hash_map* map, const void* key,
                                  size_t key_bytes, const void* value, size_t value_bytes);
tenuto_status tenuto_hash_map_erase(tenuto_tx* tx, tenuto_hash_map* map, const void* key,
                                    size_t key_bytes);
tenuto_status tenuto_hash_map_clear(tenuto_tx* tx, tenuto_hash_map* map);
tenuto_status tenuto_hash_map_validate(const tenuto_pool* pool, const tenuto_hash_map* map,
                                       char** message);
/* Calls `each` for every entry, in no order, until it does not return TENUTO_OK. Returns what it
 * returned last. It must not change the map. */
typedef tenuto_status (*tenuto_entry_fn)(void* context, const tenuto_entry* entry);
tenuto_status tenuto_hash_map_each(const tenuto_hash_map* map, tenuto_entry_fn each, void* context);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
