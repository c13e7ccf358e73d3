// A collection: an ordered map from keys to values, inside a store. Keys have 0..64 KiB and values
// up to the pool's size, of any bytes. (A value lies in one part by which the pool has grown: a
// larger one makes it grow again.) The order is that of bytes (memcmp; a prefix comes before the
// longer key) or another one (KeyOrder). Every operation is atomic, and every acknowledged write
// survives a crash (Durability).
//
// A Store (tenuto/kv.h) is its default collection, and has the calls here. It makes, drops and
// renames named collections. A WriteBatch or a transaction changes several collections together.
//
// Thread safety: any number of threads may use one collection at once. A Collection is a cheap
// handle; its copies name the same collection.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenuto/iterator.h"
#include "tenuto/status.h"
#include "tenuto/store_options.h"

struct tenuto_collection;  // of C

namespace TENUTO_NS {

inline constexpr std::size_t kCollectionNameMax = 255;

struct CollectionOptions {
  bool create_if_missing = true;
  bool error_if_exists = false;  // Status::exists when the collection exists
  // The next four are of a new collection; an existing one keeps its own.
  KeyOrder order = KeyOrder::bytes;
  std::string codec = {};  // with KeyOrder::registered: the name of the codec
  // A key may have many values. A record is then a pair {key, value}, and each pair exists at most
  // once. The values of a key are in byte order (in a reverse KeyOrder, in reverse byte order).
  // Size: key (encoded) + its zero bytes + value + 2 <= 64 KiB, else too_large.
  //   get, view, multi_get     give the first value
  //   put, put_if_absent       add a pair; put_if_absent: exists if the pair exists
  //   erase                    erases all pairs of the key, as one batch; conflict or expired if
  //                            other threads keep adding pairs
  //   compare_and_swap, merge  invalid_argument
  bool duplicates = false;
  // Records may have a lifetime: see WriteOptions::ttl_ms. No call sees an expired record, and its
  // memory is reclaimed later (Store::reclaim). Costs eight bytes for each record.
  bool expires = false;
  // invalid_argument when order, codec, duplicates or expires of an existing collection differ.
  bool check_order = false;
};

struct CollectionStats {
  std::uint64_t records = 0;  // also expired ones that are not reclaimed yet
  // Keys and values as they are stored: encoded keys and values of a codec, eight bytes for a
  // lifetime, some for a pair of a collection with duplicates. The first call of stats() after a
  // crash, also if the pool was closed since, reads all records for it. Then it may throw
  // bad_alloc, it may find damage (Pool::health), and what other threads write meanwhile may be
  // missing.
  std::uint64_t record_bytes = 0;
  std::uint64_t leaves = 0;
  std::uint64_t inner_nodes = 0;         // DRAM
  std::uint64_t height = 0;              // inner levels
  std::uint64_t index_dram_bytes = 0;    // without the lookup cache
  std::uint64_t lookup_cache_bytes = 0;  // DRAM: StoreOptions::lookup_cache_bytes
  std::uint64_t shadow_leaves = 0;       // leaves with a part in DRAM: read since the open
};

// Returns the new value for an old one. Old none: there is no record. New none: erases the key.
using MergeFunction =
    std::function<std::optional<std::string>(std::optional<std::string_view> old)>;

struct KeyValue {
  std::string key;
  std::string value;
};

// For multi_get: the index of the key, the status that get has for it, and its value.
using EachValue = std::function<void(std::size_t, Status, std::string_view)>;

// A record for bulk_load. The bytes must stay until the call returns.
struct BulkRecord {
  std::string_view key = {};
  std::string_view value = {};
};

// Every call may return closed (the store was closed, or the handle is empty), forked, and
// not_found (the collection was dropped; status() tells this from a missing key). A call that walks
// (bounds, ranges, keys with duplicates) may return busy: the process has 4096 iterators and views.
// After a drop a view keeps its value, and a positioned iterator keeps its leaf.
class TENUTO_API Collection {
 public:
  Collection() = default;  // an empty handle
  // Copies only: a move from a Store would leave it without its records.
  Collection(const Collection&) = default;
  Collection& operator=(const Collection&) = default;

