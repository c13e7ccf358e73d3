/* The C API, lower half: pools, allocation to a pointer in the pool, transactions over objects.
 * The upper half, the key-value store, is tenuto/tenuto.h. Each call does what the C++ call of the
 * same name does. Its meaning, cost and statuses are in tenuto/pool.h and tenuto/tx.h; here are
 * only the differences.
 *
 * - A call that can fail returns a tenuto_status. If it takes `char** message`, a failure also
 *   writes a text there: what failed, where, and what to do. Release it by tenuto_free. NULL: no
 *   text.
 * - tenuto_..._options_init sets options to their defaults. Always call it. NULL stands for all
 *   defaults.
 * - Structs of options and of figures grow at their end with later versions. So a program passes
 *   the size that it was compiled with: the calls that end in _sized do, and the inline ones use
 *   them. An option that the program does not know has its default. A figure that the library
 *   does not know is zero. An option that the library does not know must be zero, else
 *   TENUTO_INVALID_ARGUMENT. Other structs never change.
 * - Threads use a handle as its C++ counterpart: all threads a pool or a store, one thread at a
 *   time a transaction, batch, iterator or view.
 * - A NULL handle returns TENUTO_INVALID_ARGUMENT.
 * - Bytes whose pointer is NULL and whose number is not 0, and more than PTRDIFF_MAX of them (-1),
 *   are TENUTO_INVALID_ARGUMENT.
 * - Enumerations are ints. An int that is none of their values returns TENUTO_INVALID_ARGUMENT. One
 *   that a function of the program returns is not TENUTO_OK, and is passed on.
 * - Fork and exit are as for tenuto::Pool (tenuto/pool.h).
 * - Nothing is thrown into C: a process without memory ends. In a program in C++ std::bad_alloc,
 *   and what its own functions throw, passes through a call as through that of C++.
 * - Only in C++: Pool::find_garbage and rescue (the tool has them: gc, check --repair);
 *   Store::time_ms; Transaction::attempt; p<T>, filters, Pool::compact, ConcurrentHashMap; what
 *   PoolInfo says of the journal and of other pools.
 */
#ifndef TENUTO_TENUTO_POOL_H
#define TENUTO_TENUTO_POOL_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* tenuto::Status; the numbers never change. */
enum {
  TENUTO_OK = 0,
  TENUTO_NOT_FOUND = 1,
  TENUTO_INVALID_ARGUMENT = 2,
  TENUTO_EXISTS = 3,
  TENUTO_FULL = 4,
  TENUTO_TOO_LARGE = 5,
  TENUTO_BUSY = 6,
  TENUTO_PERMISSION = 7,
  TENUTO_IO = 8,
  TENUTO_CORRUPT = 9,
  TENUTO_NOT_A_POOL = 10,
  TENUTO_WRONG_VERSION = 11,
  TENUTO_READ_ONLY = 12,
  TENUTO_CONFLICT = 13,
  TENUTO_ABORTED = 14,
  TENUTO_CLOSED = 15,
  TENUTO_EXPIRED = 16,
  /* the caller is a child of the process that opened the pool; nothing was done. A close releases
   * the handle all the same. */
  TENUTO_FORKED = 17,
  TENUTO_IN_DOUBT = 18 /* another pool decides how a transaction ended; open that pool first */
};
typedef int tenuto_status;

const char* tenuto_status_name(tenuto_status status); /* "not_found"; never NULL */

/* Releases messages, names and values that a call has returned. NULL is allowed. */
void tenuto_free(void* memory);

enum {
  TENUTO_MEDIUM_AUTOMATIC = 0,
  TENUTO_MEDIUM_LINE = 1,
  TENUTO_MEDIUM_CACHE = 2,
  TENUTO_MEDIUM_MODEL = 3,
  TENUTO_MEDIUM_JOURNAL = 4
};
typedef int tenuto_medium;
/* tenuto::Consistency. A pool with gc that was killed is read word by word: filters are C++. */
enum {
  TENUTO_CONSISTENCY_AS_IS = 0,
  TENUTO_CONSISTENCY_LOG = 1,
  TENUTO_CONSISTENCY_GC = 2,
  TENUTO_CONSISTENCY_INTERNAL = 3
};
typedef int tenuto_consistency;

