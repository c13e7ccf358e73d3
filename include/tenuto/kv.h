// The ordered key-value store: keys of 0..64 KiB, values up to the pool's size, any bytes, ordered
// by bytes (memcmp, shorter first) or, in a u64 store, by number. Every acknowledged write
// survives a crash (see Durability); every operation is atomic.
//
// Thread safety: one Store is used from any number of threads at once; Iterator, WriteBatch and
// ReadGuard belong to one thread at a time. Nothing here throws; look at every Status.
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

// Makes a new value of the old one (none: the key is not there); no new value erases the key.
using MergeFunction =
    std::function<std::optional<std::string>(std::optional<std::string_view> old)>;

struct KeyValue {
  std::string key;
  std::string value;
};

// Of multi_get: which key, what get says of it, its value.
using EachValue = std::function<void(std::size_t, Status, std::string_view)>;

// What Store::collections() tells of one.
struct CollectionInfo {
  std::string name;
  std::uint64_t id = 0;  // never given twice in a pool
  KeyOrder order{};
  std::string codec = {};
  bool duplicates = false;
  bool expires = false;
};

// Puts and erases that become durable together or not at all. A later entry for the same key
// overrides an earlier one. Copies what it is given.
class WriteBatch {
 public:
  // In the default collection,
  void put(std::string_view key, std::string_view value);
  void erase(std::string_view key);
  // and in others of the same store.
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

// A record to be loaded. Not copied before it is written.
struct BulkRecord {
  std::string_view key;
  std::string_view value;
};

struct IteratorOptions {
  std::string prefix;                // only keys that start with it
  std::optional<std::string> lower;  // inclusive
  std::optional<std::string> upper;  // exclusive
};

// A cursor over the keys in order. Each leaf is seen at one moment; writes that happen elsewhere
// meanwhile may or may not be seen; no key is seen twice or skipped. key() and value() stay valid
// until the iterator moves or dies. Between two calls it holds back the records of the leaf it
// stands in, 48 at most (a snapshot's: and what they replaced), and nothing else that is replaced
// or erased meanwhile, however long it lives. 4096 iterators and views are alive at most, in a
// process: the next one says busy. A call that an exception ends (std::bad_alloc) leaves it
// nowhere: valid() is false until it is sent somewhere again. When its collection is dropped it
// goes on to the end of its leaf; then not_found.
class Iterator {
 public:
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  void seek_first();
  void seek_last();
  // Of duplicates seek finds a key's first value, seek_for_prev its last.
  void seek(std::string_view key);           // the first key >= key
  void seek_for_prev(std::string_view key);  // the last key <= key
  void next();                               // REQUIRES: valid()
  void prev();                               // REQUIRES: valid()
  // Where there are duplicates: the first pair >= {key, value}, and past what else the key has.
  void seek_pair(std::string_view key, std::string_view value);
  void next_key();  // to the next key's first value. REQUIRES: valid()
  void prev_key();  // to the key's before, its last value. REQUIRES: valid()
  bool valid() const;
  std::string_view key() const;    // REQUIRES: valid()
  std::string_view value() const;  // REQUIRES: valid()
  std::uint64_t ttl_ms() const;    // what the record has left; 0: it stays. REQUIRES: valid()
  // ok | corrupt (damage ended the walk) | io | busy (too many of them) | not_found (the collection
  // was dropped) | closed (a closed store's, one moved from) |
  // invalid_argument (a bound or key that the collection cannot have, a prefix where a codec gives
  // the order, a collection of another store than its snapshot or transaction; of a key or pair
  // until the next seek, else for good). No record is passed over because its key was damaged.
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

// A record seen in place, without a copy. Valid while the View lives, on whatever thread. It holds
// back this record, and nothing else that is replaced or erased meanwhile.
class View {
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

// Fork and exit are as for Pool (tenuto/pool.h): in a child of fork every call of the store and of
// all that came from it (collections, iterators, snapshots, transactions) returns Status::forked
// and does nothing, close and destructors included; a child opens the store anew once its parent
// has closed it. A store may stand in a static object.
class Store {
 public:
  // Opens the store in the pool file `path`, creating pool and store as the options say; what it
  // creates is as durable on return as a write (PoolOptions::durability).
  // Statuses: exists, not_found, invalid_argument, busy, permission, full (file system), io,
  // corrupt, not_a_pool, wrong_version; `report` tells more. Recovery runs here, in parallel.
  static Result<Store> open(std::string_view path, const StoreOptions& options = {},
                            Report* report = nullptr);
  // The store of a pool that is open: `options.pool` means nothing. Where it fails the pool stays
  // the caller's, as it is; not_found: it holds no store.
  static Result<Store> open(Pool&& pool, const StoreOptions& options = {},
                            Report* report = nullptr);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();  // closes

