// What can be found in a damaged pool. Slabs are found by their headers. Leaves are found by their
// separators' checksums, which also tell the tree of a leaf. Nothing is changed, except that
// half-done splits are finished on the private mapping.
//
// A leaf belongs to the tree by the first of these witnesses:
//   the chain from the tree's first leaf, as far as it is readable
//   after a clean close, the slabs' bits: what is in use is current
//   otherwise, another sound leaf leads to it, and its range contradicts no other leaf
// A crash may have kept a leaf from being linked. So a leaf to which nothing leads may hold old
// records: it is unproven. An unlinked leaf is empty, so it brings no old records back.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "file/pool_file.h"
#include "heap/slab.h"
#include "store/tree/leaf.h"

namespace TENUTO_NS::store {

struct FoundLeaf {
  PoolOffset at;
  std::string low;  // if its own is damaged: that of the leaf before it in the chain
  bool low_ok = false;
  bool live = false;
  bool unproven = false;
  std::uint32_t links = 0;  // how many sound leaves lead here
  std::size_t order = 0;    // place in the chain; decides among equal separators
};

// The slabs of the pool, and the units without a readable one.
class FoundSlabs {
 public:
  explicit FoundSlabs(pm::PoolFile& file);

  // Whether the block is in use. None: the pool was not closed cleanly, or the block is in no sound
  // slab.
  std::optional<bool> in_use(PoolOffset block) const;
  // Calls f(block, bytes, in_use(block)) for each block of each readable slab of the store's kind.
  void for_each_block(
      const std::function<void(PoolOffset, std::uint64_t, std::optional<bool>)>& f) const;
  // Whether a slab is there. A scan for large records leaves slabs out.
  bool in_slab(PoolOffset o) const { return slab_at(o) != nullptr; }
  // Calls f for each place where a leaf can be.
  void for_each_leaf_block(const std::function<void(PoolOffset)>& f) const;
  const std::vector<PoolOffset>& units_without_slab() const { return units_without_slab_; }

 private:
  struct FoundSlab {
    heap::Slab slab{heap::kBlocksMax / 64};  // of any class
    heap::BlockBits used{};
  };
  const FoundSlab* slab_at(PoolOffset o) const;

  pm::PoolFile& file_;
  std::unordered_map<std::uint64_t, std::unique_ptr<FoundSlab>> slabs_;  // by offset / kSlabBytes
  std::vector<PoolOffset> units_without_slab_;
};

// The leaves of one tree.
class Salvage {
 public:
  // `first` is the tree's first leaf by its first name, `again` by its second.
  Salvage(pm::PoolFile& file, const FoundSlabs& slabs, TreeId tree, PoolOffset first,
          PoolOffset again)
      : file_(file), slabs_(slabs), tree_(tree), first_(first), again_(again) {}

  void run();

  // Live leaves in key order.
  const std::vector<FoundLeaf>& live() const { return live_; }
  const std::vector<FoundLeaf>& unproven() const { return unproven_; }
  const Leaf& leaf(const FoundLeaf& f) const { return *file_.at<Leaf>(f.at); }
  // Where the chain ended early, or has a damaged leaf.
  const std::vector<Report>& notes() const { return notes_; }
  // Whether the link of live()[i] leads to live()[i + 1], or is the end of the chain.
  bool continued(std::size_t i) const;

 private:
  void find_leaves();
  void find_leaves_without_slab(PoolOffset unit);
  void consider(PoolOffset at);
  void walk_chain();
  void judge_the_rest();
  void accept_proven(std::vector<FoundLeaf*>& rest);
  FoundLeaf* find(PoolOffset at);
  const FoundLeaf* find(PoolOffset at) const { return const_cast<Salvage*>(this)->find(at); }
  // The end of the range that a leaf claims. False: it is not known.
  bool end_of(const FoundLeaf& f, std::optional<std::string_view>& end) const;
  bool contradicts_live(const FoundLeaf& f, const std::vector<const FoundLeaf*>& sorted) const;
  void note(PoolOffset at, std::string what, std::string_view place);

  pm::PoolFile& file_;
  const FoundSlabs& slabs_;
  const TreeId tree_;
  const PoolOffset first_, again_;
  std::vector<FoundLeaf> leaves_;
  std::unordered_map<std::uint64_t, std::size_t> by_offset_;
  std::vector<FoundLeaf> live_, unproven_;
  std::vector<Report> notes_;
};

}  // namespace TENUTO_NS::store
