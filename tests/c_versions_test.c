/* A program and a library of different versions: structs that are shorter or longer than those that
 * the library knows. The shorter ones are as an older header had them, with its inline calls. */
#include "support/c_check.h"
#include "tenuto/tenuto.h"

#define GUARD 0x5ee5

/* --- an older header: fewer members at the end ------------------------------------------------ */

typedef struct old_pool_options {
  size_t struct_bytes;
  uint64_t size;
  uint64_t size_max;
  tenuto_medium medium;
  int read_only;
} old_pool_options;

typedef struct old_store_options {
  size_t struct_bytes;
  const tenuto_pool_options* pool;
  int create_if_missing;
  int error_if_exists;
} old_store_options;

typedef struct old_collection_options {
  size_t struct_bytes;
  int create_if_missing;
  int error_if_exists;
} old_collection_options;

typedef struct old_alloc_options {
  size_t struct_bytes;
  uint64_t align;
} old_alloc_options;

typedef struct old_iterator_options {
  size_t struct_bytes;
  tenuto_slice prefix;
} old_iterator_options;

typedef struct old_compact_options {
  size_t struct_bytes;
  uint64_t moves_max;
} old_compact_options;

typedef struct old_pool_stats {
  uint64_t file_bytes, disk_bytes;
} old_pool_stats;

typedef struct old_compact_stats {
  uint64_t bytes_before;
} old_compact_stats;

/* Each with a word behind it, which the library must not touch. */
struct old {
  old_pool_options pool;
  uint64_t guard0;
  old_store_options store;
  uint64_t guard1;
  old_collection_options collection;
  uint64_t guard2;
  old_alloc_options alloc;
  uint64_t guard3;
  old_iterator_options iterator;
  uint64_t guard4;
  old_compact_options compact;
  uint64_t guard5;
  old_pool_stats stats;
  uint64_t guard6;
  old_compact_stats compact_stats;
  uint64_t guard7;
};

static void guard(struct old* o) {
  o->guard0 = o->guard1 = o->guard2 = o->guard3 = GUARD;
  o->guard4 = o->guard5 = o->guard6 = o->guard7 = GUARD;
}

static int guarded(const struct old* o) {
  return o->guard0 == GUARD && o->guard1 == GUARD && o->guard2 == GUARD && o->guard3 == GUARD &&
         o->guard4 == GUARD && o->guard5 == GUARD && o->guard6 == GUARD && o->guard7 == GUARD;
}

static void an_older_program(const char* path) {
  struct old o;
  tenuto_store* store = NULL;
  tenuto_collection* all = NULL;
  tenuto_collection* some = NULL;
  tenuto_iterator* it = NULL;
  tenuto_ptr* root = NULL;
  memset(&o, 0xab, sizeof o);
  guard(&o);
  tenuto_pool_options_init_sized((tenuto_pool_options*)&o.pool, sizeof o.pool);
  tenuto_store_options_init_sized((tenuto_store_options*)&o.store, sizeof o.store);
  tenuto_collection_options_init_sized((tenuto_collection_options*)&o.collection,
                                       sizeof o.collection);
  tenuto_alloc_options_init_sized((tenuto_alloc_options*)&o.alloc, sizeof o.alloc);
  tenuto_iterator_options_init_sized((tenuto_iterator_options*)&o.iterator, sizeof o.iterator);
  tenuto_compact_options_init_sized((tenuto_compact_options*)&o.compact, sizeof o.compact);
  CHECK(guarded(&o));
  CHECK(o.pool.struct_bytes == sizeof o.pool && o.pool.size == 8u << 20 && !o.pool.read_only);
  CHECK(o.store.pool == NULL && o.store.create_if_missing && !o.store.error_if_exists);
  CHECK(o.collection.create_if_missing && o.alloc.align == 16 && o.compact.moves_max == 0);

  o.pool.size = 16u << 20;
  o.pool.medium = TENUTO_MEDIUM_MODEL;
  o.store.pool = (const tenuto_pool_options*)&o.pool;
  CHECK_IS(tenuto_store_open(path, (const tenuto_store_options*)&o.store, &store, NULL), TENUTO_OK);
  all = tenuto_default_collection(store);
  CHECK_IS(tenuto_put(all, "ab", 2, "1", 1, TENUTO_SYNC), TENUTO_OK);
  CHECK_IS(tenuto_put(all, "b", 1, "2", 1, TENUTO_SYNC), TENUTO_OK);
  CHECK_IS(tenuto_collection_open(store, "some", (const tenuto_collection_options*)&o.collection,
                                  &some, NULL),
           TENUTO_OK);
  CHECK(tenuto_collection_order(some) == TENUTO_KEYS_BYTES && !tenuto_collection_expires(some));
  tenuto_collection_release(some);
  o.iterator.prefix.data = "b";
  o.iterator.prefix.bytes = 1;
  CHECK_IS(tenuto_iterator_open(all, (const tenuto_iterator_options*)&o.iterator, &it), TENUTO_OK);
  tenuto_iterator_seek_first(it);
  CHECK(tenuto_iterator_valid(it) && tenuto_iterator_key(it).bytes == 1);
  tenuto_iterator_release(it);
  CHECK_IS(tenuto_root(tenuto_store_pool(store), "root", 64, (void**)&root, NULL), TENUTO_OK);
  o.alloc.align = 4096;
  CHECK_IS(
      tenuto_malloc_to(tenuto_store_pool(store), 100, root, (const tenuto_alloc_options*)&o.alloc),
      TENUTO_OK);
  CHECK(tenuto_offset_of(tenuto_store_pool(store), tenuto_ptr_get(root)) % 4096 == 0);
  CHECK_IS(tenuto_pool_get_stats_sized(tenuto_store_pool(store), (tenuto_pool_stats*)&o.stats,
                                       sizeof o.stats),
           TENUTO_OK);
  CHECK(o.stats.file_bytes == 16u << 20 && o.stats.disk_bytes > 0);
  CHECK_IS(
      tenuto_compact_sized(store, (const tenuto_compact_options*)&o.compact,
                           (tenuto_compact_stats*)&o.compact_stats, sizeof o.compact_stats, NULL),
      TENUTO_OK);
  CHECK(o.compact_stats.bytes_before > 0 && guarded(&o));
  CHECK_IS(tenuto_store_close(store), TENUTO_OK);
  remove(path);
}

