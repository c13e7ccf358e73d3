/* Transactions that hold mutexes of POSIX, and pools that are opened together. */
#include <pthread.h>
#include <stdint.h>

#include "support/c_check.h"
#include "tenuto/tenuto_pool.h"

static void locks(tenuto_pool* pool, uint64_t* root) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_t strict;
  pthread_mutexattr_t checked;
  tenuto_tx* tx = NULL;
  CHECK(pthread_mutexattr_init(&checked) == 0);
  CHECK(pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK) == 0);
  CHECK(pthread_mutex_init(&strict, &checked) == 0);
  CHECK_IS(tenuto_tx_begin(pool, &tx), TENUTO_OK);
  CHECK_IS(tenuto_tx_lock(tx, &mutex), TENUTO_OK);
  CHECK_IS(tenuto_tx_lock(tx, &mutex), TENUTO_OK);
  CHECK(pthread_mutex_lock(&strict) == 0);
  CHECK_IS(tenuto_tx_lock(tx, &strict), TENUTO_INVALID_ARGUMENT); /* it is this thread's */
  CHECK(pthread_mutex_unlock(&strict) == 0);
  CHECK_IS(tenuto_tx_lock(tx, &strict), TENUTO_OK);
  CHECK_IS(tenuto_tx_add(tx, root, 8), TENUTO_OK);
  CHECK(pthread_mutex_trylock(&mutex) != 0 && pthread_mutex_trylock(&strict) != 0);
  CHECK_IS(tenuto_tx_commit(tx, TENUTO_SYNC), TENUTO_OK);
  CHECK(pthread_mutex_trylock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
  CHECK(pthread_mutex_trylock(&strict) == 0 && pthread_mutex_unlock(&strict) == 0);
  CHECK_IS(tenuto_tx_begin(pool, &tx), TENUTO_OK);
  CHECK_IS(tenuto_tx_lock(tx, &mutex), TENUTO_OK);
  tenuto_tx_abort(tx);
  CHECK(pthread_mutex_trylock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
  CHECK_IS(tenuto_tx_lock(NULL, &mutex), TENUTO_INVALID_ARGUMENT);
}

static void all_at_once(const char* path, const char* other_path) {
  const char* paths[2];
  tenuto_pool* pools[2] = {NULL, NULL};
  char* message = NULL;
  paths[0] = path;
  paths[1] = other_path;
  CHECK_IS(tenuto_pool_create(other_path, NULL, &pools[0], NULL), TENUTO_OK);
  CHECK_IS(tenuto_pool_close(pools[0]), TENUTO_OK);
  CHECK_IS(tenuto_pool_open_all(paths, 2, NULL, pools, &message), TENUTO_OK);
  CHECK(message == NULL && pools[0] != NULL && pools[1] != NULL && pools[0] != pools[1]);
  CHECK_IS(tenuto_pool_close(pools[0]), TENUTO_OK);
  CHECK_IS(tenuto_pool_close(pools[1]), TENUTO_OK);
  paths[1] = path;
  CHECK_IS(tenuto_pool_open_all(paths, 2, NULL, pools, &message), TENUTO_INVALID_ARGUMENT);
  CHECK(message != NULL && pools[0] == NULL && pools[1] == NULL);
  tenuto_free(message);
  paths[1] = "/nowhere/at/all";
  CHECK_IS(tenuto_pool_open_all(paths, 2, NULL, pools, NULL), TENUTO_NOT_FOUND);
  paths[1] = NULL;
  CHECK_IS(tenuto_pool_open_all(paths, 2, NULL, pools, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_open_all(NULL, 2, NULL, pools, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_open_all(paths, (size_t)-1, NULL, pools, NULL), TENUTO_INVALID_ARGUMENT);
  CHECK_IS(tenuto_pool_open_all(NULL, 0, NULL, NULL, NULL), TENUTO_OK);
  remove(other_path);
}

int main(void) {
  char path[256], other_path[256];
  tenuto_pool* pool = NULL;
  uint64_t* root = NULL;
  c_check_path(path, sizeof path, "c_locks_test");
  c_check_path(other_path, sizeof other_path, "c_locks_test_other");
  CHECK_IS(tenuto_pool_create(path, NULL, &pool, NULL), TENUTO_OK);
  CHECK_IS(tenuto_root(pool, "c_locks_test", sizeof *root, (void**)&root, NULL), TENUTO_OK);
  locks(pool, root);
  CHECK_IS(tenuto_pool_close(pool), TENUTO_OK);
  all_at_once(path, other_path);
  remove(path);
  puts("c_locks_test: ok");
  return 0;
}
