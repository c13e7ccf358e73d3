// What a transaction has read, to be still so when it commits: ranges of keys, and collections that
// are there. Filled by transaction_state.cc and by the transaction's cursors; asked by batch.cc and
// snapshot_read.cc.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pm/plant.h"
#include "store/tree/clock.h"
#include "store/tree/life.h"

namespace TENUTO_NS::store {

class Tree;
struct SnapshotCore;

// Keys of a tree, both ends inclusive. What was read stays read: a range only ever grows, whichever
// way a cursor goes.
class ReadRange {
 public:
  ReadRange(const Tree& tree, std::string_view key) : tree_(&tree), from_(key), to_(key) {}
  // to, none: to the end of the tree.
  ReadRange(const Tree& tree, std::string_view from, std::optional<std::string_view> to)
      : tree_(&tree), from_(from), to_(to) {}

  const Tree& tree() const { return *tree_; }
  const std::string& from() const { return from_; }
  const std::optional<std::string>& to() const { return to_; }
  bool is_key() const { return to_ && *to_ == from_; }

  void widen_down(std::string_view key) {
    if (key < from_ || TENUTO_PLANT("store_range_read_shrinks")) from_ = key;
  }
  void widen_up(std::optional<std::string_view> key) {
    if (TENUTO_PLANT("store_range_read_shrinks")) {
      to_ = key;
    } else if (!key) {
      to_.reset();
    } else if (to_ && *to_ < *key) {
      to_ = *key;
    }
  }

 private:
  const Tree* tree_;
  std::string from_;
  std::optional<std::string> to_;
};

struct ReadSet {
  std::vector<ReadRange> ranges;
  std::shared_ptr<SnapshotCore> snapshot;  // null: nothing was read
  // Of the collections that were read or are written; a batch's, too.
  std::vector<const CollectionLife*> lives;
  // Records with lifetimes were read: the first of them goes then, by this clock.
  TimeMs holds_until = ~TimeMs{0};
  ExpiryClock* clock = nullptr;

  void hold_until(TimeMs gone_at) {
    if (gone_at != 0) holds_until = std::min(holds_until, gone_at);
  }
  bool expired() const { return holds_until != ~TimeMs{0} && clock->now() >= holds_until; }
};

}  // namespace TENUTO_NS::store
