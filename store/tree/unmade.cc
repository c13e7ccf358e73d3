#include "store/tree/unmade.h"

#include <bit>

#include "pm/plant.h"
#include "store/tree/leaf.h"
#include "store/tree/leaf_reader.h"

namespace TENUTO_NS::store {

namespace {
// Later opens cannot know: they recover, and recovery reads no image. So the pool is marked.
constexpr const char* kNotTheOne = "leaf that is not the one of the close";
}  // namespace

bool is_kept(const Leaf& leaf, const KeptLeaf& kept) {
  const std::uint64_t used = bitmap_of(leaf);
  const std::uint32_t check = content_check(
      used, fingerprints_of(leaf, used), [&](unsigned slot) { return read_word(leaf.slot[slot]); });
  return kept.check == check || kept.check == 0 ||
         TENUTO_PLANT("store_leaf_not_compared_with_the_kept");
}

unsigned copy_slots(const Leaf& leaf, std::uint64_t used, std::uint64_t record_max,
                    ShadowLeaf& shadow) {
  const UsedFingerprints fingerprints = fingerprints_of(leaf, used);
  std::uint64_t bad = 0;
  const bool own = ShadowLeaf::has_words(shadow.version.load(std::memory_order_relaxed));
  for (unsigned i = 0; i < kSlots; ++i) {
    const std::uint64_t in_use = used >> i & 1;
    const SlotWord word = read_word(leaf.slot[i]);
    const std::uint8_t fingerprint = fingerprints.of[i];
    const bool wrong = slot_wrong(word, fingerprint, record_max);
    bad |= (in_use & static_cast<std::uint64_t>(wrong)) << i;
    if (own) shadow.set_word(i, word);
    shadow.fingerprint[i].store(fingerprint, std::memory_order_relaxed);
  }
  return bad == 0 ? kSlots : static_cast<unsigned>(std::countr_zero(bad));
}

// Null: it is sound. Else what is damaged.
const char* LeafMaker::read(UnmadeLeaf unmade, const KeptLeaf* kept, ShadowLeaf& shadow) const {
  Leaf& leaf = *shadow.leaf;
  const Result<std::string_view> low = low_of(file_, leaf);
  const bool sound = low && (low_sound(file_, leaf, id_, *low) ||
                             TENUTO_PLANT("store_separator_checksum_not_compared"));
  if (!sound) return "low separator";
  if ((leaf.low.check & 0xffff) != unmade.check()) return kNotTheOne;
  if (!bitmap_sound(leaf)) return "leaf bitmap or fingerprints";
  if (kept != nullptr && !is_kept(leaf, *kept)) return kNotTheOne;
  if (!is_sound(leaf.head.next)) return "link to the next leaf";
  const unsigned bad =
      copy_slots(leaf, bitmap_of(leaf), file_.bytes() - sizeof(RecordHead), shadow);
  if (kept != nullptr) shadow.order.take_kept(*kept);
  return bad == kSlots ? nullptr : "slot of a leaf";
}

const char* LeafMaker::fill(UnmadeLeaf unmade, const KeptLeaf* kept,
                            ShadowLeafWithWords& shadow) const {
  leaves_.prefetch_leaf(unmade.child());
  shadows_.cover(unmade.at());
  shadows_.clear(shadow);
  shadow.set_leaf(*file_.at<Leaf>(unmade.at()));
  const char* const damage = read(unmade, kept, shadow);
  if (damage != nullptr) {
    constexpr std::uint8_t kAny = 1;
    for (unsigned i = 0; i < kSlots; ++i) {
      const bool empty = TENUTO_PLANT("store_damaged_leaf_looks_empty");
      shadow.set_entry(i, SlotWord{}, empty ? 0 : kAny, {});
    }
    shadow.set_damaged();
  }
  return damage;
}

void LeafMaker::note(UnmadeLeaf unmade, const char* damage) const {
  if (damage == nullptr) return;
  // Not after a page that could not be read: the next open may read it.
  if (leaves_.damaged(unmade.at(), damage) != Status::corrupt) return;
  if (damage != kNotTheOne || TENUTO_PLANT("store_lost_leaf_not_marked")) return;
  leaves_.mark_lost();
}

}  // namespace TENUTO_NS::store
