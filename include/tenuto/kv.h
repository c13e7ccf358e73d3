// The ordered key-value store. Keys have 0..64 KiB and values up to the pool's size, of any bytes.
// The order is that of bytes (memcmp; a prefix comes before the longer key) or, in a u64 store, of
// numbers. Every operation is atomic, and every acknowledged write survives a crash (Durability).
//
// Thread safety: any number of threads may use one Store at once. An Iterator and a WriteBatch
// belong to one thread at a time. Errors are statuses (tenuto/status.h): check each one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenuto/pool.h"
#include "tenuto/status.h"
#include "tenuto/store_options.h"

namespace TENUTO_NS {

class Collection;  // tenuto/collection.h
enum class KeyOrder : std::uint8_t;
struct CollectionOptions;  // tenuto/collection.h
struct RenameOptions;      // tenuto/collection.h

// Returns the new value for an old one. Old none: there is no record. New none: erases the key.
using MergeFunction =
    std::function<std::optional<std::string>(std::optional<std::string_view> old)>;

struct KeyValue {
  std::string key;
  std::string value;
};

// For multi_get: the index of the key, the status that get has for it, and its value.
using EachValue = std::function<void(std::size_t, Status, std::string_view)>;

struct CollectionInfo {
  std::string name;
  std::uint64_t id = 0;  // never reused in a pool
  KeyOrder order{};
  std::string codec = {};
  bool duplicates = false;
  bool expires = false;
};

// Puts and erases for Store::write. A later entry for the same key overrides an earlier one. The
// batch copies keys and values. Errors are found by Store::write.
class TENUTO_API WriteBatch {
 public:
  // In the default collection.
  void put(std::string_view key, std::string_view value);
  void erase(std::string_view key);
  // In any collection of one store. ttl_ms: as in WriteOptions. erase_pair: for duplicates.
  void put(const Collection& collection, std::string_view key, std::string_view value,
           std::uint64_t ttl_ms = 0);
  void erase(const Collection& collection, std::string_view key);
  void erase_pair(const Collection& collection, std::string_view key, std::string_view value);
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
  void add(std::uint32_t collection, std::string_view key, std::string_view value, Op::What what,
           std::uint64_t ttl_ms = 0);
  std::uint32_t index_of(const Collection& collection);

  std::vector<Op> ops_;
  std::string bytes_;
  std::vector<std::shared_ptr<struct CollectionState>> collections_;
};

// A record for bulk_load. The bytes must stay until the call returns.
struct BulkRecord {
  std::string_view key = {};
  std::string_view value = {};
};

struct IteratorOptions {
  std::string prefix = {};                // only keys that begin with it
  std::optional<std::string> lower = {};  // inclusive
  std::optional<std::string> upper = {};  // exclusive
};

// A cursor over the records in key order. It reads each leaf at one point in time. Concurrent
// writes to other leaves may or may not be seen. No key is seen twice or skipped.
//   - key() and value() are valid until the iterator moves or is destroyed.
//   - Between two calls it keeps only the records of its leaf, at most 48, from being freed (an
//     iterator of a snapshot: also their old versions), however long it lives.
//   - A process may have 4096 iterators and views. The status of the next one is busy.
//   - After an exception (std::bad_alloc) valid() is false until the next seek.
//   - When its collection is dropped, it goes on to the end of its leaf. Then it is not_found.
class TENUTO_API Iterator {
 public:
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  void seek_first();
  void seek_last();
  // With duplicates seek finds the first value of a key, and seek_for_prev the last one.
  void seek(std::string_view key);           // to the first key >= key
  void seek_for_prev(std::string_view key);  // to the last key <= key
  void next();                               // REQUIRES: valid()
  void prev();                               // REQUIRES: valid()
  // Only with duplicates: to the first pair >= {key, value}; to the first value of the next key; to
  // the last value of the previous key. Without duplicates the last two are next and prev.
  void seek_pair(std::string_view key, std::string_view value);
  void next_key();  // REQUIRES: valid()
  void prev_key();  // REQUIRES: valid()
  bool valid() const;
  std::string_view key() const;    // REQUIRES: valid()
  std::string_view value() const;  // REQUIRES: valid()
  // Milliseconds until the record expires; 0: it does not expire. REQUIRES: valid().
  std::uint64_t ttl_ms() const;
  // Why the iterator is not valid. ok: it is valid, at the end of its range, or not positioned yet.
  // corrupt: damage ended the walk; a record with a damaged key is not skipped. expired: its
  // snapshot has expired. not_found: the collection was dropped. closed: the store was closed, its
  // transaction has ended, or it was moved from. busy: see above. io | forked.
  // invalid_argument until the next seek: the collection cannot have this key or pair.
  // invalid_argument for good: the collection cannot have a bound of the options; it has a
  // registered order, and the options a prefix; or it belongs to another store than the snapshot or
  // transaction.
  Status status() const;

