// How a leaf is walked in key order, for cursors.
//
// A walk reads only the records that it hands out. The order of the slots is in the shadow leaf
// (shadow_leaf.h), where the last walk that sorted them left it. A record is read when the cursor
// comes to it. Before that its lines are prefetched, as are the next leaf's.
#include <array>
#include <bit>

#include "pm/plant.h"
#include "store/tree/tree.h"

namespace TENUTO_NS::store {

Status Tree::read(Entry& e, bool for_value) const {
  if (!e.read) {
    if (!read_record(file_, e.word.record(), e.record)) {
      return damaged(e.word.record(), "record");
    }
    // A key that the medium changed may sort anywhere. Also, a page written to the wrong place may
    // put a whole record here.
    const bool its_own = hash_key(e.record.key).slot == e.word.hash();
    if (!its_own && !TENUTO_PLANT("store_key_not_compared_with_its_slot")) {
      return damaged(e.word.record(), "record that is not its slot's");
    }
    e.read = true;
  }
  return for_value && verify_reads_ ? verify(e) : Status::ok;
}

Status Tree::verify(Entry& e) const {
  TENUTO_TRY(read(e, false));
  if (e.verified) return Status::ok;
  if (!record_sound(file_, e.word.record(), e.record)) {
    return damaged(e.word.record(), "record's checksum");
  }
  e.verified = true;
  return Status::ok;
}

Status Tree::ordered(const Place& place, const SnapshotCore* at, std::vector<Entry>& out) const {
  if (at != nullptr) return ordered_at(place, *at, out);
  ShadowLeaf& shadow = *place.leaf;
  if ((place.version & ShadowLeaf::kOrdered) == 0) {
    TENUTO_TRY(entries(place, out));
    sort(out);
    std::array<std::uint8_t, kSlots> slots;
    for (std::size_t i = 0; i < out.size(); ++i) slots[i] = out[i].slot;
    shadow.keep_order(place.version, slots.data(), static_cast<unsigned>(out.size()));
    return Status::ok;
  }
  out.clear();
  const std::uint64_t used = shadow.used_slots();
  for (unsigned i = 0; i < kSlots; ++i) {
    const unsigned slot = shadow.ordered_slot(i);
    if (slot >= kSlots) break;
    if ((used >> slot & 1) != 0) {
      out.push_back({{}, shadow.word(slot), static_cast<std::uint8_t>(slot)});
    }
  }
  return shadow.still(place.version) ? Status::ok : Status::conflict;
}

void Tree::prefetch_shadow(const ShadowLeaf& shadow) {
  for (std::size_t line = 0; line < sizeof shadow; line += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const char*>(&shadow) + line);
  }
}

void Tree::prefetch_first_records(const ShadowLeaf& shadow) const {
  constexpr unsigned kFirst = 4;
  if ((shadow.version.load(std::memory_order_relaxed) & ShadowLeaf::kOrdered) == 0) return;
  for (unsigned i = 0; i < kFirst; ++i) {
    const unsigned slot = shadow.ordered_slot(i);
    if (slot < kSlots) prefetch(shadow.word(slot));
  }
}

}  // namespace TENUTO_NS::store