/* --- a newer header: more members at the end -------------------------------------------------- */

typedef struct new_pool_options {
  tenuto_pool_options known;
  uint64_t added;
  uint64_t also;
} new_pool_options;

typedef struct new_pool_stats {
  tenuto_pool_stats known;
  uint64_t added;
} new_pool_stats;

static void a_newer_program(const char* path) {
  new_pool_options options;
  new_pool_stats stats;
  tenuto_pool* pool = NULL;
  char* message = NULL;
  memset(&options, 0xab, sizeof options);
  tenuto_pool_options_init_sized(&options.known, sizeof options);
  CHECK(options.known.struct_bytes == sizeof options);
  CHECK(options.known.stripes > 0 && options.added == 0 && options.also == 0);
  options.known.medium = TENUTO_MEDIUM_MODEL;
  options.also = 1;
  CHECK_IS(tenuto_pool_create(path, &options.known, &pool, &message), TENUTO_INVALID_ARGUMENT);
  CHECK(strstr(message, "does not know") != NULL && strstr(message, "tenuto_pool_options") != NULL);
  tenuto_free(message);
  options.also = 0;
  CHECK_IS(tenuto_pool_create(path, &options.known, &pool, NULL), TENUTO_OK);
  memset(&stats, 0xab, sizeof stats);
  CHECK_IS(tenuto_pool_get_stats_sized(pool, &stats.known, sizeof stats), TENUTO_OK);
  CHECK(stats.known.file_bytes == 8u << 20 && stats.added == 0);
  CHECK_IS(tenuto_pool_close(pool), TENUTO_OK);
  remove(path);
}

/* --- sizes that no version has ---------------------------------------------------------------- */

static void impossible_sizes(const char* path) {
  const size_t sizes[] = {0, 7, 8, 20, 4097, 1u << 20, (size_t)-1};
  tenuto_pool_options options;
  tenuto_pool_stats stats;
  tenuto_pool_info info;
  tenuto_pool* pool = NULL;
  size_t i;
  for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    char* message = NULL;
    tenuto_pool_options_init(&options);
    options.struct_bytes = sizes[i];
    CHECK_IS(tenuto_pool_create(path, &options, &pool, &message), TENUTO_INVALID_ARGUMENT);
    CHECK(strstr(message, "call tenuto_pool_options_init first") != NULL);
    tenuto_free(message);
  }
  tenuto_pool_options_init_sized(NULL, sizeof options);
  options.size = 77;
  tenuto_pool_options_init_sized(&options, 4); /* does nothing */
  CHECK(options.size == 77);
  tenuto_pool_options_init(&options);
  options.medium = TENUTO_MEDIUM_MODEL;
  CHECK_IS(tenuto_pool_create(path, &options, &pool, NULL), TENUTO_OK);
  CHECK_IS(tenuto_pool_get_stats_sized(pool, &stats, 0), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_get_stats_sized(pool, &stats, 12), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_get_stats(pool, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_get_info_sized(pool, &info, 3), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_close(pool), TENUTO_OK);
  remove(path);
}

int main(void) {
  char path[256];
  c_check_path(path, sizeof path, "c_versions_test");
  an_older_program(path);
  a_newer_program(path);
  impossible_sizes(path);
  puts("c_versions_test: ok");
  return 0;
}
