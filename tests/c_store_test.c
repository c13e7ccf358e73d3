/* The C API's upper half, from C: every call once where it works and once where it must not. */
#include "support/c_records.h"

static void errors(const char* path) {
  tenuto_store_options options;
  tenuto_store* store = NULL;
  char* message = NULL;
  tenuto_store_options_init(&options);
  options.create_if_missing = 0;
  CHECK_IS(tenuto_store_open(path, &options, &store, &message), TENUTO_NOT_FOUND);
  CHECK(store == NULL && strstr(message, path) != NULL);
  tenuto_free(message);
  CHECK_IS(tenuto_store_open(NULL, NULL, &store, &message), TENUTO_INVALID_ARGUMENT);
  tenuto_free(message);
  tenuto_store_options_init(&options);
  options.order = (tenuto_key_order)7;
  CHECK_IS(tenuto_store_open(path, &options, &store, NULL), TENUTO_INVALID_ARGUMENT);
  options.order = TENUTO_KEYS_REVERSE;
  CHECK_IS(tenuto_store_open(path, &options, &store, NULL), TENUTO_INVALID_ARGUMENT);
  options.order = TENUTO_KEYS_BYTES + 256;
  CHECK_IS(tenuto_store_open(path, &options, &store, NULL), TENUTO_INVALID_ARGUMENT);
  memset(&options, 0, sizeof options);
  CHECK_IS(tenuto_store_open(path, &options, &store, &message), TENUTO_INVALID_ARGUMENT);
  CHECK(strstr(message, "tenuto_store_options_init") != NULL);
  tenuto_free(message);
  CHECK_IS(tenuto_store_close(NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_put(NULL, "k", 1, "v", 1, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK(tenuto_default_collection(NULL) == NULL && tenuto_store_pool(NULL) == NULL);
}

static void records(tenuto_collection* all) {
  void* value = &value;
  char room[16];
  size_t bytes = 1;
  tenuto_view* view = NULL;
  tenuto_slice seen;
  PUT(all, "apple", "red");
  PUT(all, "banana", "green");
  PUT(all, "banana", "yellow");
  CHECK_IS(tenuto_put(all, "", 0, NULL, 0, TENUTO_BUFFERED), TENUTO_OK);
  CHECK(holds(all, "apple", "red") && holds(all, "banana", "yellow") && holds(all, "", ""));
  CHECK_IS(tenuto_get(all, "cherry", 6, &value, &bytes), TENUTO_NOT_FOUND);
  CHECK(value == NULL && bytes == 0);
  memset(room, 'x', sizeof room);
  CHECK_IS(tenuto_get_into(all, "banana", 6, room, 3, &bytes), TENUTO_OK);
  CHECK(bytes == 6 && memcmp(room, "yelx", 4) == 0);
  CHECK_IS(tenuto_get_into(all, "banana", 6, room, sizeof room, &bytes), TENUTO_OK);
  CHECK(bytes == 6 && memcmp(room, "yellowx", 7) == 0);
  CHECK_IS(tenuto_get_into(all, "banana", 6, NULL, 0, &bytes), TENUTO_OK);
  CHECK(bytes == 6);
  CHECK_IS(tenuto_get_into(all, "cherry", 6, room, sizeof room, &bytes), TENUTO_NOT_FOUND);
  CHECK(bytes == 0);
  CHECK_IS(tenuto_get_into(all, "apple", 5, NULL, 1, &bytes), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_contains(all, "apple", 5), TENUTO_OK);
  CHECK_IS(tenuto_contains(all, "cherry", 6), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_erase(all, "", 0, TENUTO_SYNC), TENUTO_OK);
  CHECK_IS(tenuto_erase(all, "", 0, TENUTO_SYNC), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_put(all, NULL, 3, "v", 1, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_put(all, "k", 1, NULL, 1, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_put(all, "k", 1, "v", 1, (tenuto_durability)5), TENUTO_INVALID_ARGUMENT);

  CHECK_IS(tenuto_view_open(all, "apple", 5, &view, &seen), TENUTO_OK);
  PUT(all, "apple", "brown");
  CHECK(is_slice(seen, "red"));
  tenuto_view_release(view);
  CHECK_IS(tenuto_view_open(all, "cherry", 6, &view, &seen), TENUTO_NOT_FOUND);
  CHECK(view == NULL && seen.bytes == 0);
  tenuto_view_release(NULL);
}

static int collect(void* context, const char* name, uint64_t id) {
  CHECK(id > 0);
  strcat(context, name);
  strcat(context, " ");
  return strcmp(name, "prices") == 0;
}

static void collections(tenuto_store* store) {
  tenuto_collection* all = tenuto_default_collection(store);
  tenuto_collection* colours = NULL;
  tenuto_collection* prices = NULL;
  tenuto_collection* none = all;
  tenuto_collection_options options;
  tenuto_collection_stats stats;
  tenuto_batch* batch = tenuto_batch_new();
  unsigned char key[8];
  uint64_t number = 0;
  char names[64] = "";
  char* message = NULL;
  char* name = NULL;
  CHECK_IS(tenuto_collection_open(store, "colours", NULL, &colours, &message), TENUTO_OK);
  CHECK(message == NULL);
  tenuto_collection_options_init(&options);
  options.order = TENUTO_KEYS_U64 + 256;
  CHECK_IS(tenuto_collection_open(store, "prices", &options, &prices, NULL),
           TENUTO_INVALID_ARGUMENT);
  options.order = TENUTO_KEYS_U64;
  CHECK_IS(tenuto_collection_open(store, "prices", &options, &prices, NULL), TENUTO_OK);
  CHECK(tenuto_collection_order(prices) == TENUTO_KEYS_U64 && tenuto_collection_id(prices) > 0);
  CHECK(tenuto_collection_id(all) == 0);
  options.create_if_missing = 0;
  CHECK_IS(tenuto_collection_open(store, "none", &options, &none, NULL), TENUTO_NOT_FOUND);
  CHECK(none == NULL);

  tenuto_u64_key(258, key);
  CHECK_IS(tenuto_u64_of_key(key, 8, &number), TENUTO_OK);
  CHECK(number == 258);
  CHECK_IS(tenuto_u64_of_key(key, 7, &number), TENUTO_INVALID_ARGUMENT);
  CHECK(key[6] == 1 && key[7] == 2 && key[0] == 0);
  CHECK_IS(tenuto_batch_put(batch, prices, key, 8, "12", 2), TENUTO_OK);
  CHECK_IS(tenuto_batch_put(batch, colours, "pear", 4, "green", 5), TENUTO_OK);
  CHECK_IS(tenuto_batch_put(batch, all, "pear", 4, "fruit", 5), TENUTO_OK);
  CHECK_IS(tenuto_batch_erase(batch, all, "banana", 6), TENUTO_OK);
  CHECK_IS(tenuto_batch_put(NULL, all, "pear", 4, "fruit", 5), TENUTO_INVALID_ARGUMENT);
  CHECK(tenuto_batch_count(batch) == 4);
  CHECK_IS(tenuto_write(store, batch, TENUTO_SYNC), TENUTO_OK);
  CHECK_IS(tenuto_write(NULL, batch, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  tenuto_batch_clear(batch);
  CHECK(tenuto_batch_count(batch) == 0);
  tenuto_batch_release(batch);
  CHECK(holds(colours, "pear", "green") && holds(all, "pear", "fruit"));
  CHECK_IS(tenuto_contains(prices, key, 8), TENUTO_OK);
  CHECK_IS(tenuto_put(prices, "abc", 3, "1", 1, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_collection_get_stats(colours, &stats), TENUTO_OK);
  CHECK(stats.records == 1 && stats.record_bytes == 9);

  CHECK_IS(tenuto_collections(store, collect, names, NULL), TENUTO_OK);
  CHECK(strcmp(names, "colours prices ") == 0);
  CHECK_IS(tenuto_collection_rename(store, "colours", "prices", 0, &message), TENUTO_EXISTS);
  tenuto_free(message);
  CHECK_IS(tenuto_collection_rename(store, "colours", "shades", 0, NULL), TENUTO_OK);
  CHECK_IS(tenuto_collection_name(colours, &name), TENUTO_OK);
  CHECK(strcmp(name, "shades") == 0);
  tenuto_free(name);
  CHECK_IS(tenuto_collection_drop(store, "prices", NULL), TENUTO_OK);
  CHECK_IS(tenuto_collection_drop(store, "prices", &message), TENUTO_NOT_FOUND);
  CHECK(message != NULL);
  tenuto_free(message);
  CHECK_IS(tenuto_contains(prices, key, 8), TENUTO_NOT_FOUND);
  tenuto_collection_release(prices);
  tenuto_collection_release(colours);
}

static void iterators(tenuto_collection* all) {
  tenuto_iterator* it = NULL;
  tenuto_iterator_options options;
  char keys[16];
  int i;
  for (i = 0; i < 100; ++i) {
    sprintf(keys, "n%02d", i);
    PUT(all, keys, keys);
  }
  tenuto_iterator_options_init(&options);
  options.prefix.data = "n";
  options.prefix.bytes = 1;
  options.upper.data = "n50";
  options.upper.bytes = 3;
  CHECK_IS(tenuto_iterator_open(all, &options, &it), TENUTO_OK);
  CHECK(!tenuto_iterator_valid(it) && tenuto_iterator_key(it).data == NULL);
  tenuto_iterator_next(it); /* stands nowhere */
  tenuto_iterator_seek_first(it);
  CHECK(tenuto_iterator_valid(it));
  tenuto_iterator_seek(it, NULL, 3);
  CHECK(!tenuto_iterator_valid(it) && tenuto_iterator_key(it).data == NULL);
  CHECK_IS(tenuto_iterator_status(it), TENUTO_INVALID_ARGUMENT);
  tenuto_iterator_seek_for_prev(it, NULL, 1);
  tenuto_iterator_seek_pair(it, "k", 1, NULL, 1);
  CHECK_IS(tenuto_iterator_status(it), TENUTO_INVALID_ARGUMENT);
  for (i = 0, tenuto_iterator_seek_first(it); tenuto_iterator_valid(it); tenuto_iterator_next(it)) {
    sprintf(keys, "n%02d", i++);
    CHECK(is_slice(tenuto_iterator_key(it), keys) && is_slice(tenuto_iterator_value(it), keys));
  }
  CHECK(i == 50);
  tenuto_iterator_seek_last(it);
  CHECK(is_slice(tenuto_iterator_key(it), "n49"));
  tenuto_iterator_prev(it);
  CHECK(is_slice(tenuto_iterator_key(it), "n48"));
  tenuto_iterator_seek(it, "n105", 4);
  CHECK(is_slice(tenuto_iterator_key(it), "n11"));
  tenuto_iterator_seek_for_prev(it, "n105", 4);
  CHECK(is_slice(tenuto_iterator_key(it), "n10"));
  CHECK_IS(tenuto_iterator_status(it), TENUTO_OK);
  tenuto_iterator_release(it);
  CHECK_IS(tenuto_iterator_open(NULL, NULL, &it), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_iterator_status(NULL), TENUTO_INVALID_ARGUMENT);
}

static int append_x(void* context, const tenuto_slice* old, tenuto_slice* fresh) {
  char* room = context;
  if (old != NULL && old->bytes >= 3) return 1;
  if (old != NULL) memcpy(room, old->data, old->bytes);
  fresh->bytes = (old == NULL ? 0 : old->bytes) + 1;
  room[fresh->bytes - 1] = 'x';
  fresh->data = room;
  return 0;
}

static void count_found(void* context, size_t index, tenuto_status status, tenuto_slice value) {
  size_t* found = context;
  if (index == 1) CHECK(status == TENUTO_NOT_FOUND && value.bytes == 0);
  if (index == 2) CHECK(status == TENUTO_OK && is_slice(value, "n07"));
  *found += status == TENUTO_OK;
}

static void more_calls(tenuto_store* store, tenuto_collection* all) {
  const tenuto_slice red = {"red", 3};
  const tenuto_slice blue = {"blue", 4};
  const tenuto_slice from = {"n10", 3};
  const tenuto_slice to = {"n20", 3};
  const tenuto_slice bad = {NULL, 3};
  const tenuto_slice keys[3] = {{"apple", 5}, {"none", 4}, {"n07", 3}};
  const tenuto_record sorted[2] = {{{"a", 1}, {"1", 1}}, {{"b", 1}, {"2", 1}}};
  tenuto_collection* loaded = NULL;
  char room[8];
  void* key = NULL;
  void* value = NULL;
  size_t key_bytes = 0;
  size_t value_bytes = 0;
  size_t found = 0;
  uint64_t erased = 0;
  int i;
  PUT(all, "apple", "red");
  CHECK_IS(tenuto_put_if_absent(all, "apple", 5, "green", 5, TENUTO_SYNC), TENUTO_EXISTS);
  CHECK_IS(tenuto_put_if_absent(all, "melon", 5, "green", 5, TENUTO_SYNC), TENUTO_OK);
  CHECK_IS(tenuto_compare_and_swap(all, "apple", 5, &blue, &red, TENUTO_SYNC), TENUTO_CONFLICT);
  CHECK_IS(tenuto_compare_and_swap(all, "apple", 5, &red, &blue, TENUTO_SYNC), TENUTO_OK);
  CHECK_IS(tenuto_compare_and_swap(all, "melon", 5, NULL, &blue, TENUTO_SYNC), TENUTO_CONFLICT);
  CHECK_IS(tenuto_compare_and_swap(all, "apple", 5, &bad, &blue, TENUTO_SYNC),
           TENUTO_INVALID_ARGUMENT);
  CHECK(holds(all, "apple", "blue"));
  for (i = 0; i < 3; ++i) {
    CHECK_IS(tenuto_merge(all, "m", 1, append_x, room, TENUTO_SYNC), TENUTO_OK);
  }
  CHECK(holds(all, "m", "xxx"));
  CHECK_IS(tenuto_merge(all, "m", 1, append_x, room, TENUTO_SYNC), TENUTO_OK);
  CHECK_IS(tenuto_contains(all, "m", 1), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_merge(all, "m", 1, NULL, room, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK(tenuto_approximate_count(all, &from, NULL) > 20);
  CHECK_IS(tenuto_erase_range(all, &from, &to, &erased, TENUTO_SYNC), TENUTO_OK);
  CHECK(erased == 10);
  CHECK_IS(tenuto_lower_bound(all, "n10", 3, &key, &key_bytes, &value, &value_bytes), TENUTO_OK);
  CHECK(strcmp(key, "n20") == 0 && strcmp(value, "n20") == 0 && value_bytes == 3);
  tenuto_free(key);
  tenuto_free(value);
  CHECK_IS(tenuto_upper_bound(all, "n20", 3, &key, &key_bytes, &value, &value_bytes), TENUTO_OK);
  CHECK(key_bytes == 3 && strcmp(key, "n21") == 0);
  tenuto_free(key);
  tenuto_free(value);
  CHECK_IS(tenuto_upper_bound(all, "zz", 2, &key, &key_bytes, &value, &value_bytes),
           TENUTO_NOT_FOUND);
  CHECK(key == NULL && value == NULL);
  CHECK_IS(tenuto_multi_get(all, keys, 3, count_found, &found), TENUTO_OK);
  CHECK(found == 2);
  CHECK_IS(tenuto_collection_open(store, "loaded", NULL, &loaded, NULL), TENUTO_OK);
  CHECK_IS(tenuto_bulk_load(loaded, sorted, 2, TENUTO_SYNC), TENUTO_OK);
  CHECK(holds(loaded, "a", "1") && holds(loaded, "b", "2"));
  CHECK_IS(tenuto_bulk_load(loaded, sorted, 2, TENUTO_SYNC), TENUTO_EXISTS);
  tenuto_collection_release(loaded);
}

static void snapshots(tenuto_store* store, tenuto_collection* all, const char* path) {
  tenuto_snapshot* snapshot = NULL;
  tenuto_iterator* it = NULL;
  tenuto_store* copy = NULL;
  char copy_path[300];
  char* message = NULL;
  void* value = NULL;
  size_t bytes = 0;
  CHECK_IS(tenuto_snapshot_take(store, &snapshot), TENUTO_OK);
  PUT(all, "apple", "rotten");
  PUT(all, "later", "1");
  CHECK_IS(tenuto_snapshot_get(snapshot, all, "apple", 5, &value, &bytes), TENUTO_OK);
  CHECK(strcmp(value, "blue") == 0);
  tenuto_free(value);
  CHECK_IS(tenuto_snapshot_contains(snapshot, all, "later", 5), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_snapshot_iterator(snapshot, all, NULL, &it), TENUTO_OK);
  tenuto_iterator_seek(it, "later", 5);
  CHECK(is_slice(tenuto_iterator_key(it), "melon"));
  tenuto_iterator_release(it);
  tenuto_snapshot_release(snapshot);
  CHECK_IS(tenuto_snapshot_take(NULL, &snapshot), TENUTO_INVALID_ARGUMENT);

  snprintf(copy_path, sizeof copy_path, "%s.copy", path);
  remove(copy_path);
  CHECK_IS(tenuto_store_backup(store, copy_path, NULL, NULL), TENUTO_OK);
  CHECK_IS(tenuto_store_backup(store, copy_path, NULL, &message), TENUTO_EXISTS);
  CHECK(strstr(message, copy_path) != NULL);
  tenuto_free(message);
  CHECK_IS(tenuto_store_open(copy_path, NULL, &copy, NULL), TENUTO_OK);
  CHECK(holds(tenuto_default_collection(copy), "apple", "rotten"));
  CHECK_IS(tenuto_store_close(copy), TENUTO_OK);
  remove(copy_path);
}

struct counting {
  const tenuto_collection* in;
  int calls;
};

static tenuto_status count_up(tenuto_transaction* tx, void* context) {
  struct counting* counting = context;
  const tenuto_collection* all = counting->in;
  void* value = NULL;
  size_t bytes = 0;
  char digit[1];
  tenuto_status s = tenuto_transaction_get_for_update(tx, all, "counter", 7, &value, &bytes);
  if (s != TENUTO_OK && s != TENUTO_NOT_FOUND) return s;
  digit[0] = s == TENUTO_OK ? (char)(*(char*)value + 1) : '0';
  tenuto_free(value);
  counting->calls += 1;
  if (digit[0] == '3') return TENUTO_ABORTED;
  return tenuto_transaction_put(tx, all, "counter", 7, digit, 1, 0);
}

static void transactions(tenuto_store* store, tenuto_collection* all) {
  tenuto_transaction* a = NULL;
  tenuto_transaction* b = NULL;
  tenuto_iterator* it = NULL;
  tenuto_savepoint point;
  void* value = NULL;
  size_t bytes = 0;
  struct counting counting = {all, 0};
  int i;
  CHECK_IS(tenuto_begin(store, 0, &a), TENUTO_OK);
  CHECK_IS(tenuto_begin(store, 0, &b), TENUTO_OK);
  CHECK_IS(tenuto_transaction_get(a, all, "apple", 5, &value, &bytes), TENUTO_OK);
  tenuto_free(value);
  CHECK_IS(tenuto_transaction_contains(b, all, "melon", 5), TENUTO_OK);
  CHECK_IS(tenuto_transaction_put(a, all, "melon", 5, "by a", 4, 0), TENUTO_OK);
  point = tenuto_transaction_savepoint(a);
  CHECK_IS(tenuto_transaction_erase(a, all, "apple", 5), TENUTO_OK);
  CHECK_IS(tenuto_transaction_contains(a, all, "apple", 5), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_transaction_rollback_to(a, point), TENUTO_OK);
  CHECK_IS(tenuto_transaction_iterator(a, all, NULL, &it), TENUTO_OK);
  tenuto_iterator_seek(it, "melon", 5);
  CHECK(is_slice(tenuto_iterator_value(it), "by a"));
  tenuto_iterator_release(it);
  CHECK_IS(tenuto_transaction_put(b, all, "apple", 5, "by b", 4, 0), TENUTO_OK);
  CHECK_IS(tenuto_transaction_commit(a, (tenuto_durability)7), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_transaction_commit(b, TENUTO_SYNC), TENUTO_OK);
  /* a read what b changed, and b read what a wants to change */
  CHECK_IS(tenuto_transaction_commit(a, TENUTO_SYNC), TENUTO_CONFLICT);
  CHECK(holds(all, "apple", "by b") && holds(all, "melon", "green"));
  CHECK_IS(tenuto_begin(store, 1, &a), TENUTO_OK);
  CHECK_IS(tenuto_transaction_put(a, all, "x", 1, "y", 1, 0), TENUTO_READ_ONLY);
  tenuto_transaction_rollback(a);
  tenuto_transaction_rollback(NULL);
  for (i = 0; i < 3; ++i) {
    CHECK_IS(tenuto_store_run(store, count_up, &counting, 0, TENUTO_SYNC), TENUTO_OK);
  }
  CHECK(holds(all, "counter", "2") && counting.calls == 3);
  CHECK_IS(tenuto_store_run(store, count_up, &counting, 5, TENUTO_SYNC), TENUTO_ABORTED);
  CHECK(holds(all, "counter", "2"));
}

static void state(tenuto_store* store) {
  tenuto_store_stats stats;
  tenuto_pool_stats pool;
  tenuto_ptr* root = NULL;
  CHECK_IS(tenuto_store_get_stats(store, &stats), TENUTO_OK);
  CHECK(stats.records >= 90 && stats.leaves > 1);
  CHECK_IS(tenuto_pool_get_stats(tenuto_store_pool(store), &pool), TENUTO_OK);
  CHECK(pool.fences > 0 && pool.allocated_bytes > 0);
  CHECK(tenuto_collection_order(tenuto_default_collection(store)) == TENUTO_KEYS_BYTES);
  CHECK_IS(tenuto_store_sync(store), TENUTO_OK);
  CHECK_IS(tenuto_store_validate(store, NULL), TENUTO_OK);
  CHECK_IS(tenuto_root(tenuto_store_pool(store), "beside", 64, (void**)&root, NULL), TENUTO_OK);
  CHECK_IS(tenuto_malloc_to(tenuto_store_pool(store), 100, root, NULL), TENUTO_OK);
  CHECK_IS(tenuto_pool_close(tenuto_store_pool(store)), TENUTO_INVALID_ARGUMENT);
}

int main(void) {
  char path[256];
  tenuto_pool_options pool;
  tenuto_store_options options;
  tenuto_store* store = NULL;
  c_check_path(path, sizeof path, "c_store_test");
  errors(path);
  tenuto_pool_options_init(&pool);
  tenuto_store_options_init(&options);
  options.pool = &pool;
  pool.size = 8u << 20;
  pool.size_max = 64u << 20;
  pool.medium = TENUTO_MEDIUM_MODEL;
  CHECK_IS(tenuto_store_open(path, &options, &store, NULL), TENUTO_OK);
  records(tenuto_default_collection(store));
  collections(store);
  iterators(tenuto_default_collection(store));
  more_calls(store, tenuto_default_collection(store));
  snapshots(store, tenuto_default_collection(store), path);
  transactions(store, tenuto_default_collection(store));
  state(store);
  CHECK_IS(tenuto_store_close(store), TENUTO_OK);

  options.create_if_missing = 0;
  CHECK_IS(tenuto_store_open(path, &options, &store, NULL), TENUTO_OK);
  CHECK(holds(tenuto_default_collection(store), "pear", "fruit"));
  CHECK(holds(tenuto_default_collection(store), "apple", "by b"));
  CHECK_IS(tenuto_store_close(store), TENUTO_OK);
  remove(path);
  puts("c_store_test: ok");
  return 0;
}