enum { TENUTO_SYNC = 0, TENUTO_BUFFERED = 1 };
/* tenuto::InDoubt */
enum { TENUTO_IN_DOUBT_ASK = 0, TENUTO_IN_DOUBT_COMMIT = 1, TENUTO_IN_DOUBT_ABORT = 2 };
typedef int tenuto_in_doubt;
typedef int tenuto_durability;

/* Gets messages for people. The text ends with a zero byte, and is valid during the call. Any
 * thread may call it. */
typedef void (*tenuto_log_fn)(void* context, const char* text);

/* tenuto::PoolOptions with its HeapOptions and JournalOptions. */
typedef struct tenuto_pool_options {
  size_t struct_bytes; /* set by tenuto_pool_options_init */
  uint64_t size;
  uint64_t size_max;
  tenuto_medium medium;
  int read_only;
  int catch_bus_errors;
  int model_delays;
  unsigned stripes;
  unsigned recovery_threads;
  tenuto_durability durability;
  double morph_occupancy;
  int64_t decay_ms;
  int64_t decay_tick_ms;
  uint64_t book_dead_factor;
  uint64_t book_heap_ppm;
  uint64_t book_chunks_least;
  const char* journal_path; /* NULL: the pool's path with ".journal" */
  uint64_t journal_bytes;
  unsigned journal_sync_every_ms;
  unsigned journal_recovery_ms_max;
  int journal_keep;
  tenuto_log_fn log; /* NULL: no messages */
  void* log_context;
  unsigned mode; /* permissions of a new pool file; 0: only the owner */
  int large_pages;
  uint64_t memory_max;
  tenuto_consistency consistency;
  int canaries;
  unsigned numa_nodes; /* tenuto::NumaOptions */
  int numa_two_phase;
  int numa_pin_threads;
  int wear_levelling;
  int64_t wear_rest_ms;
  /* Not NULL: gets the mistakes that the pool finds in the program (tenuto/mistakes.h). */
  tenuto_log_fn on_mistake;
  void* on_mistake_context;
  tenuto_in_doubt in_doubt;
  int protect_metadata;
} tenuto_pool_options;

/* For on_mistake: writes the text to standard error and ends the program (abort). */
void tenuto_stop_at_mistake(void* context, const char* text);

void tenuto_pool_options_init_sized(tenuto_pool_options* options, size_t struct_bytes);
static inline void tenuto_pool_options_init(tenuto_pool_options* options) {
  tenuto_pool_options_init_sized(options, sizeof *options);
}

/* tenuto::PoolInfo. The texts are valid until the next tenuto_pool_get_info with this handle, or
 * until the handle is released. */
typedef struct tenuto_pool_info {
  const char* path;
  const char* layout;
  uint64_t pool_id;
  uint32_t version;
  tenuto_medium medium;
  int power_cut_safe;
  int was_clean;
  int read_only;
  int has_store;
  double recovery_ms;
  uint64_t leaked_frames;
  uint64_t rolled_back;
  tenuto_consistency consistency;
  int canaries;
  double collect_ms;
  uint64_t decisions_waiting;
  int has_protection_keys;
} tenuto_pool_info;

/* tenuto::PoolStats. */
typedef struct tenuto_pool_stats {
  uint64_t file_bytes, disk_bytes, used_bytes, allocated_bytes, objects;
  uint64_t slabs, morphed_slabs, slabs_by_tenth[10];
  uint64_t extents, reclaimed_bytes, retained_bytes;
  uint64_t book_bytes, book_list_bytes, book_live_entries, book_fast_gcs, book_slow_gcs;
  uint64_t zones, lanes;
  uint64_t lines_flushed, fences, reflushes, writes_sequential, writes_random;
  uint64_t journal_bytes, journal_used_bytes, journal_commits, journal_lines;
  uint64_t journal_payload_bytes, journal_written_bytes, journal_device_flushes;
  uint64_t journal_checkpoints, journal_checkpoint_bytes;
  double journal_recovery_ms;
  uint64_t journal_replayed_bytes, journal_replayed_lines;
  double journal_replay_ms;
  uint64_t cached_bytes;
  uint64_t large_bytes;
  uint64_t resident_bytes, dirty_bytes, private_bytes;
  /* tenuto::NumaStats; the accesses are sums of all kinds. */
  uint64_t numa_nodes, numa_local, numa_remote, numa_frames_remote;
  uint64_t numa_frees_recorded, numa_frees_waiting, numa_batches_taken, numa_batches_pushed;
  uint64_t wear_frames, wear_lines, wear_max, wear_bits_lines, wear_bits_max;
  uint64_t wear_rested, wear_forced, wear_tables;
  uint64_t protected_bytes;
} tenuto_pool_stats;

