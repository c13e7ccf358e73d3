// What the handles of the C API's upper half are. Read by c_store.cc, c_iterator.cc and their kin.
#pragma once

#include "store/c_parts.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/tenuto.h"

struct tenuto_collection {
  tenuto::Collection collection;
};
struct tenuto_store {
  explicit tenuto_store(tenuto::Store s) : store(std::move(s)) {
    pool.pool = &store.pool();
    all.collection = store.default_collection();
  }
  tenuto::Store store;
  tenuto_pool pool;
  tenuto_collection all;
};
struct tenuto_batch {
  tenuto::WriteBatch batch;
};
struct tenuto_view {
  tenuto::View view;
};
struct tenuto_iterator {
  tenuto::Iterator it;
};

namespace tenuto::inline TENUTO_ABI::c {

// Bytes that are there, or none at all.
inline bool sound(const void* data, std::size_t bytes) { return data != nullptr || bytes == 0; }
inline bool sound(const tenuto_collection* in, const void* key, std::size_t key_bytes) {
  return in != nullptr && sound(key, key_bytes);
}

inline tenuto_slice slice(std::string_view s) { return {s.data(), s.size()}; }

inline tenuto_status null_handle(char** message) {
  return give(Status::invalid_argument, Report{"a handle or a path is NULL", {}, {}, {}}, message);
}

}  // namespace tenuto::inline TENUTO_ABI::c
