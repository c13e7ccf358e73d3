// The read set of a transaction: ranges of keys, and collections that exist. All of it must still
// be so at the commit (versions.h). Transactions and their cursors fill it (transaction_state.cc,
// cursor.cc). A commit validates it (batch.cc, snapshot_read.cc).
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

// Keys of a tree, both ends inclusive. A range only grows, whichever way a cursor moves.
class ReadRange {
 public:
  ReadRange(const Tree& tree, std::string_view key) : tree_(&tree), from_(key), to_(key) {}
  // to == none: to the end of the tree.
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
  // Of collections that were read or are written; also for a plain batch.
  std::vector<const CollectionLife*> lives;
  // The first of the records with lifetimes that were read expires then, by this clock.
  TimeMs holds_until = ~TimeMs{0};
  ExpiryClock* clock = nullptr;

  void hold_until(TimeMs gone_at) {
    if (gone_at != 0) holds_until = std::min(holds_until, gone_at);
  }
  bool expired() const { return holds_until != ~TimeMs{0} && clock->now() >= holds_until; }
};

}  // namespace TENUTO_NS::store
