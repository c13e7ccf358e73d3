/* The C API of a compaction. kv_compact_test tests what it does. */
#include <stdio.h>
#include <string.h>

#include "support/c_check.h"
#include "tenuto/tenuto.h"

static void compaction(tenuto_store* store, tenuto_collection* all) {
  tenuto_compact_options options;
  tenuto_compact_stats stats;
  char* message = NULL;
  char key[16];
  char value[1000];
  int i;
  memset(value, 'v', sizeof value);
  for (i = 0; i < 500; ++i) {
    snprintf(key, sizeof key, "much%04d", i);
    CHECK_IS(tenuto_put(all, key, 8, value, sizeof value, TENUTO_SYNC), TENUTO_OK);
  }
  for (i = 0; i < 500; ++i) {
    snprintf(key, sizeof key, "much%04d", i);
    if (i % 10 != 0) CHECK_IS(tenuto_erase(all, key, 8, TENUTO_SYNC), TENUTO_OK);
  }
  memset(&stats, 0, sizeof stats);
  CHECK_IS(tenuto_compact(store, NULL, &stats, NULL), TENUTO_OK);
  CHECK(stats.leaves_merged > 5 && stats.records_moved > 10 && stats.slabs_emptied > 3);
  CHECK(stats.bytes_after < stats.bytes_before && stats.complete == 1);
  CHECK_IS(tenuto_contains(all, "much0490", 8), TENUTO_OK);
  tenuto_compact_options_init(&options);
  options.moves_max = 1;
  CHECK_IS(tenuto_compact(store, &options, NULL, NULL), TENUTO_OK);
  options.in_key_order = 1;
  CHECK_IS(tenuto_compact(store, &options, NULL, NULL), TENUTO_INVALID_ARGUMENT);
  options.moves_max = 0;
  CHECK_IS(tenuto_compact(store, &options, &stats, NULL), TENUTO_OK);
  CHECK(stats.records_moved >= 50 && stats.complete == 1);
  options.occupancy = 2;
  CHECK_IS(tenuto_compact(store, &options, &stats, &message), TENUTO_INVALID_ARGUMENT);
  CHECK(strstr(message, "2.0") != NULL);
  tenuto_free(message);
  options.struct_bytes = 1;
  CHECK_IS(tenuto_compact(store, &options, &stats, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_compact(NULL, NULL, &stats, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_contains(all, "much0001", 8), TENUTO_NOT_FOUND);
}

int main(void) {
  char path[256];
  tenuto_pool_options pool;
  tenuto_store_options options;
  tenuto_store* store = NULL;
  c_check_path(path, sizeof path, "c_compact_test");
  tenuto_pool_options_init(&pool);
  tenuto_store_options_init(&options);
  options.pool = &pool;
  pool.size = 8u << 20;
  pool.medium = TENUTO_MEDIUM_MODEL;
  CHECK_IS(tenuto_store_open(path, &options, &store, NULL), TENUTO_OK);
  compaction(store, tenuto_default_collection(store));
  CHECK_IS(tenuto_store_validate(store, NULL), TENUTO_OK);
  CHECK_IS(tenuto_store_close(store), TENUTO_OK);
  remove(path);
  puts("c_compact_test: ok");
  return 0;
}
