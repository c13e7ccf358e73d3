// Leaves without a shadow leaf. An open makes the index from the image of the leaves (image.h), or
// from the leaves themselves, and the shadow leaf of each is made by the first thread that comes
// there.
//
// **One word in the place of a child pointer** says where the leaf is, and has a part of its
// separator's checksum:
//
//   bit 0        1, which no pointer has
//   bits 6-47    offset of the leaf
//   bits 48-63   the lower half of LowSeparator::check
//
// **Nobody changes an unmade leaf.** Whoever changes a leaf, or the link of its left neighbour, has
// locked its shadow leaf. So a leaf is read under no lock. Then the node is locked, and the child
// is looked at again. If it is unmade still, what was read of the leaf is true, and so is its
// judgement. Else another thread was first: its shadow leaf counts, and it may have changed the
// leaf meanwhile. A node that is replaced is locked, too, so no unmade child is copied while it is
// made.
//
// **A damaged leaf** gets a shadow leaf that is full, and whose slots lead nowhere: it cannot be
// taken for an empty one, merged or filled. Searches and moves look at ShadowLeaf::kDamaged.
#pragma once

#include <cstdint>
#include <span>

#include "file/pool_file.h"
#include "store/tree/format.h"
#include "store/tree/shadow_leaf.h"
#include "store/tree/shadow_leaves.h"

namespace TENUTO_NS::store {

class LeafReader;

struct UnmadeLeaf {
  std::uint64_t raw;

  static constexpr std::uint64_t kMark = 1;
  static constexpr unsigned kCheckShift = 48;
  static constexpr UnmadeLeaf of(PoolOffset leaf, std::uint64_t low_check) {
    return {leaf.value | low_check << kCheckShift | kMark};
  }
  static UnmadeLeaf of(const void* child) { return {reinterpret_cast<std::uintptr_t>(child)}; }
  static bool is(const void* child) { return (of(child).raw & kMark) != 0; }
  void* child() const { return reinterpret_cast<void*>(raw); }
  constexpr PoolOffset at() const { return {raw & kOffsetMask & ~kMark}; }
  constexpr std::uint64_t check() const { return raw >> kCheckShift; }
  bool can_be() const { return (raw & kMark) != 0 && at().value % kLineBytes == 0; }
};
static_assert(UnmadeLeaf::of({0x1240}, 0x5678abcd).at().value == 0x1240);
static_assert(UnmadeLeaf::of({0x1240}, 0x5678abcd).check() == 0xabcd);

// Whether the leaf holds what is kept of it. An older one may be whole, too.
bool is_kept(const Leaf& leaf, const KeptLeaf& kept);

// Whether a used slot cannot be right.
inline bool slot_wrong(SlotWord word, std::uint8_t fingerprint, std::uint64_t record_max) {
  const std::uint64_t at = word.record().value;
  const bool sound = word.sound() || TENUTO_PLANT("store_slot_word_not_checked");
  return !sound || at < pm::kHeadBytes || at > record_max || fingerprint == 0;
}
// Copies the slots into a shadow leaf that no other thread sees yet. Returns the first used slot
// that cannot be right; kSlots: there is none. Cost: a few instructions a slot, no branch.
unsigned copy_slots(const Leaf& leaf, std::uint64_t used, std::uint64_t record_max,
                    ShadowLeaf& shadow);

// Makes the shadow leaves of one tree.
class LeafMaker {
 public:
  LeafMaker(const pm::PoolFile& file, const LeafReader& leaves, ShadowLeaves& shadows, TreeId id)
      : file_(file), leaves_(leaves), shadows_(shadows), id_(id) {}

  // Reads the leaf, perhaps from a disk. kept: by the last close, or null. Null: the leaf is
  // sound. Else what is damaged. What comes out
  // counts only if the child is unmade still when its node is locked: then put() shows it. Else
  // another thread may have changed the leaf meanwhile. Throws bad_alloc. Thread-safe.
  const char* fill(UnmadeLeaf unmade, const KeptLeaf* kept, ShadowLeafWithWords& shadow) const;
  ShadowLeaves& shadows() const { return shadows_; }
  // Says what fill() found, if that is damage. The pool is read-only from then on.
  void note(UnmadeLeaf leaf, const char* damage) const;
  // Asks for all of these leaves at once, if they may be on a disk.
  void read_ahead(std::span<const PoolOffset> leaves) const {
    if (file_.on_disk()) file_.read_ahead(leaves.data(), leaves.size());
  }

 private:
  const char* read(UnmadeLeaf unmade, const KeptLeaf* kept, ShadowLeaf& shadow) const;

  const pm::PoolFile& file_;
  const LeafReader& leaves_;
  ShadowLeaves& shadows_;
  const TreeId id_;
};

}  // namespace TENUTO_NS::store
