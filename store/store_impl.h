// What a Store is made of: its pool, whose tree it uses.
#pragma once

#include "store/pool_impl.h"
#include "store/tree.h"
#include "tenuto/kv.h"

namespace tenuto::inline TENUTO_ABI {

struct StoreImpl {
  explicit StoreImpl(Pool p) : pool(std::move(p)) {}

  // Null once the pool was closed.
  store::Tree* tree() const { return pool.impl_ == nullptr ? nullptr : pool.impl_->tree.get(); }
  // Opens or makes the store in the pool.
  Status attach(const StoreOptions& options, bool fresh, Report* report);

  static void append(store::Tree& tree, const WriteBatch& batch, std::vector<store::BatchOp>& ops);

  Pool pool;
};

}  // namespace tenuto::inline TENUTO_ABI
