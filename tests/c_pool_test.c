/* The C API's lower half, from C: every call once where it works and once where it must not. */
#include <sys/stat.h>

#include "support/c_check.h"
#include "tenuto/tenuto_pool.h"

struct root {
  tenuto_ptr list[16];
  tenuto_vptr versioned[16];
  uint64_t balance[2];
};

static int logged;
static void count_log(void* context, const char* text) {
  CHECK(text[0] != '\0');
  logged += *(int*)context;
}

static void options_and_errors(const char* path) {
  tenuto_pool_options options;
  tenuto_pool* pool = NULL;
  char* message = NULL;
  tenuto_pool_options_init(&options);
  CHECK(options.large_pages == 1);
  CHECK(options.numa_nodes == 0 && options.numa_two_phase == 1 && options.numa_pin_threads == 0);
  CHECK(options.struct_bytes == sizeof options && options.stripes > 0 && options.size > 0);

  CHECK_IS(tenuto_pool_open(path, NULL, &pool, &message), TENUTO_NOT_FOUND);
  CHECK(pool == NULL && message != NULL && strstr(message, path) != NULL);
  tenuto_free(message);
  CHECK_IS(tenuto_pool_open(NULL, NULL, &pool, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_open(path, NULL, NULL, NULL), TENUTO_INVALID_ARGUMENT);
  options.medium = (tenuto_medium)17;
  CHECK_IS(tenuto_pool_create(path, &options, &pool, &message), TENUTO_INVALID_ARGUMENT);
  CHECK(strstr(message, "medium") != NULL);
  tenuto_free(message);
  tenuto_pool_options_init(&options);
  options.durability = (tenuto_durability)2;
  CHECK_IS(tenuto_pool_create(path, &options, &pool, NULL), TENUTO_INVALID_ARGUMENT);
  memset(&options, 0xff, sizeof options); /* never initialised */
  CHECK_IS(tenuto_pool_create(path, &options, &pool, &message), TENUTO_INVALID_ARGUMENT);
  CHECK(strstr(message, "tenuto_pool_options_init") != NULL);
  tenuto_free(message);

  CHECK_IS(tenuto_pool_close(NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_sync(NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_validate(NULL, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK(tenuto_usable_size(NULL, path) == 0 && tenuto_at(NULL, 64) == NULL);
  CHECK(strcmp(tenuto_status_name(TENUTO_CLOSED), "closed") == 0);
  tenuto_free(NULL);
}

/* Also for a program that was compiled when PoolOptions had no mode. */
static void a_pool_has_the_mode_that_was_asked_for(const char* path) {
  const unsigned asked[] = {0, 0640, 0640};
  const unsigned expected[] = {0600, 0640, 0600};
  size_t i;
  for (i = 0; i < 3; ++i) {
    tenuto_pool_options options;
    tenuto_pool* pool = NULL;
    struct stat st;
    tenuto_pool_options_init(&options);
    options.size = 8u << 20;
    options.medium = TENUTO_MEDIUM_CACHE;
    options.mode = asked[i];
    if (i == 2) options.struct_bytes = offsetof(tenuto_pool_options, mode);
    CHECK_IS(tenuto_pool_create(path, &options, &pool, NULL), TENUTO_OK);
    CHECK_IS(tenuto_pool_close(pool), TENUTO_OK);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == expected[i]);
    CHECK(unlink(path) == 0);
  }
}

static void plain_pointers(tenuto_pool* pool, struct root* root) {
  tenuto_alloc_options aligned;
  tenuto_ptr* many[3];
  const uint64_t sizes[3] = {64, 4096, 100000};
  char* words;
  size_t i;
  void* block;
  CHECK_IS(tenuto_malloc_to(pool, 100, &root->list[0], NULL), TENUTO_OK);
  CHECK_IS(tenuto_malloc_to(pool, 100, &root->list[0], NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_malloc_to(pool, 100, NULL, NULL), TENUTO_INVALID_ARGUMENT);
  block = tenuto_ptr_get(&root->list[0]);
  CHECK(block != NULL && tenuto_usable_size(pool, block) >= 100);
  CHECK(tenuto_pool_contains(pool, block) &&
        tenuto_at(pool, tenuto_offset_of(pool, block)) == block);
  CHECK(tenuto_offset_of(pool, &i) == 0);
  memset(block, 7, 100);
  tenuto_flush(block, 100);
  tenuto_fence("block", "it is looked at");
  CHECK_IS(tenuto_realloc_to(pool, 5000, &root->list[0], NULL), TENUTO_OK);
  CHECK(((unsigned char*)tenuto_ptr_get(&root->list[0]))[99] == 7);
  CHECK_IS(tenuto_free_from(pool, &root->list[0]), TENUTO_OK);
  CHECK(tenuto_ptr_get(&root->list[0]) == NULL);
  CHECK_IS(tenuto_free_from(pool, &root->list[0]), TENUTO_INVALID_ARGUMENT);
  words = tenuto_describe(pool, block);
  CHECK(words != NULL && strstr(words, "free") != NULL);
  tenuto_free(words);
  CHECK(tenuto_describe(pool, &words) == NULL && tenuto_describe(NULL, block) == NULL);

  tenuto_alloc_options_init(&aligned);
  aligned.align = 4096;
  aligned.zero = 1;
  aligned.type = 77;
  CHECK_IS(tenuto_malloc_to(pool, 300, &root->list[1], &aligned), TENUTO_OK);
  block = tenuto_ptr_get(&root->list[1]);
  CHECK((uintptr_t)block % 4096 == 0 && ((char*)block)[299] == 0);
  CHECK(tenuto_type_of(pool, block) == 77);
  CHECK_IS(tenuto_first(pool, 77, &block), TENUTO_OK);
  CHECK(block == tenuto_ptr_get(&root->list[1]));
  CHECK_IS(tenuto_next(pool, block, 77, &block), TENUTO_OK);
  CHECK(block == NULL);
  CHECK_IS(tenuto_first(pool, 0, &block), TENUTO_INVALID_ARGUMENT);
  aligned.align = 3;
  CHECK_IS(tenuto_malloc_to(pool, 300, &root->list[2], &aligned), TENUTO_INVALID_ARGUMENT);
  aligned.struct_bytes = 1;
  CHECK_IS(tenuto_malloc_to(pool, 300, &root->list[2], &aligned), TENUTO_INVALID_ARGUMENT);

  for (i = 0; i < 3; ++i) many[i] = &root->list[2 + i];
  CHECK_IS(tenuto_malloc_to_many(pool, sizes, many, 3, NULL), TENUTO_OK);
  for (i = 0; i < 3; ++i) {
    CHECK(tenuto_usable_size(pool, tenuto_ptr_get(many[i])) >= sizes[i]);
  }
  CHECK_IS(tenuto_malloc_to_many(pool, sizes, NULL, 3, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_malloc_to_many(pool, NULL, NULL, 0, NULL), TENUTO_OK);
  CHECK_IS(tenuto_free_from_many(pool, many, 3), TENUTO_OK);
  many[1] = NULL;
  CHECK_IS(tenuto_malloc_to_many(pool, sizes, many, 3, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK(tenuto_ptr_get(many[0]) == NULL);
}

static void versioned_pointers(tenuto_pool* pool, struct root* root) {
  tenuto_vptr* many[2] = {&root->versioned[2], &root->versioned[3]};
  const uint64_t sizes[2] = {64, 256};
  tenuto_reserved block;
  void* first;
  CHECK_IS(tenuto_vmalloc_to(pool, 64, &root->versioned[0], NULL), TENUTO_OK);
  first = tenuto_vptr_get(&root->versioned[0]);
  CHECK_IS(tenuto_vswap(pool, &root->versioned[0], &root->versioned[1]), TENUTO_OK);
  CHECK(tenuto_vptr_get(&root->versioned[1]) == first);
  CHECK(tenuto_vptr_get(&root->versioned[0]) == NULL);
  CHECK_IS(tenuto_vfree_from(pool, &root->versioned[1]), TENUTO_OK);
  CHECK_IS(tenuto_vfree_from(pool, &root->versioned[1]), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_vmalloc_to_many(pool, sizes, many, 2, NULL), TENUTO_OK);
  CHECK_IS(tenuto_vfree_from_many(pool, many, 2), TENUTO_OK);

  CHECK_IS(tenuto_reserve(pool, 200, NULL, &block), TENUTO_OK);
  CHECK(block.bytes >= 200 && tenuto_at(pool, block.offset) == block.data);
  CHECK_IS(tenuto_cancel(pool, &block), TENUTO_OK);
  CHECK_IS(tenuto_cancel(pool, &block), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_reserve(pool, 200, NULL, &block), TENUTO_OK);
  CHECK_IS(tenuto_vpublish(pool, &block, &root->versioned[4]), TENUTO_OK);
  CHECK_IS(tenuto_reserve(pool, 200, NULL, &block), TENUTO_OK);
  CHECK_IS(tenuto_publish(pool, &block, &root->list[5]), TENUTO_OK);
  CHECK(tenuto_ptr_get(&root->list[5]) == block.data);
}

static void count_call(void* context) { *(int*)context += 1; }

static tenuto_status transfer(tenuto_tx* tx, void* context) {
  struct root* root = context;
  const tenuto_status s = tenuto_tx_add(tx, root->balance, sizeof root->balance);
  if (s != TENUTO_OK) return s;
  root->balance[0] -= 10;
  root->balance[1] += 10;
  return root->balance[0] > 1000 ? TENUTO_ABORTED : TENUTO_OK; /* below zero */
}

static void transactions(tenuto_pool* pool, struct root* root) {
  tenuto_tx* tx = NULL;
  void* block = NULL;
  int committed = 0;
  int aborted = 0;
  CHECK_IS(tenuto_tx_begin(pool, &tx), TENUTO_OK);
  CHECK_IS(tenuto_tx_add_later(tx, &root->balance[0], 8), TENUTO_OK);
  CHECK_IS(tenuto_tx_add_later(tx, &root->list[6], 8), TENUTO_OK);
  CHECK_IS(tenuto_tx_ready(tx), TENUTO_OK);
  root->balance[0] = 15;
  CHECK_IS(tenuto_tx_alloc(tx, 500, NULL, &block), TENUTO_OK);
  memset(block, 1, 500);
  tenuto_ptr_set(&root->list[6], block);
  CHECK_IS(tenuto_tx_on_commit(tx, count_call, &committed), TENUTO_OK);
  CHECK_IS(tenuto_tx_on_abort(tx, count_call, &aborted), TENUTO_OK);
  CHECK_IS(tenuto_tx_commit(tx, (tenuto_durability)9), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(committed == 1 && aborted == 0);

  CHECK_IS(tenuto_tx_begin(pool, &tx), TENUTO_OK);
  CHECK_IS(tenuto_tx_add(tx, &root->list[6], 8), TENUTO_OK);
  CHECK_IS(tenuto_tx_free(tx, tenuto_ptr_get(&root->list[6])), TENUTO_OK);
  tenuto_ptr_set(&root->list[6], NULL);
  CHECK_IS(tenuto_tx_add(tx, &committed, sizeof committed), TENUTO_INVALID_ARGUMENT);
  tenuto_tx_abort(tx);
  CHECK(tenuto_ptr_get(&root->list[6]) == block && tenuto_usable_size(pool, block) >= 500);

  CHECK_IS(tenuto_run(pool, transfer, root), TENUTO_OK);
  CHECK(root->balance[0] == 5 && root->balance[1] == 10);
  CHECK_IS(tenuto_run(pool, transfer, root), TENUTO_ABORTED);
  CHECK(root->balance[0] == 5 && root->balance[1] == 10);
  CHECK_IS(tenuto_tx_begin(NULL, &tx), TENUTO_INVALID_ARGUMENT);
  tenuto_tx_abort(NULL);
}

static void parts(tenuto_pool* pool, struct root* root) {
  tenuto_tx* tx = NULL;
  const uint64_t seven = 7;
  uint64_t seen = 0;
  const uint64_t before = root->balance[1];
  CHECK_IS(tenuto_tx_begin(pool, &tx), TENUTO_OK);
  CHECK_IS(tenuto_tx_set(tx, &root->balance[1], &seven, sizeof seven), TENUTO_OK);
  CHECK(root->balance[1] == before);
  CHECK_IS(tenuto_tx_get(tx, &root->balance[1], &seen, sizeof seen), TENUTO_OK);
  CHECK(seen == 7);
  CHECK_IS(tenuto_tx_set(tx, &seen, &seven, sizeof seven), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_tx_set(tx, &root->balance[1], NULL, 8), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_tx_set(tx, &root->balance[1], &seven, (size_t)-1), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_tx_get(tx, NULL, &seen, 8), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(root->balance[1] == 7);
  root->balance[1] = before;
  tenuto_flush(&root->balance[1], 8);
  CHECK_IS(tenuto_tx_set(NULL, root, &seven, 8), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_tx_get(NULL, root, &seen, 8), TENUTO_INVALID_ARGUMENT);
}

static void count_end(void* context, int committed_) { ((int*)context)[committed_] += 1; }

static void savepoints(tenuto_pool* pool, struct root* root) {
  tenuto_tx* tx = NULL;
  uint64_t point = 0;
  void* block = NULL;
  int ends[2] = {0, 0};
  const uint64_t before = root->balance[0];
  CHECK_IS(tenuto_tx_begin(pool, &tx), TENUTO_OK);
  CHECK_IS(tenuto_tx_overwrite(tx, &root->balance[1], 8), TENUTO_OK);
  CHECK_IS(tenuto_tx_on_end(tx, count_end, ends), TENUTO_OK);
  CHECK_IS(tenuto_tx_savepoint(tx, &point), TENUTO_OK);
  CHECK_IS(tenuto_tx_add(tx, &root->balance[0], 8), TENUTO_OK);
  root->balance[0] = 77;
  CHECK_IS(tenuto_tx_alloc(tx, 100, NULL, &block), TENUTO_OK);
  CHECK_IS(tenuto_tx_on_end(tx, count_end, ends), TENUTO_OK);
  CHECK_IS(tenuto_tx_rollback_to(tx, point), TENUTO_OK);
  CHECK(root->balance[0] == before && ends[0] == 1 && ends[1] == 0);
  CHECK_IS(tenuto_tx_rollback_to(tx, point + 1), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(root->balance[0] == before && ends[0] == 1 && ends[1] == 1);
  CHECK(tenuto_usable_size(pool, block) == 0);
  CHECK_IS(tenuto_tx_savepoint(NULL, &point), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_tx_on_end(NULL, count_end, ends), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_tx_overwrite(NULL, root, 8), TENUTO_INVALID_ARGUMENT);
}

static void actions(tenuto_pool* pool, struct root* root) {
  tenuto_actions* list = NULL;
  void* block = NULL;
  void* second = NULL;
  const uint64_t value = 31;
  CHECK_IS(tenuto_actions_new(NULL, &list), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_actions_new(pool, &list), TENUTO_OK);
  CHECK_IS(tenuto_actions_reserve(list, 100, NULL, &block), TENUTO_OK);
  CHECK_IS(tenuto_actions_reserve(list, 100, NULL, &second), TENUTO_OK);
  memset(block, 3, 100);
  CHECK_IS(tenuto_actions_set_ptr(list, &root->list[7], block), TENUTO_OK);
  CHECK_IS(tenuto_actions_set(list, &root->balance[1], &value, sizeof value), TENUTO_OK);
  CHECK_IS(tenuto_actions_free(list, tenuto_ptr_get(&root->list[6])), TENUTO_OK);
  CHECK_IS(tenuto_actions_set_ptr(list, &root->list[6], NULL), TENUTO_OK);
  CHECK(tenuto_ptr_get(&root->list[7]) == NULL && tenuto_usable_size(pool, block) == 0);
  CHECK_IS(tenuto_actions_publish(list), TENUTO_OK);
  CHECK(tenuto_ptr_get(&root->list[7]) == block && tenuto_usable_size(pool, block) >= 100);
  CHECK(root->balance[1] == value && tenuto_ptr_get(&root->list[6]) == NULL);
  CHECK_IS(tenuto_actions_set(list, NULL, &value, 8), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_actions_reserve(list, 100, NULL, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_actions_free(list, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_actions_publish(NULL), TENUTO_INVALID_ARGUMENT);
  tenuto_actions_delete(list);
  tenuto_actions_delete(NULL);
}

static void note_mistake(void* context, const char* text) {
  *(int*)context += strstr(text, "neither added to a transaction nor flushed") != NULL;
}

static void mistakes(const char* path) {
  tenuto_pool_options options;
  tenuto_pool* pool = NULL;
  struct root* root = NULL;
  tenuto_tx* tx = NULL;
  int found = 0;
  tenuto_pool_options_init(&options);
  CHECK(options.on_mistake == NULL);
  options.on_mistake = note_mistake;
  options.on_mistake_context = &found;
  CHECK_IS(tenuto_pool_create(path, &options, &pool, NULL), TENUTO_OK);
  CHECK_IS(tenuto_root(pool, "mistakes", sizeof *root, (void**)&root, NULL), TENUTO_OK);
  CHECK_IS(tenuto_tx_begin(pool, &tx), TENUTO_OK);
  CHECK_IS(tenuto_tx_add(tx, &root->balance[0], 8), TENUTO_OK);
  root->balance[0] = 1;
  root->balance[1] = 1;
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(found == 1);
  CHECK_IS(tenuto_pool_close(pool), TENUTO_OK);
  remove(path);
}

static void several_pools(tenuto_pool* pool, struct root* root, const char* path) {
  tenuto_pool_options options;
  tenuto_pool* other = NULL;
  struct root* there = NULL;
  tenuto_tx *first = NULL, *part = NULL;
  tenuto_pool_info info;
  const long before = (long)root->balance[0];
  tenuto_pool_options_init(&options);
  options.in_doubt = 3;
  CHECK_IS(tenuto_pool_create(path, &options, &other, NULL), TENUTO_INVALID_ARGUMENT);
  options.in_doubt = TENUTO_IN_DOUBT_ASK;
  CHECK_IS(tenuto_pool_create(path, &options, &other, NULL), TENUTO_OK);
  CHECK_IS(tenuto_root(other, "other", sizeof *there, (void**)&there, NULL), TENUTO_OK);
  for (int commits = 0; commits < 2; ++commits) {
    CHECK_IS(tenuto_tx_begin(pool, &first), TENUTO_OK);
    CHECK_IS(tenuto_tx_begin_with(other, first, &part), TENUTO_OK);
    CHECK_IS(tenuto_tx_add(first, &root->balance[0], 8), TENUTO_OK);
    CHECK_IS(tenuto_tx_add(part, &there->balance[0], 8), TENUTO_OK);
    root->balance[0] -= 5;
    there->balance[0] += 5;
    CHECK_IS(tenuto_tx_commit(part, TENUTO_SYNC), TENUTO_OK);
    if (commits) {
      CHECK_IS(tenuto_tx_commit(first, TENUTO_SYNC), TENUTO_OK);
    } else {
      tenuto_tx_abort(first);
    }
    CHECK((long)root->balance[0] == before - 5 * commits);
    CHECK((long)there->balance[0] == 5 * commits);
  }
  CHECK_IS(tenuto_tx_begin_with(other, NULL, &part), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_get_info(other, &info), TENUTO_OK);
  CHECK(info.decisions_waiting == 0);
  CHECK_IS(tenuto_pool_close(other), TENUTO_OK);
  remove(path);
}

static void state(tenuto_pool* pool, const char* path) {
  tenuto_pool_info info;
  tenuto_pool_stats stats;
  CHECK_IS(tenuto_pool_get_info(pool, &info), TENUTO_OK);
  CHECK(strcmp(info.path, path) == 0 && strcmp(info.layout, "c_pool_test") == 0);
  CHECK(info.medium == TENUTO_MEDIUM_MODEL && !info.has_store);
  CHECK_IS(tenuto_pool_get_stats(pool, &stats), TENUTO_OK);
  CHECK(stats.large_bytes <= stats.file_bytes);
  CHECK(stats.used_bytes > 0 && tenuto_pool_used_bytes(pool) == stats.used_bytes);
  CHECK(tenuto_pool_used_bytes(NULL) == 0);
  CHECK(stats.file_bytes >= 8u << 20 && stats.objects >= 4 && stats.fences > 0);
  CHECK_IS(tenuto_pool_sync(pool), TENUTO_OK);
  CHECK_IS(tenuto_pool_trim(pool), TENUTO_OK);
  CHECK_IS(tenuto_pool_forget_pool(pool, 1), TENUTO_OK);
  CHECK_IS(tenuto_pool_forget_pool(NULL, 1), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_health(pool, NULL), TENUTO_OK);
  CHECK_IS(tenuto_pool_validate(pool, NULL), TENUTO_OK);
}

struct old_root {
  uint64_t count;
  tenuto_ptr first;
};
struct new_root {
  uint64_t room[8];
  uint64_t count;
  tenuto_ptr first;
  tenuto_ptr second;
};

/* context: the status that it returns. */
static tenuto_status migrate(void* context, const tenuto_old_root* old, void* fresh,
                             tenuto_tx* tx) {
  const struct old_root* from = old->data;
  struct new_root* to = fresh;
  void* block = NULL;
  CHECK(strcmp(old->layout, "old") == 0 && old->bytes == sizeof *from);
  CHECK(to->count == 0 && tenuto_ptr_get(&to->first) == NULL);
  to->count = from->count;
  tenuto_ptr_set(&to->first, tenuto_ptr_get(&from->first));
  CHECK_IS(tenuto_tx_alloc(tx, 100, NULL, &block), TENUTO_OK);
  tenuto_ptr_set(&to->second, block);
  return *(tenuto_status*)context;
}

static void root_that_grows(const char* path) {
  tenuto_pool* pool = NULL;
  struct old_root* old = NULL;
  struct new_root* fresh = NULL;
  void* root = NULL;
  void* first = NULL;
  char* message = NULL;
  tenuto_status status = TENUTO_FULL;
  CHECK_IS(tenuto_pool_create(path, NULL, &pool, NULL), TENUTO_OK);
  CHECK_IS(tenuto_root(pool, "old", sizeof *old, (void**)&old, NULL), TENUTO_OK);
  CHECK_IS(tenuto_malloc_to(pool, 64, &old->first, NULL), TENUTO_OK);
  first = tenuto_ptr_get(&old->first);
  CHECK_IS(tenuto_grow_root(pool, "new", sizeof *fresh, NULL, NULL, &root, &message),
           TENUTO_INVALID_ARGUMENT);
  CHECK(root == NULL && strstr(message, "hook") != NULL);
  tenuto_free(message);
  CHECK_IS(tenuto_grow_root(pool, "new", sizeof *fresh, migrate, &status, &root, NULL),
           TENUTO_FULL);
  CHECK_IS(tenuto_root(pool, "old", sizeof *old, (void**)&old, NULL), TENUTO_OK);
  CHECK(tenuto_ptr_get(&old->first) == first);
  status = TENUTO_OK;
  CHECK_IS(tenuto_grow_root(pool, "new", sizeof *fresh, migrate, &status, (void**)&fresh, NULL),
           TENUTO_OK);
  CHECK(tenuto_ptr_get(&fresh->first) == first && tenuto_ptr_get(&fresh->second) != NULL);
  CHECK_IS(tenuto_free_from(pool, &fresh->second), TENUTO_OK);
  CHECK_IS(tenuto_grow_root(NULL, "new", 8, NULL, NULL, &root, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_grow_root(pool, "new", 8, NULL, NULL, NULL, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_validate(pool, NULL), TENUTO_OK);
  CHECK_IS(tenuto_pool_close(pool), TENUTO_OK);
  remove(path);
}

int main(void) {
  char path[256], other_path[256];
  tenuto_pool_options options;
  tenuto_pool* pool = NULL;
  struct root* root = NULL;
  int weight = 1;
  c_check_path(path, sizeof path, "c_pool_test");
  c_check_path(other_path, sizeof other_path, "c_pool_test_other");
  options_and_errors(path);
  a_pool_has_the_mode_that_was_asked_for(path);
  root_that_grows(path);
  mistakes(path);

  tenuto_pool_options_init(&options);
  options.size = 8u << 20;
  options.size_max = 64u << 20;
  options.medium = TENUTO_MEDIUM_MODEL;
  options.log = count_log;
  options.log_context = &weight;
  CHECK_IS(tenuto_pool_create(path, &options, &pool, NULL), TENUTO_OK);
  CHECK_IS(tenuto_root(pool, "c_pool_test", sizeof *root, (void**)&root, NULL), TENUTO_OK);
  plain_pointers(pool, root);
  versioned_pointers(pool, root);
  transactions(pool, root);
  parts(pool, root);
  savepoints(pool, root);
  actions(pool, root);
  several_pools(pool, root, other_path);
  state(pool, path);
  CHECK_IS(tenuto_pool_close(pool), TENUTO_OK);

  CHECK_IS(tenuto_pool_open(path, &options, &pool, NULL), TENUTO_OK);
  CHECK_IS(tenuto_root(pool, "another", 8, (void**)&root, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_root(pool, "c_pool_test", sizeof *root, (void**)&root, NULL), TENUTO_OK);
  CHECK(root->balance[1] == 31 && tenuto_ptr_get(&root->list[5]) != NULL);
  CHECK_IS(tenuto_pool_close(pool), TENUTO_OK);
  remove(path);
  puts("c_pool_test: ok");
  return 0;
}
