// What a pool may hold beside objects: the key-value store. The pool knows this of it, and no more.
#pragma once

#include <memory>
#include <mutex>

#include "tenuto/status.h"

namespace TENUTO_NS::pm {
class PoolFile;
}  // namespace TENUTO_NS::pm

namespace TENUTO_NS {

struct PoolImpl;

class PoolStore {
 public:
  virtual ~PoolStore() = default;  // without a close: what snapshots hold is left to recovery
  // A clean close: nothing of it waits any more, counts are written. REQUIRES: nobody is in a call.
  virtual Status close() = 0;

  // To validate, for that empties other threads' caches of blocks. While it is held, what the store
  // does by itself stands still, and so do compactions and calls that make, find, drop, rename or
  // list collections. Waits for those under way.
  struct Standstill {
    std::unique_lock<std::mutex> reclaimer, compaction, catalog;
  };
  [[nodiscard]] virtual Standstill stand_still() = 0;
};

// How a pool finds its store; constant.
struct PoolStoreKind {
  // wrong_version: an earlier version made what this one does not read. Before anything is changed.
  Status (*check)(const pm::PoolFile& file, Report* report);
  // Opens the pool's. Null: it has none. After a crash it marks the blocks that are its own.
  Result<std::unique_ptr<PoolStore>> (*open)(PoolImpl& pool, Report* report);
};

}  // namespace TENUTO_NS
