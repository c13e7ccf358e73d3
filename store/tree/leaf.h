// A leaf on media, and the durable steps that change it. REQUIRES: the leaf's shadow leaf is
// locked, or no other thread can see the leaf yet.
//
// The header line is authoritative. A set bit of the bitmap promises a whole slot word, a whole
// record, and the right fingerprint in the same line. Records need no log of the allocator: the
// leaves say which records are in use.
//
//   insert  record, slot |"record and slot"| fingerprint, bitmap |"leaf header"|  2 fences
//   update  record |"record"| slot |"slot"|                                       2 fences
//   erase   bitmap |"leaf bitmap"|                                                1 fence
//   split   N |"new leaf"| L.next = N, L.bitmap |"chain link"|                    2 fences
//   unlink  left.next |"leaf unlinked"|                                           1 fence
//
// **Why a split needs no third fence.** `next` and `bitmap` are in one line and are stored in this
// order, so they become durable in this order. After a crash between them every entry of N is also
// in L, in the very same slot word. Recovery drops it from L (resolve_split). A slot word names a
// record, and no other leaf names that record, so nothing else is ever dropped. tests/kv_model.cc
// enumerates the crashes.
//
// A replaced or erased record is retired only after the last fence, when no crash brings it back.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "file/pool_file.h"
#include "pm/plant.h"
#include "store/tree/format.h"
#include "store/tree/shadow_leaf.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

class LeafReader;

// These three update the shadow leaf after the last fence. REQUIRES: the shadow leaf is locked; the
// record is flushed, and for swap_entry also fenced.
void insert_entry(const LeafReader& leaves, ShadowLeaf& shadow, unsigned slot, SlotWord word,
                  std::string_view key, std::uint8_t fingerprint);
void swap_entry(ShadowLeaf& shadow, unsigned slot, SlotWord word);
void erase_entry(ShadowLeaf& shadow, unsigned slot);

// Header words. The salt of a place is its address modulo the alignment of mappings, which is the
// same in every process.
inline std::uint64_t salt_of(const HeaderWord& at) {
  return reinterpret_cast<std::uintptr_t>(&at) % pm::kMapAlignBytes;
}
inline HeaderWord header_word(const HeaderWord& at, std::uint64_t value) {
  return HeaderWord::make(value, salt_of(at));
}

// These read a word of a leaf once, and may be called while another thread changes the leaf.
template <class Word>
Word read_word(const Word& at) {
  return {__atomic_load_n(&at.raw, __ATOMIC_ACQUIRE)};
}
inline bool is_sound(const HeaderWord& at) { return read_word(at).sound(salt_of(at)); }
inline std::uint64_t bitmap_of(const Leaf& leaf) { return read_word(leaf.head.bitmap).value(); }
inline PoolOffset next_of(const Leaf& leaf) { return {read_word(leaf.head.next).value()}; }

// The bitmap's word. Its checksum covers the fingerprints of used slots. A writer takes them from
// the shadow leaf, not from the leaf: a fingerprint that the medium changed must not get a sound
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
// Of the slots in `used`. Another thread may change the leaf meanwhile.
UsedFingerprints fingerprints_of(const Leaf& leaf, std::uint64_t used);
// A checksum of what a leaf holds: the slots in use, their fingerprints, the records that they
// name. word(i): SlotWord of slot i. Never 0.
template <class Words>
std::uint32_t content_check(std::uint64_t used, const UsedFingerprints& fingerprints,
                            const Words& word) {
  std::uint32_t crc = fingerprints.crc(pm::crc32c_u64(~0u, used));
  for (; used != 0; used &= used - 1) {
    const SlotWord w = word(static_cast<unsigned>(std::countr_zero(used)));
    crc = pm::crc32c_u64(crc, w.raw & ~SlotWord::kCheckMask);  // 0.1.0 wrote none
  }
  return crc == 0 ? 1 : crc;
}
// Whether bitmap and fingerprints are as they were stored. A word of 0.1.0 covers no fingerprints,
// and is accepted, too. REQUIRES for a right answer: no other thread changes the fingerprints
// of used slots.
bool bitmap_sound(const Leaf& leaf);

// The slot for the next insert: one line further than the last, so that successive inserts do not
// flush the same slot line again. REQUIRES: the leaf is not full.
unsigned choose_slot(std::uint64_t used);

// Fills the low separator's line; the caller flushes it. `block` holds the separator if it is long.
void set_low(Leaf& leaf, PoolOffset at, TreeId tree, std::string_view low, PoolOffset block);
// Whether a separator of this length needs a block of its own.
inline bool low_needs_block(std::size_t bytes) { return bytes > kLowInlineMax; }
// The block of a long separator; 0: there is none.
PoolOffset low_block(const Leaf& leaf);
// The low separator. corrupt: the line cannot be one.
Result<std::string_view> low_of(const pm::PoolFile& file, const Leaf& leaf);
// Whether `low`, as read, is this leaf's separator, and the leaf is of this tree.
bool low_sound(const pm::PoolFile& file, const Leaf& leaf, TreeId tree, std::string_view low);

// Writes a new leaf with `count` entries. All of it is flushed; the caller fences.
struct NewEntry {
  SlotWord word;
  std::uint8_t fingerprint;
};
void fill_leaf(Leaf& leaf, PoolOffset at, TreeId tree, PoolOffset next, const NewEntry* entries,
               unsigned count, std::string_view low, PoolOffset low_block);

// The counts in the first leaf of a tree. The caller flushes them.
void set_counts(Leaf& first, const TreeCounts& counts);
TreeCounts counts_of(const Leaf& first);

// L.next = right, then L.bitmap = keep, in one line; fenced. REQUIRES: the shadow leaf is locked.
void link_split(const ShadowLeaf& shadow, PoolOffset right, std::uint64_t keep);

// left.next = next, past an empty leaf or past one that was copied (compaction); fenced.
void unlink_next(Leaf& left, PoolOffset next);

// After a crash: finishes a split that got no further than `next`. True: the header changed; it is
// flushed, and the caller fences.
bool resolve_split(Leaf& left, const Leaf& right);

}  // namespace TENUTO_NS::store
