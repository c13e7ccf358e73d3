// What a transaction has read and wants to write. Its cursors (cursor.cc) lay the writes over what
// they find, and note what they walk over.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "store/kv/store_parts.h"
#include "store/tree/tree.h"
#include "tenuto/transaction.h"

namespace TENUTO_NS::store {

struct WriteSet;

struct Write {
  WriteSet* write_set;
  std::string key;
  std::optional<std::string> value;  // none: erase
  std::size_t before;                // index + 1 of the key's write that this one overrides, or 0
  std::size_t undone = 0;            // so many writes, up to this one, were rolled back
};

// The reads and writes of a transaction in one collection. Keys and values as they are stored.
struct WriteSet {
  struct Text {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };

  WriteSet(std::shared_ptr<CollectionState> s, bool o, const std::deque<Write>& w)
      : state(std::move(s)), own(o), writes(w) {}

  // ok | not_found | closed.
  Status alive() const { return own ? state->life.alive_to_maker() : state->alive(); }

  const Write* written(std::string_view key) const;
  // Makes `write` the latest of its key, in the place of the entry at `at`.
  void name_again(std::map<std::string_view, std::size_t>::iterator at, std::size_t write);
  bool writes_between(std::string_view low, const UpperBound& end) const;
  // Narrows these bounds, which are a leaf's, to what a walk from `key` (none: from the end) meets
  // first: kLaidOver writes. A transaction may have any number of writes for one leaf, and would
  // lay all of them over it for each seek.
  void narrow(std::optional<std::string_view> key, bool backward, std::string& low,
              UpperBound& end) const;
  // Lays the writes between these bounds over a leaf's entries, and leaves out what is outside.
  void overlay(std::string_view low, const UpperBound& end, std::vector<Entry>& entries) const;
  static constexpr int kLaidOver = 64;

  const std::shared_ptr<CollectionState> state;
  const bool own;                   // the transaction makes the collection
  const std::deque<Write>& writes;  // the transaction's
  std::unordered_set<std::string, Text, std::equal_to<>> keys_read;
  // The index of each key's latest write. The keys point into `writes`.
  std::map<std::string_view, std::size_t> latest;
};

struct TransactionState {
  TransactionState(StoreParts* p, const TransactionOptions& o) : store(p), options(o) {}
  ~TransactionState() { end(); }
  TransactionState(const TransactionState&) = delete;
  TransactionState& operator=(const TransactionState&) = delete;

  // Makes it ready to read: takes a snapshot if there is none.
  Status look();
  Status usable() const;
  // The write set of a collection of this store. not_found: the collection was dropped.
  Status write_set_of(const std::shared_ptr<CollectionState>& state, WriteSet*& out);
  // Takes and returns a collection's status. If it was dropped after the snapshot, `torn` is set.
  Status met(const CollectionState& state, Status s);
  Status write(WriteSet& write_set, std::string_view key, std::optional<std::string_view> value);
  bool wrote() const;
  bool drops(const WriteSet& write_set) const;
  void rollback_to(std::size_t count);
  Status commit();
  Status try_commit();
  void end();

  // Constant.
  StoreParts* const store;
  const std::shared_ptr<CollectionState> main =
      store == nullptr ? nullptr : store->collections.main();
  const TransactionOptions options;
  const std::shared_ptr<VersionStore> versions = store == nullptr ? nullptr : store->versions;

  ReadSet reads;                    // ranges of cursors; keys are added at the commit
  std::deque<WriteSet> write_sets;  // a deque: cursors point to them
  // In the order of the calls. Those rolled back stay: a cursor may show them.
  std::deque<Write> writes;
  std::vector<std::shared_ptr<CollectionState>> created;  // unnamed until the commit
  std::vector<std::shared_ptr<CollectionState>> dropped;  // by the commit
  std::vector<std::string> locked;                        // by KeyLocks::name
  bool doomed = false;  // a key for update had changed: the commit cannot succeed
  bool torn = false;    // a collection was dropped after the snapshot, which is not whole now
  bool ended = false;
};

}  // namespace TENUTO_NS::store

namespace TENUTO_NS {

struct StoreTransaction::Impl : store::TransactionState {
  using TransactionState::TransactionState;
};

}  // namespace TENUTO_NS
