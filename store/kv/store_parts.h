// The key-value store of an open pool: its collections and its version store.
#pragma once

#include <memory>

#include "store/kv/collections.h"
#include "store/pool/pool_impl.h"

namespace TENUTO_NS {

struct StoreParts final : PoolStore {
  explicit StoreParts(PoolImpl& pool)
      : collections(*pool.file, *pool.heap, *pool.engine, *versions, pool.recovery_threads) {}
  ~StoreParts() override { versions->shut(false); }
  Status close() override;
  bool shut() override { return collections.shut(); }
  void reopen() override { collections.reopen(); }
  Standstill stand_still() override { return collections.stand_still(); }

  // Null: the pool has no store, or a clean one that was not opened yet.
  static StoreParts* of(const PoolImpl* pool) {
    return pool == nullptr ? nullptr : static_cast<StoreParts*>(pool->store.get());
  }
  // Makes the store of a pool. REQUIRES: the pool has none.
  static Status create(PoolImpl& pool, KeyOrder order, Report* report);

  // Shared with snapshots, which may outlive the pool.
  const std::shared_ptr<store::VersionStore> versions = std::make_shared<store::VersionStore>();
  store::Collections collections;
};

extern const PoolStoreKind kStoreKind;

}  // namespace TENUTO_NS
