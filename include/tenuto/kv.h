// The ordered key-value store: a pool with a default collection, and named ones beside it. The
// calls on records are those of Collection (tenuto/collection.h).
//
// Thread safety: any number of threads may use one Store at once. An Iterator and a WriteBatch
// belong to one thread at a time. Errors are statuses (tenuto/status.h): check each one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenuto/collection.h"
#include "tenuto/pool.h"
#include "tenuto/status.h"
#include "tenuto/store_options.h"

namespace TENUTO_NS {

struct CollectionInfo {
  std::string name;
  std::uint64_t id = 0;  // never reused in a pool
  KeyOrder order{};
  std::string codec = {};
  bool duplicates = false;
  bool expires = false;
};

struct RenameOptions {
  bool replace = false;  // drops a collection that has the new name, in the same atomic step
};

// Puts and erases for Store::write. A later entry for the same key overrides an earlier one. The
// batch copies keys and values. Errors are found by Store::write.
class TENUTO_API WriteBatch {
 public:
  // In any collections of one store. ttl_ms: as in WriteOptions, from Store::write on. erase_pair:
  // for duplicates.
  void put(const RecordKey& key, std::string_view value, std::uint64_t ttl_ms = 0);
  void erase(const RecordKey& key);
  void erase_pair(const RecordKey& key, std::string_view value);
  void clear();
  bool empty() const { return ops_.empty(); }
  std::size_t count() const { return ops_.size(); }

 private:
  friend class Store;
  friend struct StoreImpl;
  struct Op {
    std::size_t key_at = 0, key_bytes = 0, value_at = 0, value_bytes = 0;
    std::uint64_t ttl_ms = 0;
    std::uint32_t collection = 0;  // index into collections_ + 1; 0: the default one
    enum class What : std::uint8_t { put, erase, erase_pair } what = What::put;
  };
  void add(const RecordKey& key, std::string_view value, Op::What what, std::uint64_t ttl_ms = 0);
  std::uint32_t index_of(const Collection* collection);

  std::vector<Op> ops_;
  std::string bytes_;
  std::vector<std::shared_ptr<struct CollectionState>> collections_;
};

class Snapshot;          // tenuto/snapshot.h
class StoreTransaction;  // tenuto/transaction.h
struct TransactionOptions;

// An open store. Fork and exit are as for Pool (tenuto/pool.h). In a child of a fork every call of
// the store, and of the collections, iterators, snapshots and transactions that came from it,
// returns Status::forked and does nothing. This includes close and destructors. A child may open
// the store again once its parent has closed it. A store may be in a static object.
//
// A Store is its default collection, which has no name and always exists, and a call that wants a
// collection takes the Store. A copy of the Store as a Collection is a handle like any other: once
// the store is closed, its calls return closed. Do not assign to a Store through a Collection&.
class TENUTO_API Store : public Collection {
 public:
  // Opens the store in the pool file `path`. Creates pool and store as the options say; a new store
  // is as durable on return as a write (PoolOptions::durability). A new file has its name only with
  // its store in it, so a crash leaves both or none. After a crash this recovers, with several
  // threads. exists | not_found | invalid_argument | busy | permission | full | io |
  // corrupt | not_a_pool | wrong_version | read_only | in_doubt: as of Pool::create and Pool::open.
  // `report` has the details.
  static Result<Store> open(std::string_view path, const StoreOptions& options = {},
                            Report* report = nullptr);
  // Opens or creates the store in a pool that is open. options.pool is ignored. After a failure the
  // pool is still the caller's, unchanged. not_found: it has no store. closed: it is no open pool.
  static Result<Store> open(Pool&& pool, const StoreOptions& options = {},
                            Report* report = nullptr);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();  // closes

  // Closes store and pool. A clean close makes the next open fast. Other threads may be in calls of
  // a copy of the store as a Collection, of other collections and of transactions: close waits for
  // those that have begun, and later ones return closed. (Not for a call in a function that calls
  // of three other stores call.) REQUIRES: no other thread uses the Store itself, and no Iterator
  // or View of it is alive. Statuses: ok | closed | io, corrupt | forked | busy: an object
  // transaction is open, or a call does not return within two seconds, or this is in one (a merge
  // function, a codec). Then the store is open as before, but calls of other threads may have
  // returned closed meanwhile. The destructor leaves such a pool to the recovery of the next open,
  // locked until the process ends.
  Status close();

  // Applies all entries of the batch or none, in any number of collections. Statuses as put;
  // not_found also: a collection was dropped. conflict, expired: the batch erases a key with
  // duplicates, and other threads keep adding pairs to it. invalid_argument also: a collection
  // belongs to another store, or an object transaction of this thread is open on the pool. Three
  // fences for any number of entries, and two for each leaf that it splits.
  Status write(const WriteBatch& batch, WriteOptions = {});

