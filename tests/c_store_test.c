/* The C API's upper half, from C: every call once where it works and once where it must not. */
#include "support/c_check.h"
#include "tenuto/tenuto.h"

#define PUT(in, key, value) \
  CHECK_IS(tenuto_put((in), (key), strlen(key), (value), strlen(value), TENUTO_SYNC), TENUTO_OK)

static int holds(const tenuto_collection* in, const char* key, const char* wanted) {
  void* value = NULL;
  size_t bytes = 0;
  int same;
  CHECK_IS(tenuto_get(in, key, strlen(key), &value, &bytes), TENUTO_OK);
  same = bytes == strlen(wanted) && memcmp(value, wanted, bytes) == 0;
  CHECK(((char*)value)[bytes] == '\0');
  tenuto_free(value);
  return same;
}

static int is_slice(tenuto_slice s, const char* wanted) {
  return s.bytes == strlen(wanted) && memcmp(s.data, wanted, s.bytes) == 0;
}

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
  options.key_kind = (tenuto_key_kind)7;
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
  tenuto_collection_options options;
  tenuto_collection_stats stats;
  tenuto_batch* batch = tenuto_batch_new();
  unsigned char key[8];
  char names[64] = "";
  char* message = NULL;
  char* name = NULL;
  CHECK_IS(tenuto_collection_open(store, "colours", NULL, &colours, &message), TENUTO_OK);
  CHECK(message == NULL);
  tenuto_collection_options_init(&options);
  options.order = TENUTO_KEYS_U64;
  CHECK_IS(tenuto_collection_open(store, "prices", &options, &prices, NULL), TENUTO_OK);
  CHECK(tenuto_collection_order(prices) == TENUTO_KEYS_U64 && tenuto_collection_id(prices) > 0);
  CHECK(tenuto_collection_id(all) == 0);
  options.create_if_missing = 0;
  CHECK_IS(tenuto_collection_open(store, "none", &options, &prices + 0, NULL), TENUTO_NOT_FOUND);
  CHECK(prices == NULL);
  CHECK_IS(tenuto_collection_open(store, "prices", NULL, &prices, NULL), TENUTO_OK);

  tenuto_u64_key(258, key);
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

static void state(tenuto_store* store) {
  tenuto_store_stats stats;
  tenuto_ptr* root = NULL;
  CHECK_IS(tenuto_store_get_stats(store, &stats), TENUTO_OK);
  CHECK(stats.records >= 102 && stats.leaves > 1 && stats.pool.fences > 0);
  CHECK(tenuto_store_key_kind(store) == TENUTO_KEYS_BYTES);
  CHECK_IS(tenuto_store_sync(store), TENUTO_OK);
  CHECK_IS(tenuto_store_validate(store, NULL), TENUTO_OK);
  CHECK_IS(tenuto_root(tenuto_store_pool(store), "beside", 64, (void**)&root, NULL), TENUTO_OK);
  CHECK_IS(tenuto_malloc_to(tenuto_store_pool(store), 100, root, NULL), TENUTO_OK);
  CHECK_IS(tenuto_pool_close(tenuto_store_pool(store)), TENUTO_INVALID_ARGUMENT);
}

int main(void) {
  char path[256];
  tenuto_store_options options;
  tenuto_store* store = NULL;
  c_check_path(path, sizeof path, "c_store_test");
  errors(path);
  tenuto_store_options_init(&options);
  options.pool.size = 8u << 20;
  options.pool.size_max = 64u << 20;
  options.pool.medium = TENUTO_MEDIUM_MODEL;
  CHECK_IS(tenuto_store_open(path, &options, &store, NULL), TENUTO_OK);
  records(tenuto_default_collection(store));
  collections(store);
  iterators(tenuto_default_collection(store));
  state(store);
  CHECK_IS(tenuto_store_close(store), TENUTO_OK);

  options.create_if_missing = 0;
  CHECK_IS(tenuto_store_open(path, &options, &store, NULL), TENUTO_OK);
  CHECK(holds(tenuto_default_collection(store), "pear", "fruit"));
  CHECK(holds(tenuto_default_collection(store), "apple", "brown"));
  CHECK_IS(tenuto_store_close(store), TENUTO_OK);
  remove(path);
  puts("c_store_test: ok");
  return 0;
}