  // Reads the value of a key. ok | not_found | too_large (the key) | corrupt (see
  // StoreOptions::verify_reads) | io (a page of the pool could not be read, now or before:
  // Pool::health) | closed | forked. No fence, no lock.
  Status get(std::string_view key, std::string& value) const;
  Result<std::string> get(std::string_view key) const;
  // As get, into the caller's memory: copies the value, or as much of it as fits. Returns its size.
  Result<std::size_t> get(std::string_view key, std::span<char> to) const;
  // As get, without a copy. busy: the process has 4096 iterators and views.
  Result<View> view(std::string_view key) const;
  // Whether the key exists. ok | not_found | too_large | corrupt | io | closed | forked. Does not
  // read the value.
  Status contains(std::string_view key) const;
  // A get for each key; the results are in the order of the keys. The keys are not read at one
  // common point in time.
  std::vector<Result<std::string>> multi_get(std::span<const std::string_view> keys) const;
  // Looks many keys up together, so that their cache misses overlap, and calls
  // each(index, status, value) for all of them in order. Statuses as get. The value is in the pool,
  // and is valid during its call of `each`. The keys are not read at one common point in time.
  Status multi_get(std::span<const std::string_view> keys, const EachValue& each) const;
  // lower_bound: the first record with a key >= key. upper_bound: the first with a key > key.
  // ok | not_found | as get.
  Result<KeyValue> lower_bound(std::string_view key) const;
  Result<KeyValue> upper_bound(std::string_view key) const;
  // A cursor that is not positioned yet.
  Iterator iterator(IteratorOptions options = {}) const;
  // Estimates the number of records in [from, to) from the index, without reading a leaf or record.
  // The error is a few leaves at each end, and how unevenly leaves are filled. The estimate for the
  // whole collection is exact, with expired records until they are reclaimed. 0 also: closed,
  // dropped, or a bound that its codec refuses.
  std::uint64_t approximate_count(std::optional<std::string_view> from,
                                  std::optional<std::string_view> to) const;

  // Inserts or replaces. ok | full | too_large (the key, or the record for the pool's size_max) |
  // invalid_argument (the collection cannot have this key, e.g. not 8 bytes in order u64) |
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
  // keys. Statuses as Store::write. Expired records stay until they are reclaimed.
  Result<std::uint64_t> erase_range(std::optional<std::string_view> from,
                                    std::optional<std::string_view> to, WriteOptions = {});
  // Puts all these records into an empty collection, or none of them. The keys must ascend. Several
  // threads build the leaves (PoolOptions::recovery_threads), and all become visible at once. A few
  // fences for any number of records. Statuses as put; exists: the collection is not empty
  // (an expired record counts until Store::reclaim), or was written to meanwhile; busy: a snapshot
  // or transaction is active, or the collection is being dropped; invalid_argument also: the keys
  // do not ascend, or the first one is empty.
  Status bulk_load(std::span<const BulkRecord> sorted, WriteOptions = {});

  // For collections with duplicates, else invalid_argument. Otherwise as contains and erase.
  Status contains_pair(std::string_view key, std::string_view value) const;
  Status erase_pair(std::string_view key, std::string_view value, WriteOptions = {});
  Result<std::uint64_t> count(std::string_view key) const;  // the number of values of the key
  // The milliseconds until the record expires; 0: it does not expire. With duplicates: of the first
  // value. Statuses as get.
  Result<std::uint64_t> ttl_ms(std::string_view key) const;
  // Gives the record a new lifetime, options.ttl_ms from now (0: it does not expire), and keeps its
  // value, in one atomic step. With duplicates: all values of the key, as one batch (to touch one
  // of them, put the pair again). A snapshot still sees the old lifetime. not_found: there is no
  // such record, or it has expired. invalid_argument: nothing expires in this collection. corrupt:
  // the record is damaged. conflict or expired: as erase, with duplicates. Otherwise as put, also
  // in its cost and durability: the record is copied to a new block.
  Status touch(std::string_view key, WriteOptions options);

  std::string name() const;  // "": the default collection, or an empty handle
  std::uint64_t id() const;  // never reused in a pool; 0: the default collection, or empty handle
  KeyOrder order() const;    // bytes: also an empty handle
  std::string codec() const;
  bool duplicates() const;
  bool expires() const;
  CollectionStats stats() const;
  // Whether the collection can be used: ok | not_found (dropped) | closed | forked.
  Status status() const;

 private:
  friend struct ::tenuto_collection;
  friend class Snapshot;
  friend class Store;
  friend class StoreTransaction;
  friend class WriteBatch;
  friend struct StoreImpl;
  explicit Collection(std::shared_ptr<struct CollectionState> state) : state_(std::move(state)) {}

  Iterator pairs_of(std::string_view key) const;
  Status erase_stored(std::string_view stored, WriteOptions options);
  // A merge by a function that may refuse: then nothing changes, and its status is returned.
  using RefusingMerge =
      std::function<Result<std::optional<std::string>>(std::optional<std::string_view> old)>;
  Status merge_or_refuse(std::string_view key, const RefusingMerge& f, WriteOptions options);

  std::shared_ptr<struct CollectionState> state_;
};

// The key of a record in a batch, transaction or snapshot: tx.put("7", "open") is in the default
// collection, and tx.put({orders, "7"}, "open") in the collection `orders`. It refers to both, so
// it is only an argument.
struct RecordKey {
  template <std::convertible_to<std::string_view> Key>
  RecordKey(const Key& k) : key(k) {}
  RecordKey(const Collection& c, std::string_view k) : collection(&c), key(k) {}

  const Collection* collection = nullptr;  // null: the default one
  std::string_view key;
};

}  // namespace TENUTO_NS