  // --- named collections; all atomic, also in a crash --------------------------------------------
  // Opens a collection, or makes it as the options say. The name has 1..255 bytes. A new one costs
  // as an insert, and the first one of a pool three fences more. ok | exists | not_found |
  // invalid_argument (name, options, a missing codec) | corrupt | full | read_only | closed.
  Result<Collection> collection(std::string_view name, Report* report = nullptr);
  Result<Collection> collection(std::string_view name, const CollectionOptions& options,
                                Report* report = nullptr);
  // The named collections, in order of their names.
  Result<std::vector<CollectionInfo>> collections(Report* report = nullptr) const;
  // Drops a collection with all its records, at the cost of one erase. Its memory is freed when no
  // reader uses it any more. All handles of it return not_found from now on. ok | not_found | busy
  // (a backup reads it) | invalid_argument (name) | corrupt | read_only | closed.
  // Damage of records does not hinder a drop: corrupt is of the catalog, or of a collection that
  // cannot be opened. Damage that is found when the memory is freed (a leaf, or a record that is
  // not its slot's) turns the pool read-only (Pool::health), but the drop is ok. The recovery of
  // the next open frees what is left.
  Status drop(std::string_view name, Report* report = nullptr);
  // Renames a collection, at the cost of a batch. Handles stay valid. Statuses as drop; exists: a
  // collection has the new name, and options.replace is false; full; invalid_argument also: an
  // object transaction of this thread is open.
  Status rename(std::string_view from, std::string_view to, Report* report = nullptr);
  Status rename(std::string_view from, std::string_view to, const RenameOptions& options,
                Report* report = nullptr);

  // The store as it is now, to read (tenuto/snapshot.h). busy (65535 are active) | closed | forked.
  Result<Snapshot> snapshot() const;

  // Begins a transaction (tenuto/transaction.h). Of a closed store: all its calls return closed.
  StoreTransaction begin() const;
  StoreTransaction begin(const TransactionOptions& options) const;
  // Calls f in a transaction, and commits if f returns ok. Any other status of f rolls back and is
  // returned. After conflict or expired, from f or the commit, it begins again with a new
  // transaction, after a random wait that grows up to a millisecond. So f may run several times.
  // conflict or expired: all attempts_max attempts failed.
  Status run(const std::function<Status(StoreTransaction&)>& f) const;
  Status run(const std::function<Status(StoreTransaction&)>& f,
             const TransactionOptions& options) const;

  // Copies one snapshot of all collections to a new pool file, while other threads read and write.
  // `options` are of the new pool. The file gets its name when it is complete and durable, so an
  // interrupted backup leaves nothing. It compares every record with its checksum, whatever
  // verify_reads says, and its counts with those of the store. Meanwhile no collection can be
  // dropped (busy). corrupt | expired (tenuto/snapshot.h) | busy (Store::snapshot, or 4096
  // iterators and views) | closed | forked | others as Pool::create, of the new pool.
  Status backup(const std::string& path, const PoolOptions& options, Report* report = nullptr);
  Status backup(const std::string& path, Report* report = nullptr);

  // Erases expired records in all collections with lifetimes, and returns their number. It looks at
  // up to records_max records (0: all), and the next call continues there. Before that it frees the
  // garbage whose readers have ended. Statuses as erase. corrupt: a record that it looked at is
  // damaged; what it erased before stays erased. ok says nothing of other records: collections
  // without lifetimes are not read.
  Result<std::uint64_t> reclaim(std::uint64_t records_max = 0);
  // The store's time now, in milliseconds since 1970. Lifetimes count from it. It is the clock's
  // time, and never goes back. A close keeps it if a collection with lifetimes is open
  // (WriteOptions::ttl_ms). 0: closed.
  std::uint64_t time_ms() const;

  // Gives back the space that erases and replaced values have left, while other threads read and
  // write. In all collections (it opens them) it merges neighbouring leaves with few records, and
  // moves records out of slabs that are nearly empty. Then it returns free space to the file system
  // (Pool::trim). It works in place and needs room for a few slabs (with
  // CompactOptions::in_key_order as much as the records take). What views, positioned iterators and
  // snapshots hold stays valid, and it moves no other objects of the pool.
  // Cost: three fences for each merged leaf. Two for each leaf with records to move; its writers
  // may wait for one of these. Without moves_max every record is compared with its checksum. ok |
  // busy (another compaction runs) | invalid_argument (options, or an object transaction of this
  // thread is open) | read_only | corrupt (a damaged record is not moved) | io | closed.
  Result<CompactStats> compact(const CompactOptions& options = {}, Report* report = nullptr);

  // Everything that was acknowledged before, by any thread, is durable when this returns. Statuses
  // as Pool::sync.
  Status sync();

  // Checks the whole store: order, record checksums, and the heap (each allocated block is
  // reachable once). Calls that make, drop or compact collections wait meanwhile. REQUIRES: no
  // thread writes records, takes or releases a snapshot (a backup does), or trims, and nothing
  // allocates; what changes meanwhile may look corrupt. Takes DRAM: at most 1/128 of the pool. ok |
  // corrupt | io | closed.
  Status validate(Report* report = nullptr) const;

  StoreStats stats() const;
  Pool& pool();  // REQUIRES: not closed, not moved from
  const Pool& pool() const;

 private:
  friend struct StoreImpl;
  explicit Store(std::unique_ptr<struct StoreImpl>);
  std::unique_ptr<struct StoreImpl> impl_;
};

}  // namespace TENUTO_NS
