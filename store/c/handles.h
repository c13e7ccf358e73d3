// The handles of the C API's upper half (stores, collections, transactions over keys), and how
// their arguments become those of C++.
#pragma once

#include "store/c/parts.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/tenuto.h"
#include "tenuto/transaction.h"

struct tenuto_collection {
  tenuto::Status merge(std::string_view key, tenuto_merge_fn fn, void* context,
                       tenuto::WriteOptions options);
  tenuto::Collection collection;
};
struct tenuto_store {
  explicit tenuto_store(tenuto::Store s) : store(std::move(s)) {
    pool.pool = &store.pool();
    all.collection = store;
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
  bool refused = false;  // the last seek had a NULL key: there is no position
};
struct tenuto_snapshot {
  tenuto::Snapshot snapshot;
};
struct tenuto_transaction {
  tenuto::StoreTransaction* tx;  // `own`, or the one of tenuto_store_run
  std::optional<tenuto::StoreTransaction> own = {};
};

namespace TENUTO_NS::c {

inline bool sound(const tenuto_collection* in, const void* key, std::size_t key_bytes) {
  return in != nullptr && sound(key, key_bytes);
}

inline bool sound(const tenuto_slice& s) { return sound(s.data, s.bytes); }

inline std::string_view bytes_of(const tenuto_slice& s) { return bytes_of(s.data, s.bytes); }
inline std::optional<std::string_view> bytes_of(const tenuto_slice* s) {
  if (s == nullptr) return std::nullopt;
  return bytes_of(*s);
}

inline WriteOptions write_options(tenuto_durability d) {
  WriteOptions options;
  options.durability = static_cast<Durability>(d);
  return options;
}

// Returns a copy of the value, or NULL and the status.
inline tenuto_status give_value(const Result<std::string>& found, void** value,
                                std::size_t* value_bytes) {
  *value = nullptr;
  *value_bytes = 0;
  if (!found) return give(found.error());
  *value = give_bytes(*found);
  *value_bytes = found->size();
  return TENUTO_OK;
}

// False: the options were not initialised, or a slice is not sound.
bool take_iterator_options(const tenuto_iterator_options* from, IteratorOptions& to);

Status take_collection_options(const tenuto_collection_options* from, CollectionOptions& to,
                               Report& report);

inline tenuto_status give_iterator(Iterator it, tenuto_iterator** to) {
  *to = new tenuto_iterator{.it = std::move(it)};
  return give((*to)->it.status());
}

inline tenuto_slice slice(std::string_view s) { return {s.data(), s.size()}; }

inline tenuto_status null_handle(char** message) {
  return give(Status::invalid_argument, Report{"a handle or a path is NULL", {}, {}, {}}, message);
}

}  // namespace TENUTO_NS::c
