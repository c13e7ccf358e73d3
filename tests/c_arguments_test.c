/* The C API, given numbers that cannot be: statuses that are none, lengths of -1. */
#include <stdint.h>

#include "support/c_records.h"
#include "tenuto/tenuto_containers.h"

static const tenuto_status kNone[] = {256, 512 + TENUTO_OK, -1, 19, 100};
enum { kNones = sizeof kNone / sizeof kNone[0] };

struct given {
  tenuto_status status;
  void* at;
};

static tenuto_status put_and_say(tenuto_transaction* tx, void* context) {
  const struct given* given = context;
  CHECK_IS(tenuto_transaction_put(tx, given->at, "said", 4, "v", 1, 0), TENUTO_OK);
  return given->status;
}

static tenuto_status store_and_say(tenuto_tx* tx, void* context) {
  const struct given* given = context;
  uint64_t* number = given->at;
  CHECK_IS(tenuto_tx_add(tx, number, sizeof *number), TENUTO_OK);
  *number = 7;
  return given->status;
}

static tenuto_status migrate_and_say(void* context, const tenuto_old_root* old, void* fresh,
                                     tenuto_tx* tx) {
  const struct given* given = context;
  CHECK(old->bytes == 64 && tx != NULL);
  *(uint64_t*)fresh = 8;
  return given->status;
}

/* What is no status is not ok, and comes back as it is. */
static void statuses(tenuto_store* store, tenuto_collection* all) {
  tenuto_pool* pool = tenuto_store_pool(store);
  uint64_t* root = NULL;
  void* grown = NULL;
  char* message = NULL;
  int i;
  CHECK_IS(tenuto_root(pool, "old", 64, (void**)&root, NULL), TENUTO_OK);
  for (i = 0; i < kNones; ++i) {
    struct given in_all = {kNone[i], all};
    struct given in_root = {kNone[i], root};
    CHECK(strcmp(tenuto_status_name(kNone[i]), "unknown") == 0);
    CHECK_IS(tenuto_store_run(store, put_and_say, &in_all, 0, TENUTO_SYNC), kNone[i]);
    CHECK_IS(tenuto_contains(all, "said", 4), TENUTO_NOT_FOUND);
    CHECK_IS(tenuto_run(pool, store_and_say, &in_root), kNone[i]);
    CHECK(*root == 0);
    CHECK_IS(tenuto_grow_root(pool, "new", 128, migrate_and_say, &in_root, &grown, &message),
             kNone[i]);
    CHECK(grown == NULL && strstr(message, "hook") != NULL);
    tenuto_free(message);
  }
  CHECK_IS(tenuto_root(pool, "old", 64, (void**)&root, NULL), TENUTO_OK);
  CHECK(*root == 0);
}

static void no_value(void* context, size_t index, tenuto_status status, tenuto_slice value) {
  (void)context, (void)index, (void)status, (void)value;
  CHECK(0);
}

static int merges_to(void* context, const tenuto_slice* old, tenuto_slice* fresh) {
  (void)old;
  *fresh = *(const tenuto_slice*)context;
  return 0;
}

/* A function that gives bytes that cannot be changes nothing. */
static void merged(tenuto_collection* all) {
  tenuto_slice never[] = {{NULL, 1}, {"m", (size_t)-1}};
  size_t i;
  CHECK_IS(tenuto_put(all, "merged", 6, "old", 3, TENUTO_SYNC), TENUTO_OK);
  for (i = 0; i < 2; ++i) {
    CHECK_IS(tenuto_merge(all, "merged", 6, merges_to, &never[i], TENUTO_SYNC),
             TENUTO_INVALID_ARGUMENT);
    CHECK_IS(tenuto_merge(all, "absent", 6, merges_to, &never[i], TENUTO_SYNC),
             TENUTO_INVALID_ARGUMENT);
  }
  CHECK(holds(all, "merged", "old"));
  CHECK_IS(tenuto_contains(all, "absent", 6), TENUTO_NOT_FOUND);
}

