/* What the C programs among the tests need: a check that prints what failed, and a path. */
#ifndef TENUTO_TESTS_C_CHECK_H
#define TENUTO_TESTS_C_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tenuto/tenuto_pool.h"

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

#define CHECK_IS(call, status) c_check_is((call), (status), #call, __FILE__, __LINE__)

static void c_check_is(tenuto_status got, tenuto_status wanted, const char* call, const char* file,
                       int line) {
  if (got == wanted) return;
  fprintf(stderr, "%s:%d: %s says %s, not %s\n", file, line, call, tenuto_status_name(got),
          tenuto_status_name(wanted));
  exit(1);
}

/* A path in /dev/shm if that exists, otherwise in /tmp. Removes a file that an earlier run left. */
static void c_check_path(char* path, size_t bytes, const char* name) {
  const char* dir = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  snprintf(path, bytes, "%s/%s.%ld.tnt", dir, name, (long)getpid());
  remove(path);
}

#endif
