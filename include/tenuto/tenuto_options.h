/* The C API, upper half: options and figures of stores and collections. tenuto/tenuto.h includes
 * it, and has the calls. How these structs grow: tenuto/tenuto_pool.h.
 */
#ifndef TENUTO_TENUTO_OPTIONS_H
#define TENUTO_TENUTO_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "tenuto/tenuto_pool.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tenuto_store tenuto_store;
typedef struct tenuto_collection tenuto_collection;

/* Bytes in place. Do not release them. They are valid as long as the object that they came from. */
typedef struct tenuto_slice {
  const void* data;
  size_t bytes;
} tenuto_slice;

/* tenuto::KeyOrder. A default collection has one of the first two. */
enum {
  TENUTO_KEYS_BYTES = 1,
  TENUTO_KEYS_U64 = 2,
  TENUTO_KEYS_REVERSE = 3,
  TENUTO_KEYS_REVERSE_U64 = 4,
  TENUTO_KEYS_REGISTERED = 5
};
typedef int tenuto_key_order;

/* The result of a codec's function. It writes at most `room` bytes at `data`, and their number to
 * `bytes`. If they do not fit, it writes the number that it needs to `bytes`, and is called once
 * more. More than PTRDIFF_MAX (-1) counts as "no key". */
typedef struct tenuto_codec_out {
  void* data;
  size_t room;
  size_t bytes;
} tenuto_codec_out;

/* tenuto::KeyCodec. The functions return 0, or another number if `in` is no key. They get
 * `context`. All threads call them at once. The name is copied. */
typedef int (*tenuto_codec_fn)(void* context, tenuto_slice in, tenuto_codec_out* out);
typedef struct tenuto_key_codec {
  const char* name;
  tenuto_codec_fn encode;
  tenuto_codec_fn decode;
  void* context;
} tenuto_key_codec;

/* tenuto::StoreOptions. */
typedef struct tenuto_store_options {
  size_t struct_bytes;             /* set by tenuto_store_options_init */
  const tenuto_pool_options* pool; /* NULL: the defaults */
  int create_if_missing;
  int error_if_exists;
  tenuto_key_order order;
  int check_order;
  int verify_reads;
  uint64_t snapshot_bytes_max;
  uint64_t snapshot_age_ms_max;
  const tenuto_key_codec* codecs;
  size_t codec_count;
  uint64_t reclaim_every_ms;
  uint64_t reclaim_at_once;
  uint64_t (*clock_ms)(void* context); /* NULL: the system's clock */
  void* clock_context;
  uint64_t clock_jump_ms_max;
  uint64_t clock_confirm_ms;
  uint64_t lookup_cache_bytes;
} tenuto_store_options;

void tenuto_store_options_init_sized(tenuto_store_options* options, size_t struct_bytes);
static inline void tenuto_store_options_init(tenuto_store_options* options) {
  tenuto_store_options_init_sized(options, sizeof *options);
}

/* tenuto::StoreStats without the figures of the pool, which tenuto_pool_get_stats has. */
typedef struct tenuto_store_stats {
  uint64_t records, record_bytes;
  uint64_t leaves, inner_nodes, height, index_dram_bytes;
  double rebuild_ms;
  uint64_t snapshots, snapshot_oldest_age_ms, snapshot_versions, snapshot_bytes, snapshots_expired;
  uint64_t retired_items, retired_bytes;
  uint64_t lookup_cache_bytes;
  uint64_t shadow_leaves;
} tenuto_store_stats;

tenuto_status tenuto_store_get_stats_sized(const tenuto_store* store, tenuto_store_stats* stats,
                                           size_t struct_bytes);
static inline tenuto_status tenuto_store_get_stats(const tenuto_store* store,
                                                   tenuto_store_stats* stats) {
  return tenuto_store_get_stats_sized(store, stats, sizeof *stats);
}

/* tenuto::CompactOptions (without `stop`), CompactStats and Store::compact. `stats` may be NULL. */
typedef struct tenuto_compact_options {
  size_t struct_bytes; /* set by tenuto_compact_options_init */
  uint64_t moves_max;
  double occupancy;
  int in_key_order;
} tenuto_compact_options;

void tenuto_compact_options_init_sized(tenuto_compact_options* options, size_t struct_bytes);
static inline void tenuto_compact_options_init(tenuto_compact_options* options) {
  tenuto_compact_options_init_sized(options, sizeof *options);
}

typedef struct tenuto_compact_stats {
  uint64_t bytes_before, bytes_after;
  uint64_t records_moved, leaves_moved, leaves_merged, slabs_emptied;
  int complete;
} tenuto_compact_stats;

tenuto_status tenuto_compact_sized(tenuto_store* store, const tenuto_compact_options* options,
                                   tenuto_compact_stats* stats, size_t struct_bytes,
                                   char** message);
static inline tenuto_status tenuto_compact(tenuto_store* store,
                                           const tenuto_compact_options* options,
                                           tenuto_compact_stats* stats, char** message) {
  return tenuto_compact_sized(store, options, stats, sizeof *stats, message);
}

/* tenuto::CollectionOptions. */
typedef struct tenuto_collection_options {
  size_t struct_bytes; /* set by tenuto_collection_options_init */
  int create_if_missing;
  int error_if_exists;
  tenuto_key_order order;
  int check_order;
  const char* codec; /* with TENUTO_KEYS_REGISTERED; else NULL */
  int duplicates;
  int expires;
} tenuto_collection_options;

void tenuto_collection_options_init_sized(tenuto_collection_options* options, size_t struct_bytes);
static inline void tenuto_collection_options_init(tenuto_collection_options* options) {
  tenuto_collection_options_init_sized(options, sizeof *options);
}

/* tenuto::CollectionStats. */
typedef struct tenuto_collection_stats {
  uint64_t records, record_bytes;
  uint64_t leaves, inner_nodes, height, index_dram_bytes;
  uint64_t lookup_cache_bytes;
  uint64_t shadow_leaves;
} tenuto_collection_stats;

tenuto_status tenuto_collection_get_stats_sized(const tenuto_collection* collection,
                                                tenuto_collection_stats* stats,
                                                size_t struct_bytes);
static inline tenuto_status tenuto_collection_get_stats(const tenuto_collection* collection,
                                                        tenuto_collection_stats* stats) {
  return tenuto_collection_get_stats_sized(collection, stats, sizeof *stats);
}

/* tenuto::IteratorOptions. data NULL: no such bound. The bytes are copied. */
typedef struct tenuto_iterator_options {
  size_t struct_bytes; /* set by tenuto_iterator_options_init */
  tenuto_slice prefix;
  tenuto_slice lower; /* inclusive */
  tenuto_slice upper; /* exclusive */
} tenuto_iterator_options;

void tenuto_iterator_options_init_sized(tenuto_iterator_options* options, size_t struct_bytes);
static inline void tenuto_iterator_options_init(tenuto_iterator_options* options) {
  tenuto_iterator_options_init_sized(options, sizeof *options);
}

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
