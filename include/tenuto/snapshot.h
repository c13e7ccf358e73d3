// A store at one point in time. A snapshot shows everything that was acknowledged before
// Store::snapshot(), and nothing that began after it. It shows a batch or a transaction as a whole
// or not at all. Nothing in it expires. Its reads wait for writers no longer than other reads do,
// and writers never wait for it.
//
// Cost: a record that is replaced or erased stays in the pool while an active snapshot sees it.
// Under one snapshot this is one version of each key, however often the key changes. The memory is
// freed when no snapshot needs the version any more. StoreStats has the amount and the age of what
// is held; StoreOptions::snapshot_bytes_max and snapshot_age_ms_max bound them. Snapshots do not
// survive the process.
//
// Thread safety: any number of threads may read one Snapshot at once. A Snapshot may outlive its
// store; then its calls return closed.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tenuto/kv.h"
#include "tenuto/status.h"

namespace TENUTO_NS {

namespace store {
struct SnapshotCore;
}  // namespace store

class TENUTO_API Snapshot {
 public:
  Snapshot(Snapshot&&) noexcept;
  Snapshot& operator=(Snapshot&&) noexcept;
  ~Snapshot();  // releases

  // Statuses: those of the same calls of Store, and:
  //   expired           it was the oldest snapshot, and a bound of StoreOptions was exceeded; or
  //                     an old version could not be kept (no memory, or 2^24 leaves have some)
  //   not_found         also: the collection was dropped after the snapshot was taken
  //   invalid_argument  also: the collection belongs to another store
  //   closed            also: after release(), or the store is closed
  // A collection that was made after the snapshot is empty in it.
  Status get(const RecordKey& key, std::string& value) const;
  Result<std::string> get(const RecordKey& key) const;
  Status contains(const RecordKey& key) const;
  // The iterator keeps the snapshot active, also after the Snapshot is gone.
  Iterator iterator(IteratorOptions options = {}) const;  // of the default collection
  Iterator iterator(const Collection& collection, IteratorOptions options = {}) const;

  // Releases the snapshot early. All later calls return closed.
  void release();

 private:
  friend class Store;
  Snapshot(std::shared_ptr<store::SnapshotCore> core, const Collection& main);
  Status usable() const;
  Status usable(const Collection& collection) const;
  const Collection& collection_of(const RecordKey& key) const {
    return key.collection == nullptr ? main_ : *key.collection;
  }
  Iterator pairs_of(const RecordKey& key) const;

  std::shared_ptr<store::SnapshotCore> core_;
  Collection main_;
};

}  // namespace TENUTO_NS
