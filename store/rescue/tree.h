// The rescue of one tree: the leaves that salvage.cc believes, and the records of their entries.
#pragma once

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "store/kv/catalog.h"
#include "store/rescue/parts.h"
#include "store/tree/salvage.h"

namespace TENUTO_NS::store {

// What the rescues of all trees share.
struct RescueGround {
  pm::PoolFile& file;
  const RescueOptions& options;
  RescueResult& result;
  std::optional<FoundSlabs> slabs = {};
  std::unordered_set<std::uint64_t> accounted = {};  // blocks whose use is known
  bool doubtful = false;      // something was lost that belongs to no single tree
  bool any_key_lost = false;  // the journal lost something, which may be any key

  void lose(RescueLoss loss);
};

class TreeRescue {
 public:
  // again: the first leaf's offset by its second name, or 0. expected: the number of records at the
  // clean close, if known.
  TreeRescue(RescueGround& ground, const CatalogEntry& entry, PoolOffset again,
             std::optional<std::uint64_t> expected)
      : ground_(ground),
        entry_(entry),
        salvage_(ground.file, *ground.slabs, entry.id, entry.first_leaf, again),
        expected_(expected) {}

  // Finds and judges the leaves. Writes nothing.
  void find();
  const CatalogEntry& entry() const { return entry_; }
  bool anything() const { return !salvage_.live().empty() || !salvage_.unproven().empty(); }
  std::size_t leaves() const { return salvage_.live().size(); }
  // Whether, after a clean close, nothing is missing in the leaves that were taken so far.
  bool whole() const { return leaves_are_all_ && !lost_; }

  // Calls f with each record of the live leaves.
  using Take = std::function<Status(const Record&)>;
  Status take_leaves(const Take& f);
  // Takes records that may be old. REQUIRES: all current records were written.
  Status take_unproven(Writer& out);
  // One record that may be old. If its key is in no lost range it is old, and skipped. So it is if
  // a current record has its key. Otherwise it is taken with `scavenge`, and without it counted.
  Status may_be_old(const Record& r, Writer& out);
  bool key_fits(const Record& r) const {
    return entry_.spec.tree_order() != KeyOrder::u64 || r.key.size() == sizeof(U64Key);
  }

 private:
  void lose(Report report, bool about_keys, std::string from = {},
            std::optional<std::string> to = {});
  void note_gaps();
  void compare_with_image();
  void judge_leaves();
  std::optional<std::string> end_of(std::size_t i) const;  // of a live leaf
  bool bitmap_known(const Leaf& leaf) const;
  bool read_sound(SlotWord word, const std::uint8_t* fingerprint, Record& r) const;
  Status take_leaf(std::size_t i, const Take& f);
  Status take_slots(PoolOffset at, std::uint64_t slots, Writer& out);

  RescueGround& ground_;
  const CatalogEntry entry_;
  Salvage salvage_;
  const std::optional<std::uint64_t> expected_;
  std::unordered_set<std::string> unproven_keys_;
  KeyRanges lost_keys_;
  bool lost_keys_sorted_ = false;
  bool lost_ = false;
  std::vector<PoolOffset> uncertain_;  // live leaves with a damaged bitmap
  std::vector<SlotWord> outdated_;     // entries whose blocks are not in use
  bool leaves_are_all_ = false;
};

}  // namespace TENUTO_NS::store