/* Pointers in the pool, in the root object or in allocated blocks. Zero is null. Never copy them by
 * memcpy. */
typedef struct tenuto_ptr {
  uint64_t raw;
} tenuto_ptr;
typedef struct tenuto_vptr { /* a versioned word: only the pool changes it */
  uint64_t raw;
} tenuto_vptr;

void* tenuto_ptr_get(const tenuto_ptr* at);
void tenuto_ptr_set(tenuto_ptr* at,
                    const void* target); /* a plain store: flush it, or add it first */
void* tenuto_vptr_get(const tenuto_vptr* at);

/* tenuto::AllocOptions. */
typedef struct tenuto_alloc_options {
  size_t struct_bytes; /* set by tenuto_alloc_options_init */
  uint64_t align;
  int zero;
  uint64_t type;
} tenuto_alloc_options;

void tenuto_alloc_options_init_sized(tenuto_alloc_options* options, size_t struct_bytes);
static inline void tenuto_alloc_options_init(tenuto_alloc_options* options) {
  tenuto_alloc_options_init_sized(options, sizeof *options);
}

typedef struct tenuto_pool tenuto_pool;

tenuto_status tenuto_pool_create(const char* path, const tenuto_pool_options* options,
                                 tenuto_pool** pool, char** message);
tenuto_status tenuto_pool_open(const char* path, const tenuto_pool_options* options,
                               tenuto_pool** pool, char** message);
/* tenuto::Pool::open_all. pools: `count` handles, NULL if the call fails. */
tenuto_status tenuto_pool_open_all(const char* const* paths, size_t count,
                                   const tenuto_pool_options* options, tenuto_pool** pools,
                                   char** message);
/* Closes the pool. Releases the handle unless it returns TENUTO_BUSY. TENUTO_INVALID_ARGUMENT: it
 * is the pool of a store, which tenuto_store_close closes. */
tenuto_status tenuto_pool_close(tenuto_pool* pool);

tenuto_status tenuto_malloc_to(tenuto_pool* pool, uint64_t bytes, tenuto_ptr* dest,
                               const tenuto_alloc_options* options);
tenuto_status tenuto_free_from(tenuto_pool* pool, tenuto_ptr* dest);
tenuto_status tenuto_realloc_to(tenuto_pool* pool, uint64_t bytes, tenuto_ptr* dest,
                                const tenuto_alloc_options* options);
tenuto_status tenuto_vmalloc_to(tenuto_pool* pool, uint64_t bytes, tenuto_vptr* dest,
                                const tenuto_alloc_options* options);
tenuto_status tenuto_vfree_from(tenuto_pool* pool, tenuto_vptr* dest);
tenuto_status tenuto_vswap(tenuto_pool* pool, tenuto_vptr* a, tenuto_vptr* b);

/* Batches, with destinations anywhere in the pool. bytes: one size for each. */
tenuto_status tenuto_malloc_to_many(tenuto_pool* pool, const uint64_t* bytes,
                                    tenuto_ptr* const* dests, size_t count,
                                    const tenuto_alloc_options* options);
tenuto_status tenuto_free_from_many(tenuto_pool* pool, tenuto_ptr* const* dests, size_t count);
tenuto_status tenuto_vmalloc_to_many(tenuto_pool* pool, const uint64_t* bytes,
                                     tenuto_vptr* const* dests, size_t count,
                                     const tenuto_alloc_options* options);
tenuto_status tenuto_vfree_from_many(tenuto_pool* pool, tenuto_vptr* const* dests, size_t count);

/* tenuto::Reserved: a block that only this process knows until it is published or cancelled. */
typedef struct tenuto_reserved {
  uint64_t offset;
  void* data;
  uint64_t bytes;
} tenuto_reserved;

