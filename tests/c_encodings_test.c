/* The C API from C: collections of other orders, with duplicates, with lifetimes, and those that
 * transactions make and drop. */
#include "support/c_records.h"

/* The encoding of a key of digits: a length byte, then the digits. */
static int encode(void* context, tenuto_slice in, tenuto_codec_out* out) {
  *(int*)context += 1;
  if (in.bytes == 0 || in.bytes > 200) return 1;
  out->bytes = *(const char*)in.data == '-' ? (size_t)-1 : in.bytes + 1;
  if (out->room < out->bytes) return 0;
  *(unsigned char*)out->data = (unsigned char)in.bytes;
  memcpy((char*)out->data + 1, in.data, in.bytes);
  return 0;
}

static int decode(void* context, tenuto_slice in, tenuto_codec_out* out) {
  *(int*)context += 1;
  if (in.bytes < 2) return 1;
  out->bytes = in.bytes - 1;
  if (out->room < out->bytes) return 0;
  memcpy(out->data, (const char*)in.data + 1, in.bytes - 1);
  return 0;
}

static uint64_t clock_of(void* context) { return *(uint64_t*)context; }

static void forms(tenuto_store* store, uint64_t* now) {
  tenuto_collection* by_number = NULL;
  tenuto_collection* many = NULL;
  tenuto_collection_options options;
  tenuto_iterator* it = NULL;
  tenuto_batch* batch = tenuto_batch_new();
  tenuto_transaction* tx = NULL;
  uint64_t n = 7;
  char* name = NULL;
  tenuto_collection_options_init(&options);
  options.order = TENUTO_KEYS_REGISTERED;
  options.codec = "nobody's";
  CHECK_IS(tenuto_collection_open(store, "by number", &options, &by_number, &name),
           TENUTO_INVALID_ARGUMENT);
  CHECK(strstr(name, "nobody's") != NULL);
  tenuto_free(name);
  options.codec = "digits";
  CHECK_IS(tenuto_collection_open(store, "by number", &options, &by_number, NULL), TENUTO_OK);
  CHECK_IS(tenuto_collection_codec(by_number, &name), TENUTO_OK);
  CHECK(strcmp(name, "digits") == 0);
  tenuto_free(name);
  PUT(by_number, "10", "ten");
  PUT(by_number, "9", "nine");
  CHECK_IS(tenuto_put(by_number, "", 0, "", 0, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_put(by_number, "-1", 2, "", 0, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_iterator_open(by_number, NULL, &it), TENUTO_OK);
  tenuto_iterator_seek_first(it);
  CHECK(is_slice(tenuto_iterator_key(it), "9"));
  tenuto_iterator_release(it);

  tenuto_collection_options_init(&options);
  options.order = TENUTO_KEYS_REVERSE;
  options.duplicates = options.expires = 1;
  CHECK_IS(tenuto_collection_open(store, "many", &options, &many, NULL), TENUTO_OK);
  CHECK(tenuto_collection_duplicates(many) && tenuto_collection_expires(many));
  CHECK(!tenuto_collection_duplicates(by_number) && !tenuto_collection_expires(NULL));
  PUT(many, "k", "1");
  CHECK_IS(tenuto_put_for(many, "k", 1, "2", 1, 50, TENUTO_SYNC), TENUTO_OK);
  CHECK_IS(tenuto_put_for(by_number, "7", 1, "2", 1, 50, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_batch_put_for(batch, many, "k", 1, "3", 1, 60), TENUTO_OK);
  CHECK_IS(tenuto_batch_put(batch, many, "j", 1, "x", 1), TENUTO_OK);
  CHECK_IS(tenuto_batch_put(batch, many, "j", 1, "y", 1), TENUTO_OK);
  CHECK_IS(tenuto_batch_erase_pair(batch, many, "j", 1, "x", 1), TENUTO_OK);
  CHECK_IS(tenuto_write(store, batch, TENUTO_SYNC), TENUTO_OK);
  tenuto_batch_release(batch);
  CHECK_IS(tenuto_ttl_ms(many, "k", 1, &n), TENUTO_OK);
  CHECK(n == 60); /* of the first one, "3" */
  CHECK_IS(tenuto_count(many, "k", 1, &n), TENUTO_OK);
  CHECK(n == 3);
  CHECK_IS(tenuto_contains_pair(many, "k", 1, "2", 1), TENUTO_OK);
  *now += 55;
  CHECK_IS(tenuto_contains_pair(many, "k", 1, "2", 1), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_iterator_open(many, NULL, &it), TENUTO_OK);
  tenuto_iterator_seek_pair(it, "k", 1, "2", 1);
  CHECK(is_slice(tenuto_iterator_value(it), "1") && tenuto_iterator_ttl_ms(it) == 0);
  tenuto_iterator_next_key(it);
  CHECK(is_slice(tenuto_iterator_key(it), "j"));
  tenuto_iterator_prev_key(it);
  CHECK(is_slice(tenuto_iterator_value(it), "1"));
  tenuto_iterator_release(it);
  CHECK_IS(tenuto_store_reclaim(store, 0, &n), TENUTO_OK);
  CHECK(n == 1);
  CHECK_IS(tenuto_touch(many, "j", 1, 30, TENUTO_SYNC), TENUTO_OK);
  CHECK_IS(tenuto_ttl_ms(many, "j", 1, &n), TENUTO_OK);
  CHECK(n == 30);
  CHECK_IS(tenuto_touch(many, "i", 1, 30, TENUTO_SYNC), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_touch(by_number, "9", 1, 30, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_touch(NULL, "j", 1, 30, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_touch(many, "j", 1, 30, 7), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_erase_pair(many, "k", 1, "2", 1, TENUTO_SYNC), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_erase_pair(by_number, "9", 1, "nine", 4, TENUTO_SYNC), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_begin(store, 0, &tx), TENUTO_OK);
  CHECK_IS(tenuto_transaction_put(tx, many, "k", 1, "4", 1, 5), TENUTO_OK);
  CHECK_IS(tenuto_transaction_erase_pair(tx, many, "k", 1, "1", 1), TENUTO_OK);
  CHECK_IS(tenuto_transaction_put(tx, by_number, "9", 1, "new", 3, 0), TENUTO_OK);
  CHECK_IS(tenuto_transaction_put(tx, NULL, "9", 1, "new", 3, 0), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_transaction_touch(tx, many, "j", 1, 0), TENUTO_OK);
  CHECK_IS(tenuto_transaction_touch(tx, many, "i", 1, 0), TENUTO_NOT_FOUND);
  CHECK_IS(tenuto_transaction_touch(NULL, many, "j", 1, 0), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_transaction_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(holds(by_number, "9", "new") && holds(many, "k", "4"));
  CHECK_IS(tenuto_ttl_ms(many, "j", 1, &n), TENUTO_OK);
  CHECK(n == 0);
  tenuto_collection_release(many);
  CHECK_IS(tenuto_begin(store, 0, &tx), TENUTO_OK);
  CHECK_IS(tenuto_transaction_create(tx, "fresh", NULL, &many, NULL), TENUTO_OK);
  CHECK_IS(tenuto_transaction_put(tx, many, "k", 1, "5", 1, 0), TENUTO_OK);
  CHECK_IS(tenuto_transaction_drop(tx, by_number), TENUTO_OK);
  CHECK_IS(tenuto_transaction_drop(tx, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_transaction_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(holds(many, "k", "5"));
  CHECK_IS(tenuto_contains(by_number, "9", 1), TENUTO_NOT_FOUND);
  tenuto_collection_release(many);
  tenuto_collection_release(by_number);
}

int main(void) {
  char path[256];
  tenuto_pool_options pool;
  tenuto_store_options options;
  tenuto_store* store = NULL;
  uint64_t now = 1000;
  int calls = 0;
  const tenuto_key_codec codec = {"digits", encode, decode, &calls};
  c_check_path(path, sizeof path, "c_encodings_test");
  tenuto_pool_options_init(&pool);
  tenuto_store_options_init(&options);
  options.pool = &pool;
  pool.size = 8u << 20;
  pool.medium = TENUTO_MEDIUM_MODEL;
  options.codecs = &codec;
  options.codec_count = 1;
  options.reclaim_every_ms = 0;
  options.clock_ms = clock_of;
  options.clock_context = &now;
  CHECK_IS(tenuto_store_open(path, &options, &store, NULL), TENUTO_OK);
  forms(store, &now);
  CHECK(calls > 0);
  CHECK_IS(tenuto_store_validate(store, NULL), TENUTO_OK);
  CHECK_IS(tenuto_store_close(store), TENUTO_OK);
  remove(path);
  printf("c_encodings_test: ok\n");
  return 0;
}
