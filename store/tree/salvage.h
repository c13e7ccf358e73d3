// What can be found in a damaged pool: slabs by their headers, leaves by their separators'
// checksums, which also say whose they are, and which of these leaves belong to a tree. It changes
// nothing but, on the private mapping, half-done splits.
//
// Authoritative, in this order:
//   the chain from the tree's first leaf as far as it is readable
//   after a clean close, the slabs' bits: what is in use is current
//   otherwise a leaf that another sound leaf leads to, unless what it covers contradicts others
// A leaf that nothing leads to may be one that a crash kept from being linked, and hold old
// records: it is unproven. An unlinked leaf is empty, so it never brings anything back.
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
  std::string low;  // of the leaf before it in the chain when its own is damaged
  bool low_ok = false;
  bool live = false;
  bool unproven = false;
  std::uint32_t links = 0;  // sound leaves that lead here
  std::size_t order = 0;    // among equal separators: in the chain
};

// The slabs of the pool, and where none can be read.
class FoundSlabs {
 public:
  explicit FoundSlabs(pm::PoolFile& file);

  // After a clean close and with a sound slab: whether the block is in use. Else nothing.
  std::optional<bool> in_use(PoolOffset block) const;
  // Calls f(block, bytes, in use) for each block of each readable slab of the store's kind.
  void for_each_block(
      const std::function<void(PoolOffset, std::uint64_t, std::optional<bool>)>& f) const;
  // Whether a slab stands there: scanning for large records leaves them out.
  bool in_slab(PoolOffset o) const { return slab_at(o) != nullptr; }
  // Where leaves can be.
  void for_each_leaf_block(const std::function<void(PoolOffset)>& f) const;
  const std::vector<PoolOffset>& units_without_slab() const { return units_without_slab_; }

 private:
  struct FoundSlab {
    heap::Slab slab;
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
  // `first` is where the tree begins, `again` what else may say so.
  Salvage(pm::PoolFile& file, const FoundSlabs& slabs, TreeId tree, PoolOffset first,
          PoolOffset again)
      : file_(file), slabs_(slabs), tree_(tree), first_(first), again_(again) {}

  void run();

  // Live leaves in key order.
  const std::vector<FoundLeaf>& live() const { return live_; }
  const std::vector<FoundLeaf>& unproven() const { return unproven_; }
  const Leaf& leaf(const FoundLeaf& f) const { return *file_.at<Leaf>(f.at); }
  // Where the chain stopped, or a leaf in it is damaged.
  const std::vector<Report>& notes() const { return notes_; }
  // Whether the link of live()[i] leads to live()[i + 1], or is the end.
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
  // The end of what a leaf says it covers. False: not known.
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