  // Waits for nobody: REQUIRES that no other thread is inside a call and no Iterator or View of it
  // is alive. A clean close makes the next open fast. io when the last write-back failed.
  Status close();

  // ok | not_found | too_large (key) | corrupt (see StoreOptions::verify_reads) | io (a page of the
  // pool could not be read, now or before: Pool::health) | closed.
  Status get(std::string_view key, std::string& value) const;
  Result<std::string> get(std::string_view key) const;
  // As get; busy: 4096 iterators and views are alive.
  Result<View> view(std::string_view key) const;
  // Whether the key is there: ok | not_found | too_large | corrupt | io | closed. The value is not
  // looked at.
  Status contains(std::string_view key) const;

  // Inserts or replaces. ok | full (nothing changed) | too_large (the key, or a record above the
  // pool's size_max) | invalid_argument (a key of a u64 store that is not 8 bytes) | read_only |
  // corrupt | closed.
  // Durability: see WriteOptions. Two fences; an update flushes the record and one line.
  Status put(std::string_view key, std::string_view value, WriteOptions = {});

  // ok | not_found | as put. One fence, one line.
  Status erase(std::string_view key, WriteOptions = {});

  // Inserts. exists: the key is there, and stays as it is. Else as put.
  Status put_if_absent(std::string_view key, std::string_view value, WriteOptions = {});
  // Replaces a value that is the expected one (none: the key is not there) by the desired one
  // (none: erases), in one step. conflict: it is another, and stays. Else as put.
  Status compare_and_swap(std::string_view key, std::optional<std::string_view> expected,
                          std::optional<std::string_view> desired, WriteOptions = {});
  // The new value is what f makes of the old one, in one step. f is called again when another
  // thread was quicker; no lock is held meanwhile, but it must not write to the store. Else as put.
  Status merge(std::string_view key, const MergeFunction& f, WriteOptions = {});
  // Erases the keys from `from` (inclusive; none: from the first) to `to` (exclusive; none: to the
  // end), in the collection's order, all at once, and
  // says how many. What others insert there meanwhile may stay. Costs as a batch of these erases,
  // and memory for their keys. Statuses as write.
  Result<std::uint64_t> erase_range(std::optional<std::string_view> from,
                                    std::optional<std::string_view> to, WriteOptions = {});

  // What get says of each key, in the order of the keys; each is seen at a moment of its own.
  std::vector<Result<std::string>> multi_get(std::span<const std::string_view> keys) const;
  // The first record whose key is >= key, or > key. ok | not_found | as get.
  Result<KeyValue> lower_bound(std::string_view key) const;
  Result<KeyValue> upper_bound(std::string_view key) const;
  // How many records the range has, about: told from the index, with no leaf and no record read.
  // Good to some leaves at each end and to how evenly leaves are filled; of everything it is exact.
  std::uint64_t approximate_count(std::optional<std::string_view> from,
                                  std::optional<std::string_view> to) const;

  // Applies all of the batch or nothing, in however many collections. As put; not_found when one of
  // them was dropped; conflict when it erases all values of a key to which others do not stop to
  // add some; invalid_argument also when one is of another store, and inside a transaction
  // of this thread on the pool. Three fences, however many entries (and two for each leaf it
  // splits).
  Status write(const WriteBatch& batch, WriteOptions = {});

  // Puts all of these, whose keys ascend, into an empty store, or nothing of them: leaves are built
  // in order by several threads (PoolOptions::recovery_threads) and shown at once. A handful of
  // fences, whatever their number. As put; exists: the store is not empty, or was written to
  // meanwhile; busy: a snapshot or transaction is active; invalid_argument: the keys do not ascend,
  // or the first one is empty.
  Status bulk_load(std::span<const BulkRecord> sorted, WriteOptions = {});

