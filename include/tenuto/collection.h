// Named collections: separate ordered maps inside one store. A collection is made, dropped and
// renamed atomically, also in a crash. A WriteBatch or a transaction changes several collections
// together. The calls of Store use its default collection, which has no name and always exists.
//
// Thread safety: as Store. A Collection is a cheap handle; its copies name the same collection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenuto/kv.h"
#include "tenuto/status.h"

namespace TENUTO_NS {

inline constexpr std::size_t kCollectionNameMax = 255;

// How a collection orders its keys.
enum class KeyOrder : std::uint8_t {
  bytes = 1,        // memcmp; a prefix comes before the longer key
  u64 = 2,          // 8-byte integers by number; u64_key() makes them
  reverse = 3,      // the reverse of bytes; costs nothing
  reverse_u64 = 4,  // the reverse of u64
  registered = 5,   // the order of a KeyCodec in StoreOptions::codecs
};

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

struct RenameOptions {
  bool replace = false;  // drops a collection that has the new name, in the same atomic step
};

struct CollectionStats {
  std::uint64_t records = 0;       // also expired ones that are not reclaimed yet
  std::uint64_t record_bytes = 0;  // keys and values
  std::uint64_t leaves = 0;
  std::uint64_t inner_nodes = 0;  // DRAM
  std::uint64_t height = 0;       // inner levels
  std::uint64_t index_dram_bytes = 0;
};

// Every call may return closed (the store was closed, or the handle is empty), forked, and
// not_found (the collection was dropped; status() tells this from a missing key). After a drop a
// view keeps its value, and a positioned iterator keeps its leaf. Otherwise each call is that of
// Store with the same name (tenuto/kv.h): there are its meaning, statuses and cost.
class TENUTO_API Collection {
 public:
  Collection() = default;  // an empty handle

  Status get(std::string_view key, std::string& value) const;
  Result<std::string> get(std::string_view key) const;
  Result<View> view(std::string_view key) const;
  Status contains(std::string_view key) const;
  Status put(std::string_view key, std::string_view value, WriteOptions = {});
  Status erase(std::string_view key, WriteOptions = {});
  Status put_if_absent(std::string_view key, std::string_view value, WriteOptions = {});
  Status compare_and_swap(std::string_view key, std::optional<std::string_view> expected,
                          std::optional<std::string_view> desired, WriteOptions = {});
  Status merge(std::string_view key, const MergeFunction& f, WriteOptions = {});
  Result<std::uint64_t> erase_range(std::optional<std::string_view> from,
                                    std::optional<std::string_view> to, WriteOptions = {});
  Status bulk_load(std::span<const BulkRecord> sorted, WriteOptions = {});
  std::vector<Result<std::string>> multi_get(std::span<const std::string_view> keys) const;
  Status multi_get(std::span<const std::string_view> keys, const EachValue& each) const;
  Result<KeyValue> lower_bound(std::string_view key) const;
  Result<KeyValue> upper_bound(std::string_view key) const;
  std::uint64_t approximate_count(std::optional<std::string_view> from,
                                  std::optional<std::string_view> to) const;
  Iterator iterator(IteratorOptions options = {}) const;

  // For collections with duplicates, else invalid_argument. Otherwise as contains and erase.
  Status contains_pair(std::string_view key, std::string_view value) const;
  Status erase_pair(std::string_view key, std::string_view value, WriteOptions = {});
  Result<std::uint64_t> count(std::string_view key) const;  // the number of values of the key
  // The milliseconds until the record expires; 0: it does not expire. With duplicates: of the first
  // value. Statuses as get.
  Result<std::uint64_t> ttl_ms(std::string_view key) const;

  std::string name() const;  // "": the default collection, or an empty handle
  std::uint64_t id() const;  // never reused in a pool; 0: the default collection, or empty handle
  KeyOrder order() const;
  std::string codec() const;
  bool duplicates() const;
  bool expires() const;
  CollectionStats stats() const;
  // Whether the collection can be used: ok | not_found (dropped) | closed | forked.
  Status status() const;

 private:
  friend class Snapshot;
  friend class Store;
  friend class StoreTransaction;
  friend class WriteBatch;
  friend struct StoreImpl;
  explicit Collection(std::shared_ptr<struct CollectionState> state) : state_(std::move(state)) {}

  Iterator pairs_of(std::string_view key) const;
  Status erase_stored(std::string_view stored, WriteOptions options);

  std::shared_ptr<struct CollectionState> state_;
};

}  // namespace TENUTO_NS