 private:
  friend class Collection;
  friend class Snapshot;
  friend class StoreTransaction;
  struct Impl;
  explicit Iterator(std::unique_ptr<Impl>);
  static Iterator refused(Status why);
  template <class How>
  void go(const How& how);
  std::unique_ptr<Impl> impl_;
};

// A value in place, without a copy. It is valid while the View lives, on any thread. The View keeps
// only this record from being freed.
class TENUTO_API View {
 public:
  View() = default;
  View(View&& o) noexcept;
  View& operator=(View&& o) noexcept;
  ~View();
  std::string_view value() const { return value_; }

 private:
  friend class Collection;
  void* hold_ = nullptr;
  std::string_view value_;
};

class Snapshot;          // tenuto/snapshot.h
class StoreTransaction;  // tenuto/transaction.h
struct TransactionOptions;

// Fork and exit are as for Pool (tenuto/pool.h). In a child of a fork every call of the store, and
// of the collections, iterators, snapshots and transactions that came from it, returns
// Status::forked and does nothing. This includes close and destructors. A child may open the store
// again once its parent has closed it. A store may be in a static object.
//
// The calls on records use the default collection. Collection has the same calls.
class TENUTO_API Store {
 public:
  // Opens the store in the pool file `path`. Creates pool and store as the options say; a new store
  // is as durable on return as a write (PoolOptions::durability). After a crash this recovers, with
  // several threads. exists | not_found | invalid_argument | busy | permission | full (file system)
  // | io | corrupt | not_a_pool | wrong_version | read_only (an unclean pool, opened to read).
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

  // Closes store and pool. A clean close makes the next open fast. REQUIRES: no other thread is in
  // a call, and no Iterator or View of the store is alive; close does not wait for them. Statuses
  // as Pool::close: ok | closed | busy (an object transaction is open) | io, corrupt | forked.
  Status close();

  // Reads the value of a key. ok | not_found | too_large (the key) | corrupt (see
  // StoreOptions::verify_reads) | io (a page of the pool could not be read, now or before:
  // Pool::health) | closed | forked. No fence, no lock.
  Status get(std::string_view key, std::string& value) const;
  Result<std::string> get(std::string_view key) const;
  // As get, without a copy. busy: the process has 4096 iterators and views.
  Result<View> view(std::string_view key) const;
  // Whether the key exists. ok | not_found | too_large | corrupt | io | closed | forked. Does not
  // read the value.
  Status contains(std::string_view key) const;

  // Inserts or replaces. ok | full | too_large (the key, or the record for the pool's size_max) |
  // invalid_argument (the collection cannot have this key, e.g. not 8 bytes in a u64 store) |
  // read_only | corrupt | io | closed | forked. Durability: see WriteOptions. Two fences; an update
  // flushes the record and one line.
  Status put(std::string_view key, std::string_view value, WriteOptions = {});

  // ok | not_found | as put. One fence, one line.
  Status erase(std::string_view key, WriteOptions = {});

  // Inserts. exists: the key exists, and its value is unchanged. Otherwise as put.
  Status put_if_absent(std::string_view key, std::string_view value, WriteOptions = {});
  // Atomically replaces the value, if it is the expected one, by the desired one. expected none:
  // the key does not exist. desired none: erases. conflict: the value is another one, and is
  // unchanged. Otherwise as put.
  Status compare_and_swap(std::string_view key, std::optional<std::string_view> expected,
                          std::optional<std::string_view> desired, WriteOptions = {});
  // Atomically replaces the value by the one that f returns for it. f runs again if another thread
  // changed the key meanwhile. No lock is held while f runs, but f must not write to the store.
  // Otherwise as put.
  Status merge(std::string_view key, const MergeFunction& f, WriteOptions = {});
  // Erases all keys from `from` (inclusive; none: from the first) to `to` (exclusive; none: to the
  // end) in the collection's order, as one batch, and returns their number. Keys that other threads
  // insert there meanwhile may remain. Cost: that of a batch of these erases, and memory for their
  // keys. Statuses as write.
  Result<std::uint64_t> erase_range(std::optional<std::string_view> from,
                                    std::optional<std::string_view> to, WriteOptions = {});

