// A leaf on media and the durable steps on it. REQUIRES: the leaf's shadow leaf is
// locked, or nobody can see it yet.
//
// Authoritative is the header line: a set bit of the bitmap promises a whole slot word and a whole
// record, and a fingerprint in the same line. Records need no allocator log, for their being in
// use follows from the leaves.
//
//   insert  record, slot |"record and slot"| fingerprint, bitmap |"leaf header"|       2 fences
//   update  record |"record"| slot |"slot"|                                      2 fences
//   erase   bitmap |"leaf bitmap"|                                               1 fence
//   split   N |"new leaf"| L.next = N, L.bitmap |"chain link"|                   2 fences
//   unlink  left.next |"leaf unlinked"|                                          1 fence
//
// The split needs no third fence, for `next` and `bitmap` stand in one line and are stored in this
// order: after a crash between them every entry of N also stands in L, in the very same word, and
// recovery drops it from L (resolve_split). A slot word names a record, and no other leaf names
// it, so nothing else is ever dropped. tests/kv_model.cc enumerates the crashes.
//
// A replaced or erased record is retired only after the last fence, when no crash brings it back.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "file/pool_file.h"
#include "pm/plant.h"
#include "store/tree/format.h"
#include "store/tree/shadow_leaf.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

// REQUIRES for these three: the shadow leaf is locked; the record is flushed, for swap also fenced.
// The shadow leaf is brought up to date after the last fence.
void insert_entry(ShadowLeaf& shadow, unsigned slot, SlotWord word, std::uint8_t fingerprint);
void swap_entry(ShadowLeaf& shadow, unsigned slot, SlotWord word);
void erase_entry(ShadowLeaf& shadow, unsigned slot);

// Header words. A place's salt is its address within the unit that mappings align to, which is the
// same in every process.
inline std::uint64_t salt_of(const HeaderWord& at) {
  return reinterpret_cast<std::uintptr_t>(&at) % pm::kMapAlignBytes;
}
inline HeaderWord header_word(const HeaderWord& at, std::uint64_t value) {
  return HeaderWord::make(value, salt_of(at));
}
inline bool is_sound(const HeaderWord& at) { return at.sound(salt_of(at)); }
inline std::uint64_t bitmap_of(const Leaf& leaf) { return leaf.head.bitmap.value(); }

// The bitmap's word, whose checksum covers the fingerprints of used slots. Who writes it takes them
// from the shadow leaf, not from the leaf: what the medium changed there must not get a sound
// checksum.
inline HeaderWord bitmap_word(const HeaderWord& at, std::uint64_t bits,
                              const UsedFingerprints& fingerprints) {
  if (TENUTO_PLANT("store_fingerprints_not_covered")) return header_word(at, bits);
  return HeaderWord::make(bits, salt_of(at), fingerprints);
}
// REQUIRES: the shadow leaf is locked.
inline UsedFingerprints fingerprints_of(const ShadowLeaf& shadow) {
  UsedFingerprints p;
  std::memcpy(p.of, static_cast<const void*>(&shadow.fingerprint), sizeof p.of);
  return p;
}
UsedFingerprints fingerprints_of(const Leaf& leaf, std::uint64_t used);
// Whether bits and fingerprints are as they were stored; without the fingerprints, where 0.1.0
// stored them. `bitmap`: the leaf's, for those who must read it once.
bool bitmap_sound(const Leaf& leaf, HeaderWord bitmap);
inline bool bitmap_sound(const Leaf& leaf) { return bitmap_sound(leaf, leaf.head.bitmap); }
inline PoolOffset next_of(const Leaf& leaf) { return {leaf.head.next.value()}; }

// The slot for the next insert: one line further than the last, so that inserts in a row do not
// flush the same slot line again. REQUIRES: the leaf is not full.
unsigned choose_slot(std::uint64_t used);

// Fills the low separator's line; flushed by the caller. `block` is where long ones stand.
void set_low(Leaf& leaf, PoolOffset at, TreeId tree, std::string_view low, PoolOffset block);
// Where a separator of this length needs a block of its own.
inline bool low_needs_block(std::size_t bytes) { return bytes > kLowInlineMax; }
// The block of a long separator; 0: there is none.
PoolOffset low_block(const Leaf& leaf);
// corrupt when what stands there cannot be a separator.
Result<std::string_view> low_of(const pm::PoolFile& file, const Leaf& leaf);
// Whether a separator that was read is the leaf's own and the leaf this tree's.
bool low_sound(const pm::PoolFile& file, const Leaf& leaf, TreeId tree, std::string_view low);

// Makes a new leaf, holding `count` entries, durable: everything in it is flushed, not fenced.
struct NewEntry {
  SlotWord word;
  std::uint8_t fingerprint;
};
void fill_leaf(Leaf& leaf, PoolOffset at, TreeId tree, PoolOffset next, const NewEntry* entries,
               unsigned count, std::string_view low, PoolOffset low_block);

// The counts in the first leaf of a tree; flushed by the caller.
void set_counts(Leaf& first, const TreeCounts& counts);
TreeCounts counts_of(const Leaf& first);

// L.next = right, then L.bitmap = keep, in one line; fenced. REQUIRES: the shadow leaf is locked.
void link_split(const ShadowLeaf& shadow, PoolOffset right, std::uint64_t keep);

// left.next = next, past a leaf that is empty; fenced.
void unlink_next(Leaf& left, PoolOffset next);

// After a crash: finishes a split that got no further than `next`. True when the header changed
// (flushed, to be fenced by the caller).
bool resolve_split(Leaf& left, const Leaf& right);

}  // namespace TENUTO_NS::store