tenuto_status tenuto_reserve(tenuto_pool* pool, uint64_t bytes, const tenuto_alloc_options* options,
                             tenuto_reserved* block);
tenuto_status tenuto_publish(tenuto_pool* pool, const tenuto_reserved* block, tenuto_ptr* dest);
tenuto_status tenuto_vpublish(tenuto_pool* pool, const tenuto_reserved* block, tenuto_vptr* dest);
tenuto_status tenuto_cancel(tenuto_pool* pool, const tenuto_reserved* block);

/* tenuto::Pool::describe: what is at an address, in words. tenuto_free releases them. NULL: the
 * address is not in the pool, or there is no memory. It also says why a free was refused. */
char* tenuto_describe(const tenuto_pool* pool, const void* p);
uint64_t tenuto_usable_size(const tenuto_pool* pool,
                            const void* block);                      /* 0: no block starts there */
uint64_t tenuto_type_of(const tenuto_pool* pool, const void* block); /* 0: none */
/* *block: NULL at the end of the walk, or after a failure. */
tenuto_status tenuto_first(const tenuto_pool* pool, uint64_t type, void** block);
tenuto_status tenuto_next(const tenuto_pool* pool, const void* behind, uint64_t type, void** block);

tenuto_status tenuto_root(tenuto_pool* pool, const char* layout, uint64_t bytes, void** root,
                          char** message);

int tenuto_pool_contains(const tenuto_pool* pool, const void* p);
uint64_t tenuto_offset_of(const tenuto_pool* pool, const void* p); /* 0: not in the pool */
void* tenuto_at(const tenuto_pool* pool, uint64_t offset);         /* NULL: offset 0, or beyond */

tenuto_status tenuto_pool_sync(tenuto_pool* pool);
tenuto_status tenuto_pool_health(const tenuto_pool* pool, char** message);
tenuto_status tenuto_pool_trim(tenuto_pool* pool);
/* That pool is lost. `tenuto settle` shows the ids of pools that may still ask this one. */
tenuto_status tenuto_pool_forget_pool(tenuto_pool* pool, uint64_t pool_id);
tenuto_status tenuto_pool_validate(const tenuto_pool* pool, char** message);
tenuto_status tenuto_pool_get_info_sized(tenuto_pool* pool, tenuto_pool_info* info,
                                         size_t struct_bytes);
static inline tenuto_status tenuto_pool_get_info(tenuto_pool* pool, tenuto_pool_info* info) {
  return tenuto_pool_get_info_sized(pool, info, sizeof *info);
}
/* used_bytes of the stats alone; 0 of NULL. For who asks often: the stats have the kernel pass over
 * page tables. */
uint64_t tenuto_pool_used_bytes(const tenuto_pool* pool);
tenuto_status tenuto_pool_get_stats_sized(const tenuto_pool* pool, tenuto_pool_stats* stats,
                                          size_t struct_bytes);
static inline tenuto_status tenuto_pool_get_stats(const tenuto_pool* pool,
                                                  tenuto_pool_stats* stats) {
  return tenuto_pool_get_stats_sized(pool, stats, sizeof *stats);
}

/* Flush and fence (tenuto/persist.h), for stores to objects in a pool outside transactions. */
void tenuto_flush(const void* p, size_t bytes);
void tenuto_fence(const char* first, const char* then); /* what is durable before what happens */

/* Transactions over objects: tenuto::Transaction. One thread begins, uses and ends one. Inside
 * another transaction of the same pool it joins that one. */
typedef struct tenuto_tx tenuto_tx;
typedef void (*tenuto_tx_fn)(void* context);

/* tenuto::Pool::grow_root. The hook gets the stored root and the new one, which is zero-filled. It
 * must neither commit nor abort the transaction. Copy pointers by tenuto_ptr_get and
 * tenuto_ptr_set. Without a hook (NULL) the bytes are copied, which is right only for a root
 * without pointers. */
typedef struct tenuto_old_root {
  size_t struct_bytes; /* set by the library */
  const char* layout;
  const void* data;
  uint64_t bytes;
} tenuto_old_root;
typedef tenuto_status (*tenuto_migrate_fn)(void* context, const tenuto_old_root* old, void* fresh,
                                           tenuto_tx* tx);
