// One atomic batch on its way: see batch.cc. Used by Tree::write alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "store/tree/key_sort.h"
#include "store/tree/tree.h"
#include "tx/txn.h"

namespace TENUTO_NS::store {

struct Tree::LockedLeaf {
  Tree* tree;
  ShadowLeaf* shadow;
  std::size_t first, end;  // changes
  bool header_changes;
};

class Tree::Batch {
 public:
  Batch(std::span<const BatchOp> ops, const ReadSet* reads) : ops_(ops), reads_(reads) {}
  ~Batch();

  Status run();
  // Whether it retired more than one thread's list may hold back.
  bool retired_much() const { return retired_bytes_ > Garbage::kBatchBytes; }
  std::uint64_t erased() const { return erased_; }

 private:
  struct Change {
    const BatchOp* op = nullptr;
    PoolOffset record;  // of a put
    KeyHash hash{};
    bool found = false;
    bool kept = false;  // a snapshot keeps the old record
    Place place;        // a hint, from warm()
    unsigned slot = 0;
    SlotWord old_word{};
    std::int64_t old_bytes = 0;

    Tree& tree() const { return *op->tree; }
  };

  VersionStore& versions() const { return ops_.front().tree->versions_; }

  // batch.cc
  Status prepare();
  std::vector<KeyRank> sorted() const;
  void warm(std::size_t from);
  static void prefetch_to_write(const ShadowLeaf& shadow, const Change& c);
  Status lock_next(std::size_t& next);
  Status find_all(LockedLeaf& l, std::size_t& inserts);
  static bool belongs(const Change& c, const LockedLeaf& l);
  Status make_room(LockedLeaf& l, std::size_t inserts);
  void choose_slots(LockedLeaf& l);

  // batch_commit.cc. After save() nothing may fail.
  Status validate();
  Status save(tx::Txn& txn);
  void store();
  void store_header(const LockedLeaf& l);
  void finish();
  void keep(const LockedLeaf& l, Change& c);
  void forget(const LockedLeaf& l);
  static void enter(const LockedLeaf& l, const Change& c);

  const std::span<const BatchOp> ops_;
  std::vector<Change> changes_;
  std::vector<LockedLeaf> locked_;
  std::size_t warmed_ = 0;              // changes before this one were in a group of warm()
  std::vector<const Change*> emptied_;  // one change for each leaf that became empty
  const ReadSet* const reads_;          // null: a plain batch in the default collection
  TimestampWord now_{};
  std::uint64_t retired_bytes_ = 0;
  std::uint64_t erased_ = 0;  // records
};

}  // namespace TENUTO_NS::store
