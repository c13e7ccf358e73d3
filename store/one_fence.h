// The durable steps of the protocol of one fence on a leaf, and what recovery makes of a leaf after
// a crash. A tree has this protocol or the one of leaf.h (CommitProtocol). Called by tree.cc,
// split.cc, batch.cc, rebuild.cc and rescue_tree.cc, like leaf.h.
//
// Authoritative are the slot words: one that is not 0, and whose record fits it, is an entry. So a
// record and its slot word need no order, and one fence covers both; the header's bitmap says all
// ones for good, its fingerprints count after a clean close only, and the twin in DRAM knows what
// is in use. The price is that recovery reads every record.
//
//   insert  record, slot |"record and its slot"|                                  1 fence
//   update  record, slot of the same line |"record and its slot"| old slot = 0    1 fence
//   erase   slot = 0 |"emptied slot"|                                             1 fence
//   split   N |"new leaf"| L.next = N |"chain link"| moved slots = 0 |"moved slots"|
//   batch   in place, under the undo log, which saves fresh slots, too (batch.cc)
//
// A record in an extent of its own is fenced before its slot (Tree::fence_record): two fences.
//
// **A word fits a record** if its tag is that of the record's head, and the head's checksum is
// right. The word of an insert may be durable when its record is not:
//   - What stood in the block before does not fit. The new record's tag differs from that of the
//     eight bytes at the block's begin, whatever they are; a salt in the head sees to that. What
//     the processor reads there is what is durable, for nobody of the store gives a block back
//     while something that was written to it waits for a fence (Tree::give_up). What a program left
//     unflushed in an object of its own may differ; then chance has to find one tag in 65536 and a
//     sound record of this tree's range, at a crash.
//   - A torn record's checksum is wrong (but for one in 2^32). Its head is the last store of its
//     line, so one that fits a line is whole or not there at all.
// So it is dropped. The leaf is locked through the fence, hence at most one entry of a leaf can be
// so; more of them are damage. A record that the medium changed is not told from a torn one.
//
// **Two words for one key** stand there after a crash between an update's fence and the moment in
// which the 0 of its old slot is durable. They stand in one line, and stores to a line become
// durable in order, so no third one is there, and an erase, or the next update, which are later
// stores to the same line, do not become durable without the 0. Of the two, whose versions modulo 4
// follow each other, the newer one wins if its record fits. A slot of each line stays free for the
// new word (entries_max), so every update is of this kind; a batch swaps in place.
//
// The 0 is flushed when the replaced record is about to be freed, 64 of them together with a fence
// (Retired::unsettled), so a word that is out of date never names a block that was used again; a
// clean close settles all. If snapshots keep the replaced record, it is settled at once.
//
// **A split** leaves moved words in the left leaf until the third fence; nobody sees the right leaf
// before it. Recovery finds in the left leaf keys behind its end, and drops those whose very words
// stand in the right one; any other is damage.
//
// tests/kv_model.cc enumerates the crashes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "store/leaf.h"
#include "store/record.h"

namespace tenuto::inline TENUTO_ABI::store {

// What slot words of either protocol say of a record that this thread has written.
inline SlotWord word_of(CommitProtocol p, const pm::PoolFile& file, PoolOffset record,
                        std::uint16_t hash, std::uint64_t version = 0) {
  if (!is_tagged(p)) return SlotWord::make(record, hash);
  return SlotWord::make(record, TaggedHead{head_at(file.at<std::byte>(record))}.tag(), version);
}
// Whether the head at the record's place is the one that the word was made for. Always true with
// two fences, whose words know of the key only.
inline bool head_fits(CommitProtocol p, const pm::PoolFile& file, SlotWord word) {
  return !is_tagged(p) ||
         TaggedHead{head_at(file.at<std::byte>(word.record()))}.tag() == word.tag();
}

// REQUIRES for these: the twin is locked; the record is flushed. The twin is brought up to date
// after the last fence.
void insert_tagged(VLeaf& twin, unsigned slot, SlotWord word, std::uint8_t print);
// The caller retires the old record with `from` unsettled. `to` is slot_beside(from).
void update_tagged(VLeaf& twin, unsigned from, unsigned to, SlotWord word);
void erase_tagged(VLeaf& twin, unsigned slot);
// A free slot in the line of this one. REQUIRES: there is one (entries_max).
unsigned slot_beside(std::uint64_t used, unsigned slot);
// L.next = right, then the moved slots emptied; fenced.
void link_split_tagged(Leaf& left, PoolOffset right, std::uint64_t moved);

// What stands in a leaf after a crash, slot by slot.
struct LeafScan {
  std::uint64_t live = 0;
  std::uint64_t torn = 0;           // the record does not fit
  std::uint64_t replaced = 0;       // the key's newer version stands beside it
  std::uint64_t moved = 0;          // it stands in the right leaf
  std::uint64_t wrong = 0;          // no crash leaves this
  std::uint8_t print[kSlots] = {};  // of live ones
  std::int64_t bytes = 0;           // of live ones, keys and values

  std::uint64_t dropped() const { return torn | replaced | moved; }
  bool sound() const { return wrong == 0 && (torn & (torn - 1)) == 0; }
};
// `right` is the next leaf (null: there is none) and `end` its separator; both were found sound.
// Cost: reads all records.
LeafScan scan_leaf(const pm::PoolFile& file, const Leaf& leaf, std::string_view low,
                   const Leaf* right, std::optional<std::string_view> end);
// Asks for what scan_leaf will read.
void prefetch_records(const pm::PoolFile& file, const Leaf& leaf);
// Flushed; fenced by the caller.
void drop_slots(Leaf& leaf, std::uint64_t slots);

// For a clean close; flushed.
void write_prints(const VLeaf& twin);

}  // namespace tenuto::inline TENUTO_ABI::store