tenuto_status tenuto_grow_root(tenuto_pool* pool, const char* layout, uint64_t bytes,
                               tenuto_migrate_fn migrate, void* context, void** root,
                               char** message);

tenuto_status tenuto_tx_begin(tenuto_pool* pool, tenuto_tx** tx);
/* A part of the transaction `first` in another pool. Commit the parts before `first`. */
tenuto_status tenuto_tx_begin_with(tenuto_pool* pool, tenuto_tx* first, tenuto_tx** tx);
tenuto_status tenuto_tx_add(tenuto_tx* tx, const void* p, size_t bytes);
tenuto_status tenuto_tx_add_later(tenuto_tx* tx, const void* p, size_t bytes);
tenuto_status tenuto_tx_ready(tenuto_tx* tx);
tenuto_status tenuto_tx_overwrite(tenuto_tx* tx, const void* p, size_t bytes);
/* An assignment that waits until the commit, so that one fence is enough for many. _get reads what
 * waits; the object has it after tenuto_tx_add, tenuto_tx_ready or the commit. */
tenuto_status tenuto_tx_set(tenuto_tx* tx, void* at, const void* value, size_t bytes);
tenuto_status tenuto_tx_get(const tenuto_tx* tx, const void* at, void* value, size_t bytes);
tenuto_status tenuto_tx_alloc(tenuto_tx* tx, uint64_t bytes, const tenuto_alloc_options* options,
                              void** block);
tenuto_status tenuto_tx_free(tenuto_tx* tx, const void* block);
/* Locks the mutex until the outermost transaction ends. TENUTO_INVALID_ARGUMENT also:
 * pthread_mutex_lock failed. */
tenuto_status tenuto_tx_lock(tenuto_tx* tx, pthread_mutex_t* mutex);
tenuto_status tenuto_tx_on_commit(tenuto_tx* tx, tenuto_tx_fn fn, void* context);
tenuto_status tenuto_tx_on_abort(tenuto_tx* tx, tenuto_tx_fn fn, void* context);
/* committed: 0 or 1 */
typedef void (*tenuto_tx_end_fn)(void* context, int committed);
tenuto_status tenuto_tx_on_end(tenuto_tx* tx, tenuto_tx_end_fn fn, void* context);
tenuto_status tenuto_tx_savepoint(tenuto_tx* tx, uint64_t* point);
tenuto_status tenuto_tx_rollback_to(tenuto_tx* tx, uint64_t point);
/* Both end the transaction and release the handle, also when the commit fails. If `durability` is
 * no tenuto_durability, commit does nothing and returns TENUTO_INVALID_ARGUMENT. */
tenuto_status tenuto_tx_commit(tenuto_tx* tx, tenuto_durability durability);
void tenuto_tx_abort(tenuto_tx* tx);
/* Runs body in a transaction. If body returns TENUTO_OK, it commits. Any other status rolls back
 * and is returned. The handle belongs to this call: body must neither commit nor abort it. */
typedef tenuto_status (*tenuto_tx_body)(tenuto_tx* tx, void* context);
tenuto_status tenuto_run(tenuto_pool* pool, tenuto_tx_body body, void* context);

/* tenuto::Actions: blocks, values and frees that are published together. _publish leaves an empty
 * list, also when it fails. _delete gives back what was not published; NULL is allowed. Call it
 * before the handle of the pool, or of the store that has the pool, is released by a close. */
typedef struct tenuto_actions tenuto_actions;
tenuto_status tenuto_actions_new(tenuto_pool* pool, tenuto_actions** actions);
tenuto_status tenuto_actions_reserve(tenuto_actions* actions, uint64_t bytes,
                                     const tenuto_alloc_options* options, void** block);
tenuto_status tenuto_actions_set(tenuto_actions* actions, void* dest, const void* value,
                                 size_t bytes);
tenuto_status tenuto_actions_set_ptr(tenuto_actions* actions, tenuto_ptr* dest, void* target);
tenuto_status tenuto_actions_free(tenuto_actions* actions, const void* block);
tenuto_status tenuto_actions_publish(tenuto_actions* actions);
void tenuto_actions_delete(tenuto_actions* actions);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
