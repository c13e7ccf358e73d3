// A store at one moment: everything acknowledged before Store::snapshot() is in it, nothing that
// began after, and no part of a batch or transaction without the rest; nothing in it expires. Reads
// through it wait for writers no longer than other reads do, and hold up none.
//
// What a snapshot costs: each record that is replaced or erased while a snapshot that sees it is
// active stays in the pool, once, however often it is replaced. It is given back as soon as no
// snapshot needs it. StoreStats says how much is held and for how long, and
// StoreOptions::snapshot_bytes_max and snapshot_age_ms_max bound it. Snapshots do not survive the
// process.
//
// Thread safety: one Snapshot may be read by any number of threads at once. It may outlive the
// store, and then says closed.
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

class Snapshot {
 public:
  Snapshot(Snapshot&&) noexcept;
  Snapshot& operator=(Snapshot&&) noexcept;
  ~Snapshot();  // releases

  // As those of Store; and expired: it was given up, being the oldest beyond a bound. A collection
  // that was made later is empty; of one that was dropped since nothing is left: not_found.
  // invalid_argument: the collection is of another store.
  Status get(const Collection& collection, std::string_view key, std::string& value) const;
  Result<std::string> get(const Collection& collection, std::string_view key) const;
  Status contains(const Collection& collection, std::string_view key) const;
  // The iterator keeps the moment alive by itself.
  Iterator iterator(const Collection& collection, IteratorOptions options = {}) const;
  // Of the default collection.
  Status get(std::string_view key, std::string& value) const;
  Result<std::string> get(std::string_view key) const;
  Status contains(std::string_view key) const;
  Iterator iterator(IteratorOptions options = {}) const;

  // Lets it go early; closed from then on.
  void release();

 private:
  friend class Store;
  Snapshot(std::shared_ptr<store::SnapshotCore> core, const Collection& main);
  Status usable() const;
  Status usable(const Collection& collection) const;
  Iterator pairs_of(const Collection& collection, std::string_view key) const;

  std::shared_ptr<store::SnapshotCore> core_;
  std::shared_ptr<struct CollectionState> main_;
};

}  // namespace TENUTO_NS
