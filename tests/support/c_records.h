/* Records for the C programs of the tests. */
#pragma once

#include <string.h>

#include "support/c_check.h"
#include "tenuto/tenuto.h"

#define PUT(in, key, value) \
  CHECK_IS(tenuto_put((in), (key), strlen(key), (value), strlen(value), TENUTO_SYNC), TENUTO_OK)

static inline int holds(const tenuto_collection* in, const char* key, const char* wanted) {
  void* value = NULL;
  size_t bytes = 0;
  int same;
  CHECK_IS(tenuto_get(in, key, strlen(key), &value, &bytes), TENUTO_OK);
  same = bytes == strlen(wanted) && memcmp(value, wanted, bytes) == 0;
  CHECK(((char*)value)[bytes] == '\0');
  tenuto_free(value);
  return same;
}

static inline int is_slice(tenuto_slice s, const char* wanted) {
  return s.bytes == strlen(wanted) && memcmp(s.data, wanted, s.bytes) == 0;
}
