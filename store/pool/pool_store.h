// All that a pool knows of the key-value store, which it may hold beside objects.
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
  virtual ~PoolStore() = default;  // without close(): recovery frees what snapshots hold
  // A clean close: frees all garbage and writes the counts. REQUIRES: no other call is under way.
  virtual Status close() = 0;
  // Before it: from now on the store's calls return closed, and those that were under way have
  // returned. False: one has not, in two seconds, or is this thread's. reopen() takes it back.
  virtual bool shut() = 0;
  virtual void reopen() = 0;

  // For validation, which empties other threads' caches of blocks. While it is held these wait: the
  // reclaimer, compactions, and calls that make, find, drop, rename or list collections. Taking it
  // waits for those under way.
  struct Standstill {
    std::unique_lock<std::mutex> reclaimer, compaction, catalog;
  };
  [[nodiscard]] virtual Standstill stand_still() = 0;
};

// How a pool opens its store. Constant.
struct PoolStoreKind {
  // wrong_version: an earlier version made a store that this one cannot read. Called before
  // anything is changed.
  Status (*check)(const pm::PoolFile& file, Report* report);
  // Opens the pool's store. Null: there is none. After a crash it marks the store's blocks.
  Result<std::unique_ptr<PoolStore>> (*open)(PoolImpl& pool, Report* report);
};

}  // namespace TENUTO_NS