  // A get for each key; the results are in the order of the keys. The keys are not read at one
  // common point in time.
  std::vector<Result<std::string>> multi_get(std::span<const std::string_view> keys) const;
  // The first record with a key >= key (lower), or > key (upper). ok | not_found | as get.
  Result<KeyValue> lower_bound(std::string_view key) const;
  Result<KeyValue> upper_bound(std::string_view key) const;
  // Estimates the number of records in [from, to) from the index, without reading a leaf or record.
  // The error is a few leaves at each end, and how unevenly leaves are filled. The estimate for the
  // whole collection is exact. 0: closed, or the collection was dropped.
  std::uint64_t approximate_count(std::optional<std::string_view> from,
                                  std::optional<std::string_view> to) const;

  // Applies all entries of the batch or none, in any number of collections. Statuses as put;
  // not_found also: a collection was dropped. conflict, expired: the batch erases a key with
  // duplicates, and other threads keep adding pairs to it. invalid_argument also: a collection
  // belongs to another store, or an object transaction of this thread is open on the pool. Three
  // fences for any number of entries, and two for each leaf that it splits.
  Status write(const WriteBatch& batch, WriteOptions = {});

  // Puts all these records into an empty collection, or none of them. The keys must ascend. Several
  // threads build the leaves (PoolOptions::recovery_threads), and all become visible at once. A few
  // fences for any number of records. Statuses as put; exists: the collection is not empty, or was
  // written to meanwhile; busy: a snapshot or transaction is active, or the collection is being
  // dropped; invalid_argument also: the keys do not ascend, or the first one is empty.
  Status bulk_load(std::span<const BulkRecord> sorted, WriteOptions = {});

  // Looks many keys up together, so that their cache misses overlap, and calls
  // each(index, status, value) for all of them in order. Statuses as get. The value is in the pool,
  // and is valid during its call of `each`. The keys are not read at one common point in time.
  Status multi_get(std::span<const std::string_view> keys, const EachValue& each) const;

  // A cursor that is not positioned yet.
  Iterator iterator(IteratorOptions options = {}) const;

  // --- named collections (tenuto/collection.h); all atomic, also in a crash ----------------------
  // Opens a collection, or makes it as the options say. The name has 1..255 bytes. A new one costs
  // as an insert, and the first one of a pool three fences more. ok | exists | not_found |
  // invalid_argument (name, options, a missing codec) | corrupt | full | read_only | closed.
  Result<Collection> collection(std::string_view name, Report* report = nullptr);
  Result<Collection> collection(std::string_view name, const CollectionOptions& options,
                                Report* report = nullptr);
  // The collection that the store's own calls use.
  Collection default_collection() const;
  // The named collections, in order of their names.
  Result<std::vector<CollectionInfo>> collections(Report* report = nullptr) const;
  // Drops a collection with all its records, at the cost of one erase. Its memory is freed when no
  // reader uses it any more. All handles of it return not_found from now on. ok | not_found | busy
  // (a backup reads it) | invalid_argument (name) | corrupt | read_only | closed.
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
  // dropped (busy). exists | corrupt | expired (tenuto/snapshot.h) | full (also the file system) |
  // io | busy | closed.
  Status backup(const std::string& path, const PoolOptions& options, Report* report = nullptr);
  Status backup(const std::string& path, Report* report = nullptr);

  // Erases expired records in all collections with lifetimes, and returns their number. It looks at
  // up to records_max records (0: all), and the next call continues there. Before that it frees the
  // garbage whose readers have ended. Statuses as erase.
  Result<std::uint64_t> reclaim(std::uint64_t records_max = 0);
  // The store's time now, in milliseconds since 1970. Lifetimes count from it. It is the clock's
  // time, and never goes back, also not over a close (WriteOptions::ttl_ms). 0: closed.
  std::uint64_t time_ms() const;

  // Gives back the space that erases and replaced values have left, while other threads read and
  // write. In all collections (it opens them) it merges neighbouring leaves with few records, and
  // moves records out of slabs that are nearly empty. Then it returns free space to the file system
  // (Pool::trim; on medium journal the file keeps its blocks). It works in place and needs room for
  // a few slabs. What views, positioned iterators and snapshots hold stays valid, and it moves no
  // other objects of the pool.
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
  // thread writes records. ok | corrupt | io | closed.
  Status validate(Report* report = nullptr) const;

  KeyKind key_kind() const;
  StoreStats stats() const;
  Pool& pool();  // REQUIRES: not closed, not moved from
  const Pool& pool() const;

 private:
  friend struct StoreImpl;
  explicit Store(std::unique_ptr<struct StoreImpl>);
  std::unique_ptr<struct StoreImpl> impl_;
};

}  // namespace TENUTO_NS
