// Named collections: ordered maps of their own inside one store. They are made, dropped and renamed
// atomically, survive crashes as everything does, and a WriteBatch changes several of them
// together. The store's own calls are those of its default collection, which has no name and is
// always there.
//
// Thread safety: as Store. A Collection is a cheap handle; copies of it are the same collection.
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
  bytes = 1,        // memcmp, shorter first
  u64 = 2,          // 8-byte integers by number; pass them through u64_key()
  reverse = 3,      // bytes the other way round, which costs nothing
  reverse_u64 = 4,  // u64 the other way round
  registered = 5,   // as a KeyCodec of the store's options says
};

struct CollectionOptions {
  bool create_if_missing = true;
  bool error_if_exists = false;  // Status::exists when it is there
  // Of a new collection; an existing one keeps its own.
  KeyOrder order = KeyOrder::bytes;
  std::string codec = {};  // with KeyOrder::registered: its name
  // Each key may have many values, kept in order (of bytes; with a reverse order, reverse): a
  // record is a pair, which is there once. Key and value together have about 64 KiB, less the zero
  // bytes in the key. put adds a pair, and put_if_absent says exists when it is there; get, view
  // and multi_get give the first value; erase takes all there are at one moment, in a batch,
  // and says conflict when others do not stop to add some meanwhile; compare_and_swap and
  // merge are invalid_argument.
  bool duplicates = false;
  // Records may have a lifetime: see WriteOptions::ttl_ms. What has expired is not there for any
  // call from then on, and is reclaimed later (Store::reclaim). Costs eight bytes a record.
  bool expires = false;
  // invalid_argument when order, codec, duplicates or expires of an existing collection differ.
  bool check_order = false;
};

struct RenameOptions {
  bool replace = false;  // drops, in the same step, a collection that has the new name
};

struct CollectionStats {
  std::uint64_t records = 0;       // expired ones that were not reclaimed, too
  std::uint64_t record_bytes = 0;  // keys and values
  std::uint64_t leaves = 0;
  std::uint64_t inner_nodes = 0;  // DRAM
  std::uint64_t height = 0;       // inner levels
  std::uint64_t index_dram_bytes = 0;
};

// Every call: closed when the store was closed or the handle is empty; not_found when the
// collection was dropped, which leaves views what they see and iterators the leaf in which they
// stand. Otherwise as the calls of Store, which say more.
class Collection {
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

  // Of duplicates. invalid_argument: the collection has none. Else as contains and erase.
  Status contains_pair(std::string_view key, std::string_view value) const;
  Status erase_pair(std::string_view key, std::string_view value, WriteOptions = {});
  Result<std::uint64_t> count(std::string_view key) const;  // how many values the key has
  // How many milliseconds a record has left; 0: it stays. Of duplicates the first one's.
  Result<std::uint64_t> ttl_ms(std::string_view key) const;

  std::string name() const;  // "" of the default collection
  std::uint64_t id() const;  // never given twice in a pool; 0: the default collection
  KeyOrder order() const;
  std::string codec() const;
  bool duplicates() const;
  bool expires() const;
  CollectionStats stats() const;
  // ok | not_found | closed.
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
