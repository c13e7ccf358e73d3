// What a transaction has read and wants to write (transaction_state.cc). Made by transaction.cc;
// its cursors (cursor.cc) lay the writes over what they find and note what they walked over.
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
  std::size_t before;                // of this key: index + 1 of the write it overrides, or 0
};

// What a transaction does in one collection. Keys and values as they stand in its tree.
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
  // `write` counts for its key from now on, in the place of what is at `at`.
  void name_again(std::map<std::string_view, std::size_t>::iterator at, std::size_t write);
  bool writes_between(std::string_view low, const UpperBound& end) const;
  // Puts the writes of a leaf with these bounds in the place of its entries.
  void overlay(std::string_view low, const UpperBound& end, std::vector<Entry>& entries) const;

  const std::shared_ptr<CollectionState> state;
  const bool own;                   // the transaction makes it
  const std::deque<Write>& writes;  // the transaction's
  std::unordered_set<std::string, Text, std::equal_to<>> keys_read;
  // Index of the write that counts; keys point into writes.
  std::map<std::string_view, std::size_t> latest;
};

struct TransactionState {
  TransactionState(StoreParts* p, const TransactionOptions& o) : store(p), options(o) {}
  ~TransactionState() { end(); }
  TransactionState(const TransactionState&) = delete;
  TransactionState& operator=(const TransactionState&) = delete;

  // Ready to read: with a snapshot, taken now if there is none.
  Status look();
  Status usable() const;
  // Its part of a collection of this store. not_found: it was dropped.
  Status write_set_of(const std::shared_ptr<CollectionState>& state, WriteSet*& out);
  // What a call that asked whether the collection is there answers.
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

  ReadSet reads;                    // ranges: of cursors; keys are added at the commit
  std::deque<WriteSet> write_sets;  // they stay where they are
  // In the order of the calls; those taken back stay, for cursors may show them.
  std::deque<Write> writes;
  std::vector<std::shared_ptr<CollectionState>> created;  // without names until the commit
  std::vector<std::shared_ptr<CollectionState>> dropped;  // by the commit
  std::vector<std::string> locked;                        // by KeyLocks::name
  bool doomed = false;  // a key for update had changed: the commit would find it, too
  bool torn = false;    // a collection was dropped after this moment: it cannot be seen whole
  bool ended = false;
};

}  // namespace TENUTO_NS::store

namespace TENUTO_NS {

struct StoreTransaction::Impl : store::TransactionState {
  using TransactionState::TransactionState;
};

}  // namespace TENUTO_NS
