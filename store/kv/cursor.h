// A cursor over a tree, in the order of the bytes that stand in it. What a user's iterator makes of
// them: iterator.cc.
//
// A leaf's entries are seen at one moment, in order, and walked; the next leaf is found by
// descending with the bound between the two. The cursor is pinned while it loads a leaf. Between
// two calls, and while it goes on inside its leaf, it rests: it holds the records of this leaf, and
// nothing else that was replaced or erased since (epoch.h). A record is read when the cursor comes
// to it (walk.cc), and asked for some steps before; so is the next leaf.
//
// A collection that is dropped stays for those who rest in it until they leave their leaf, where
// the walk ends with not_found.
//
// A snapshot's cursor sees each leaf as it was at the snapshot's moment; a transaction's, moreover,
// with its own writes laid over, and notes the range it walked over for the commit's validation.
//
// No key is seen twice or skipped although leaves split and vanish meanwhile: whatever leaf comes
// next, the walk goes on behind (or before) the last key it gave.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/kv/collections.h"
#include "store/kv/encoding.h"
#include "store/kv/transaction_state.h"

namespace TENUTO_NS::store {

class Cursor {
 public:
  // Of nothing (state null) it says closed; busy: there are as many cursors as can be. moment:
  // null, each leaf is seen as it is. work and part: null, or the transaction's and what it does in
  // this collection.
  Cursor(std::shared_ptr<CollectionState> state, Span span, std::shared_ptr<SnapshotCore> snapshot,
         std::shared_ptr<TransactionState> txn, WriteSet* write_set);
  ~Cursor();
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  void seek(std::string_view key);  // the first key >= key
  void seek_last();
  void seek_for_prev(std::string_view key);  // the last key <= key
  void next();                               // REQUIRES: valid()
  void prev();                               // REQUIRES: valid()
  bool valid() const { return positioned_; }
  std::string_view key() const { return entries_[at_].record.key; }      // REQUIRES: valid()
  std::string_view value() const { return entries_[at_].record.value; }  // REQUIRES: valid()
  Status status() const;
  // Records are compared with their checksums whatever the store's options say.
  void verify_always() { verify_always_ = true; }
  // Ends the walk for a reason the tree does not know, for good;
  void fail(Status s);
  // or until it is sent somewhere again: the place that was asked for cannot be.
  void refuse(Status s);
  // Stands nowhere, and holds nothing. So it has to, too, when an exception ended a call.
  void leave();

 private:
  void ask_again();
  bool begin();
  bool pin();
  void rest();
  bool load(std::string_view key, Aim aim);
  bool read(std::size_t i, bool for_value);
  bool count_below(std::string_view key, bool inclusive, std::size_t& count);
  bool find_exact(std::string_view key, std::size_t& place);
  void stand_forward(std::size_t i);
  void stand_backward(std::size_t i);
  void prefetch_behind(std::size_t i) const;
  void prefetch_from(std::size_t i) const;
  void stop_forward(const std::string& from, bool inclusive);
  void go_forward(const std::string& from, bool inclusive, std::size_t i);
  void stop_backward(const std::string* from, bool inclusive);
  void note(std::string_view from, std::optional<std::string_view> to);
  std::optional<std::string_view> up_to_here() const;
  std::string_view down_to_here() const;

  static constexpr std::size_t kAhead = 8;  // records

  // Constant.
  const std::shared_ptr<CollectionState> state_;
  EpochSlot* const slot_;  // null: busy
  const Span span_;
  const std::shared_ptr<SnapshotCore> snapshot_;  // null: each leaf as it is
  const std::shared_ptr<TransactionState> txn_;   // null: no transaction's
  WriteSet* const write_set_;                     // of txn_
  std::size_t range_ = 0;                         // of the transaction's reads
  const Tree* tree_ = nullptr;                    // while positioned
  // The leaf at hand.
  std::vector<Entry> entries_;
  UpperBound right_;  // upper bound of its keys
  std::string left_;  // lower bound, inclusive
  std::size_t at_ = 0;
  bool positioned_ = false;
  bool verify_always_ = false;
  bool pinned_ = false;  // and not at rest
  Status status_ = Status::ok;
  Status refusal_ = Status::ok;  // of the last seek
};

}  // namespace TENUTO_NS::store
