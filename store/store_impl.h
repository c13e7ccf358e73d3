// What a Store is made of: its pool, and the handle of the default collection.
#pragma once

#include "store/pool_impl.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"

namespace tenuto::inline TENUTO_ABI {

struct StoreImpl {
  explicit StoreImpl(Pool p) : pool(std::move(p)) {}

  // Null once the pool was closed.
  store::Collections* collections() const {
    return pool.impl_ == nullptr ? nullptr : pool.impl_->collections.get();
  }
  // Opens or makes the store in the pool.
  Status attach(const StoreOptions& options, bool fresh, Report* report);

  // Closed, not_found or invalid_argument when a collection of the batch cannot be written to.
  static Status append(const store::Collections& all, const WriteBatch& batch,
                       std::vector<store::BatchOp>& ops);

  Pool pool;
  Collection main;
};

}  // namespace tenuto::inline TENUTO_ABI