  // Looks many keys up at once, so that the misses of one are waited for beside the others', and
  // calls each(index, status, value) for all of them in order; statuses as of get. The value lies
  // in the pool and stays there during the call. Keys are looked up one by one, not at one moment.
  Status multi_get(std::span<const std::string_view> keys, const EachValue& each) const;

  // A cursor, not yet positioned.
  Iterator iterator(IteratorOptions options = {}) const;

  // --- named collections (tenuto/collection.h); all atomic, also in a crash ----------------------
  // Opens it, or makes it: as a put; the first one, three fences more. ok | exists, not_found,
  // invalid_argument (name, options) | corrupt | full | read_only | closed.
  Result<Collection> collection(std::string_view name, Report* report = nullptr);
  Result<Collection> collection(std::string_view name, const CollectionOptions& options,
                                Report* report = nullptr);
  // The one that the store's own calls use.
  Collection default_collection() const;
  // The others, by name.
  Result<std::vector<CollectionInfo>> collections(Report* report = nullptr) const;
  // Drops it with all its records, at the cost of one erase; its memory is given back once nobody
  // looks at it any more. Handles of it answer not_found from now on. ok | not_found | corrupt |
  // read_only | closed.
  Status drop(std::string_view name, Report* report = nullptr);
  // Handles stay good. As drop; exists, when there is one with the new name that the options do not
  // allow to be replaced | full. invalid_argument inside a transaction of this thread.
  Status rename(std::string_view from, std::string_view to, Report* report = nullptr);
  Status rename(std::string_view from, std::string_view to, const RenameOptions& options,
                Report* report = nullptr);

  // The store as it is now, for reads; see tenuto/snapshot.h. busy (65535 are active) | closed.
  Result<Snapshot> snapshot() const;

  // Transactions; see tenuto/transaction.h. Of a closed store: all its calls answer closed.
  StoreTransaction begin() const;
  StoreTransaction begin(const TransactionOptions& options) const;
  // Calls f in a transaction and commits when it returns ok; any other status rolls back and is
  // returned, but for conflict and expired, after which it begins anew, later each time, so f is
  // called more than once. conflict: there were too many attempts.
  Status run(const std::function<Status(StoreTransaction&)>& f) const;
  Status run(const std::function<Status(StoreTransaction&)>& f,
             const TransactionOptions& options) const;

  // Writes all collections as they are at one moment to a new pool file, while others go on reading
  // and writing. The file gets its name when it is complete, so a backup cut short is not taken for
  // one. Every record is compared with its checksum, whatever verify_reads says, and the counts
  // with the store's own. A collection cannot be dropped meanwhile (busy). exists | corrupt |
  // expired (see snapshot.h) | full (also: the file system) | io | busy | closed.
  Status backup(const std::string& path, const PoolOptions& options, Report* report = nullptr);
  Status backup(const std::string& path, Report* report = nullptr);

  // Erases what has expired, wherever anything can; looks at records_max records at most (0: all),
  // going on where the last call ended, and says how many it erased. Frees, before, what was
  // replaced or erased and only waited for calls that have ended. Statuses as erase.
  Result<std::uint64_t> reclaim(std::uint64_t records_max = 0);
  // The time by which records expire now, in milliseconds since 1970: the clock's, and never less
  // than it was, in this life or one before (WriteOptions::ttl_ms). What a record has left counts
  // from here. 0: closed.
  std::uint64_t time_ms() const;

  // Gives space back that erases and replaced values left behind, beside readers and writers: in
  // all collections (it opens them) neighbouring leaves with few records become one, records leave
  // slabs that are nearly empty, and what is then free goes back to the file system (Pool::trim;
  // under medium journal the file keeps its blocks). In place: it needs room for a few slabs. What
  // views, positioned iterators and snapshots hold stays, as do the pool's other
  // objects. Three fences a merged leaf, two a leaf with records to move, one of which its writers
  // may wait for. ok | busy (another one is under way) | invalid_argument (options, or inside a
  // transaction of this thread) | read_only | corrupt (a damaged record is not moved; without
  // moves_max every record is read and compared with its checksum) | io | closed.
  Result<CompactStats> compact(const CompactOptions& options = {}, Report* report = nullptr);

  // Everything acknowledged before is durable when this returns.
  Status sync();

  // Walks the whole store: order, record checksums, heap (each allocated block is reachable, once).
  // Who makes, drops or compacts collections meanwhile waits. REQUIRES: nobody writes records.
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