/* A length of -1 is what a failed read returns. Nothing is done, and the program goes on. */
static void lengths(tenuto_store* store, tenuto_collection* all) {
  const size_t bad = (size_t)-1;
  const tenuto_slice long_one = {"k", (size_t)-1};
  const tenuto_record record = {{"k", 1}, {"v", 1}};
  tenuto_iterator_options options;
  tenuto_iterator* it = NULL;
  tenuto_batch* batch = tenuto_batch_new();
  tenuto_transaction* tx = NULL;
  tenuto_snapshot* snapshot = NULL;
  tenuto_actions* actions = NULL;
  tenuto_pool* pool = tenuto_store_pool(store);
  tenuto_ptr* root = NULL;
  const uint64_t bytes = 8;
  void* value = NULL;
  size_t value_bytes = 0;
  CHECK_IS(tenuto_put(all, "k", 1, "v", bad, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_put(all, "k", bad, "v", 1, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_get(all, "k", bad, &value, &value_bytes), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_get_into(all, "k", bad, NULL, 0, &value_bytes), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_get_into(all, "k", 1, &value, bad, &value_bytes), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_erase(all, "k", bad, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_compare_and_swap(all, "k", 1, NULL, &long_one, TENUTO_SYNC),
           TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_erase_range(all, &long_one, NULL, NULL, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK(tenuto_approximate_count(all, &long_one, NULL) == 0);
  CHECK_IS(tenuto_multi_get(all, &long_one, 1, no_value, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_multi_get(all, &long_one, bad, no_value, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_bulk_load(all, &record, bad / 2, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_batch_put(batch, all, "k", 1, "v", bad), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_batch_erase(batch, all, "k", bad), TENUTO_INVALID_ARGUMENT);
  CHECK(tenuto_batch_count(batch) == 0);
  tenuto_batch_release(batch);

  tenuto_iterator_options_init(&options);
  options.lower = long_one;
  CHECK_IS(tenuto_iterator_open(all, &options, &it), TENUTO_INVALID_ARGUMENT);
  CHECK(it == NULL);
  CHECK_IS(tenuto_iterator_open(all, NULL, &it), TENUTO_OK);
  tenuto_iterator_seek(it, "k", bad);
  CHECK_IS(tenuto_iterator_status(it), TENUTO_INVALID_ARGUMENT);
  tenuto_iterator_release(it);

  CHECK_IS(tenuto_snapshot_take(store, &snapshot), TENUTO_OK);
  CHECK_IS(tenuto_snapshot_contains(snapshot, all, "k", bad), TENUTO_INVALID_ARGUMENT);
  tenuto_snapshot_release(snapshot);
  CHECK_IS(tenuto_begin(store, 0, &tx), TENUTO_OK);
  CHECK_IS(tenuto_transaction_put(tx, all, "k", 1, "v", bad, 0), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_transaction_put(tx, all, "k", 1, "v", 1, 0), TENUTO_OK);
  CHECK_IS(tenuto_transaction_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(holds(all, "k", "v"));

  CHECK_IS(tenuto_root(pool, "old", 64, (void**)&root, NULL), TENUTO_OK);
  CHECK_IS(tenuto_malloc_to_many(pool, &bytes, &root, bad, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_free_from_many(pool, &root, bad), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_actions_new(pool, &actions), TENUTO_OK);
  CHECK_IS(tenuto_actions_set(actions, root, root, bad), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_actions_publish(actions), TENUTO_OK);
  tenuto_actions_delete(actions);
  CHECK(tenuto_ptr_get(root) == NULL);
}

int main(void) {
  char path[256];
  tenuto_store* store = NULL;
  c_check_path(path, sizeof path, "c_arguments_test");
  CHECK_IS(tenuto_store_open(path, NULL, &store, NULL), TENUTO_OK);
  statuses(store, tenuto_default_collection(store));
  lengths(store, tenuto_default_collection(store));
  merged(tenuto_default_collection(store));
  CHECK_IS(tenuto_store_validate(store, NULL), TENUTO_OK);
  CHECK_IS(tenuto_store_close(store), TENUTO_OK);
  remove(path);
  puts("c_arguments_test: ok");
  return 0;
}
