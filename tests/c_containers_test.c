/* The containers in C: each call on objects of the root, over a commit, an abort and an open. */
#include <stdint.h>

#include "support/c_check.h"
#include "tenuto/tenuto_containers.h"

struct root {
  tenuto_string name;
  tenuto_vector lines;
  tenuto_queue jobs;
  tenuto_map phones;
  tenuto_hash_map ages;
};

static int is(tenuto_bytes b, const char* text) {
  return b.bytes == strlen(text) && memcmp(b.data, text, b.bytes) == 0 && b.data[b.bytes] == 0;
}

static tenuto_tx* begin(tenuto_pool* pool) {
  tenuto_tx* tx = NULL;
  CHECK_IS(tenuto_tx_begin(pool, &tx), TENUTO_OK);
  return tx;
}

static void strings(tenuto_pool* pool, struct root* root) {
  const char* const text = "a text that is longer than what fits into the object itself";
  tenuto_tx* tx = begin(pool);
  CHECK(is(tenuto_string_view(&root->name), ""));
  CHECK_IS(tenuto_string_assign(tx, &root->name, "Ada", 3), TENUTO_OK);
  CHECK_IS(tenuto_string_append(tx, &root->name, " L.", 3), TENUTO_OK);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(is(tenuto_string_view(&root->name), "Ada L."));
  tx = begin(pool);
  CHECK_IS(tenuto_string_assign(tx, &root->name, text, strlen(text)), TENUTO_OK);
  CHECK(is(tenuto_string_view(&root->name), text));
  tenuto_tx_abort(tx);
  CHECK(is(tenuto_string_view(&root->name), "Ada L."));
  CHECK(is(tenuto_string_view(NULL), ""));
  tx = begin(pool);
  CHECK_IS(tenuto_string_assign(tx, NULL, "x", 1), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_string_assign(NULL, &root->name, "x", 1), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_string_assign(tx, &root->name, NULL, 1), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  {
    tenuto_string outside = {{0}};
    tx = begin(pool);
    CHECK_IS(tenuto_string_assign(tx, &outside, "x", 1), TENUTO_INVALID_ARGUMENT);
    tenuto_tx_abort(tx);
  }
}

static void vectors(tenuto_pool* pool, struct root* root) {
  tenuto_bytes b;
  tenuto_tx* tx = begin(pool);
  CHECK_IS(tenuto_vector_push(tx, &root->lines, "two", 3), TENUTO_OK);
  CHECK_IS(tenuto_vector_insert(tx, &root->lines, 0, "one", 3), TENUTO_OK);
  CHECK_IS(tenuto_vector_push(tx, &root->lines, NULL, 0), TENUTO_OK);
  CHECK_IS(tenuto_vector_set(tx, &root->lines, 2, "three", 5), TENUTO_OK);
  CHECK_IS(tenuto_vector_set(tx, &root->lines, 3, "four", 4), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_vector_insert(tx, &root->lines, 4, "four", 4), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(tenuto_vector_size(&root->lines) == 3 && tenuto_vector_size(NULL) == 0);
  CHECK_IS(tenuto_vector_at(&root->lines, 0, &b), TENUTO_OK);
  CHECK(is(b, "one"));
  CHECK_IS(tenuto_vector_at(&root->lines, 2, &b), TENUTO_OK);
  CHECK(is(b, "three"));
  CHECK_IS(tenuto_vector_at(&root->lines, 3, &b), TENUTO_NOT_FOUND);
  CHECK(b.data == NULL && b.bytes == 0);
  tx = begin(pool);
  CHECK_IS(tenuto_vector_erase(tx, &root->lines, 0), TENUTO_OK);
  CHECK_IS(tenuto_vector_erase(tx, &root->lines, 2), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_vector_clear(tx, &root->lines), TENUTO_OK);
  tenuto_tx_abort(tx);
  CHECK(tenuto_vector_size(&root->lines) == 3);
}

static void queues(tenuto_pool* pool, struct root* root) {
  tenuto_bytes b;
  tenuto_tx* tx = begin(pool);
  CHECK_IS(tenuto_queue_front(&root->jobs, &b), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_queue_pop(tx, &root->jobs), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_queue_push(tx, &root->jobs, "first", 5), TENUTO_OK);
  CHECK_IS(tenuto_queue_push(tx, &root->jobs, "second", 6), TENUTO_OK);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  tx = begin(pool);
  CHECK_IS(tenuto_queue_pop(tx, &root->jobs), TENUTO_OK);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(tenuto_queue_size(&root->jobs) == 1);
  CHECK_IS(tenuto_queue_front(&root->jobs, &b), TENUTO_OK);
  CHECK(is(b, "second"));
}

static void maps(tenuto_pool* pool, struct root* root) {
  tenuto_bytes b;
  tenuto_entry e;
  char key[16], walked[64] = "";
  int n;
  tenuto_tx* tx = begin(pool);
  for (n = 0; n < 100; ++n) {
    snprintf(key, sizeof key, "k%02d", n * 37 % 100);
    CHECK_IS(tenuto_map_insert(tx, &root->phones, key, 3, key + 1, 2), TENUTO_OK);
  }
  CHECK_IS(tenuto_map_insert(tx, &root->phones, "k07", 3, "x", 1), TENUTO_EXISTS);
  CHECK_IS(tenuto_map_put(tx, &root->phones, "k07", 3, "seven", 5), TENUTO_OK);
  CHECK_IS(tenuto_map_erase(tx, &root->phones, "k08", 3), TENUTO_OK);
  CHECK_IS(tenuto_map_erase(tx, &root->phones, "k08", 3), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(tenuto_map_size(&root->phones) == 99 && tenuto_map_size(NULL) == 0);
  CHECK_IS(tenuto_map_get(&root->phones, "k07", 3, &b), TENUTO_OK);
  CHECK(is(b, "seven"));
  CHECK_IS(tenuto_map_get(&root->phones, "k08", 3, &b), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_map_lower_bound(&root->phones, "k05", 3, &e), TENUTO_OK);
  for (n = 0; n < 4; ++n) {
    strcat(walked, e.key.data);
    CHECK_IS(tenuto_map_upper_bound(&root->phones, e.key.data, e.key.bytes, &e), TENUTO_OK);
  }
  CHECK(strcmp(walked, "k05k06k07k09") == 0);
  CHECK_IS(tenuto_map_below(&root->phones, "k09", 3, &e), TENUTO_OK);
  CHECK(is(e.key, "k07") && is(e.value, "seven"));
  CHECK_IS(tenuto_map_below(&root->phones, NULL, 0, &e), TENUTO_OK);
  CHECK(is(e.key, "k99"));
  CHECK_IS(tenuto_map_below(&root->phones, "k00", 3, &e), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_map_upper_bound(&root->phones, NULL, 0, &e), TENUTO_OK);
  CHECK(is(e.key, "k00"));
  CHECK_IS(tenuto_map_upper_bound(&root->phones, "k99", 3, &e), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_map_lower_bound(NULL, "k", 1, &e), TENUTO_INVALID_ARGUMENT);
}

static tenuto_status count_entry(void* context, const tenuto_entry* entry) {
  int* const left = context;
  CHECK(entry->key.bytes == 3 && entry->value.bytes == 1);
  return --*left == 0 ? TENUTO_BUSY : TENUTO_OK;
}

static void hash_maps(tenuto_pool* pool, struct root* root) {
  tenuto_bytes b;
  char key[16];
  int n, left;
  tenuto_tx* tx = begin(pool);
  for (n = 0; n < 50; ++n) {
    snprintf(key, sizeof key, "h%02d", n);
    CHECK_IS(tenuto_hash_map_put(tx, &root->ages, key, 3, "v", 1), TENUTO_OK);
  }
  CHECK_IS(tenuto_hash_map_insert(tx, &root->ages, "h01", 3, "w", 1), TENUTO_EXISTS);
  CHECK_IS(tenuto_hash_map_erase(tx, &root->ages, "h02", 3), TENUTO_OK);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(tenuto_hash_map_size(&root->ages) == 49);
  CHECK_IS(tenuto_hash_map_get(&root->ages, "h01", 3, &b), TENUTO_OK);
  CHECK(is(b, "v"));
  CHECK_IS(tenuto_hash_map_get(&root->ages, "h02", 3, &b), TENUTO_NOT_FOUND);
  left = 1000;
  CHECK_IS(tenuto_hash_map_each(&root->ages, count_entry, &left), TENUTO_OK);
  CHECK(left == 1000 - 49);
  left = 10;
  CHECK_IS(tenuto_hash_map_each(&root->ages, count_entry, &left), TENUTO_BUSY);
}

/* What no object has is refused by every call before it looks at a byte. */
static void impossible_bytes(tenuto_pool* pool, struct root* root) {
  const size_t lengths[] = {(size_t)-1, (size_t)PTRDIFF_MAX + 1};
  tenuto_tx* const tx = begin(pool);
  tenuto_bytes b;
  tenuto_entry e;
  size_t i;
  CHECK_IS(tenuto_vector_push(tx, &root->lines, "one", 3), TENUTO_OK);
  CHECK_IS(tenuto_map_put(tx, &root->phones, "kk", 2, "v", 1), TENUTO_OK);
  CHECK_IS(tenuto_hash_map_put(tx, &root->ages, "kk", 2, "v", 1), TENUTO_OK);
  for (i = 0; i < 2; ++i) {
    const size_t n = lengths[i];
    const tenuto_status said[] = {
        tenuto_string_assign(tx, &root->name, "k", n),
        tenuto_string_append(tx, &root->name, "k", n),
        tenuto_vector_set(tx, &root->lines, 0, "k", n),
        tenuto_vector_push(tx, &root->lines, "k", n),
        tenuto_vector_insert(tx, &root->lines, 0, "k", n),
        tenuto_queue_push(tx, &root->jobs, "k", n),
        tenuto_map_get(&root->phones, "k", n, &b),
        tenuto_map_insert(tx, &root->phones, "k", n, "v", 1),
        tenuto_map_insert(tx, &root->phones, "k", 1, "v", n),
        tenuto_map_put(tx, &root->phones, "k", n, "v", 1),
        tenuto_map_put(tx, &root->phones, "k", 1, "v", n),
        tenuto_map_erase(tx, &root->phones, "k", n),
        tenuto_map_lower_bound(&root->phones, "k", n, &e),
        tenuto_map_upper_bound(&root->phones, "k", n, &e),
        tenuto_map_below(&root->phones, "k", n, &e),
        tenuto_hash_map_get(&root->ages, "k", n, &b),
        tenuto_hash_map_insert(tx, &root->ages, "k", n, "v", 1),
        tenuto_hash_map_insert(tx, &root->ages, "k", 1, "v", n),
        tenuto_hash_map_put(tx, &root->ages, "k", n, "v", 1),
        tenuto_hash_map_put(tx, &root->ages, "k", 1, "v", n),
        tenuto_hash_map_erase(tx, &root->ages, "k", n),
    };
    size_t call;
    for (call = 0; call < sizeof said / sizeof *said; ++call) {
      CHECK_IS(said[call], TENUTO_INVALID_ARGUMENT);
    }
  }
  CHECK(is(tenuto_string_view(&root->name), "Ada L."));
  tenuto_tx_abort(tx);
}

/* A size that no block has. */
static void damage(tenuto_pool* pool, struct root* root) {
  char* message = NULL;
  const uint64_t size = root->lines.opaque[1];
  CHECK_IS(tenuto_string_validate(pool, &root->name, NULL), TENUTO_OK);
  CHECK_IS(tenuto_vector_validate(pool, &root->lines, &message), TENUTO_OK);
  CHECK(message == NULL);
  CHECK_IS(tenuto_queue_validate(pool, &root->jobs, NULL), TENUTO_OK);
  CHECK_IS(tenuto_map_validate(pool, &root->phones, NULL), TENUTO_OK);
  CHECK_IS(tenuto_hash_map_validate(pool, &root->ages, NULL), TENUTO_OK);
  root->lines.opaque[1] = size + 1000;
  CHECK_IS(tenuto_vector_validate(pool, &root->lines, &message), TENUTO_CORRUPT);
  CHECK(message != NULL && strstr(message, "vector") != NULL);
  tenuto_free(message);
  root->lines.opaque[1] = size;
  CHECK_IS(tenuto_map_validate(NULL, &root->phones, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_map_validate(pool, NULL, NULL), TENUTO_INVALID_ARGUMENT);
}

int main(void) {
  char path[256];
  tenuto_pool* pool = NULL;
  struct root* root = NULL;
  tenuto_tx* tx = NULL;
  tenuto_bytes b;
  tenuto_pool_stats stats;
  c_check_path(path, sizeof path, "c_containers_test");
  CHECK_IS(tenuto_pool_create(path, NULL, &pool, NULL), TENUTO_OK);
  CHECK_IS(tenuto_root(pool, "containers", sizeof *root, (void**)&root, NULL), TENUTO_OK);
  strings(pool, root);
  vectors(pool, root);
  queues(pool, root);
  maps(pool, root);
  hash_maps(pool, root);
  impossible_bytes(pool, root);
  damage(pool, root);
  CHECK_IS(tenuto_pool_close(pool), TENUTO_OK);

  CHECK_IS(tenuto_pool_open(path, NULL, &pool, NULL), TENUTO_OK);
  CHECK_IS(tenuto_root(pool, "containers", sizeof *root, (void**)&root, NULL), TENUTO_OK);
  CHECK(is(tenuto_string_view(&root->name), "Ada L."));
  CHECK_IS(tenuto_map_get(&root->phones, "k07", 3, &b), TENUTO_OK);
  CHECK(is(b, "seven") && tenuto_hash_map_size(&root->ages) == 49);
  tx = begin(pool);
  CHECK_IS(tenuto_string_clear(tx, &root->name), TENUTO_OK);
  CHECK_IS(tenuto_vector_clear(tx, &root->lines), TENUTO_OK);
  CHECK_IS(tenuto_queue_clear(tx, &root->jobs), TENUTO_OK);
  CHECK_IS(tenuto_map_clear(tx, &root->phones), TENUTO_OK);
  CHECK_IS(tenuto_hash_map_clear(tx, &root->ages), TENUTO_OK);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK_IS(tenuto_pool_trim(pool), TENUTO_OK);
  CHECK_IS(tenuto_pool_get_stats(pool, &stats), TENUTO_OK);
  CHECK(stats.objects == 1);
  CHECK_IS(tenuto_pool_close(pool), TENUTO_OK);
  remove(path);
  puts("c_containers_test: ok");
  return 0;
}
