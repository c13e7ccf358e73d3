// What a tree does in a compaction (compact_all.cc), beside any reads and writes. It merges sparse
// leaves, and it moves blocks out of slabs that the heap wants to empty (heap/evacuate.cc).
//
//   merge   undo entry of left's header | right's entries in left's free slots, left's header with
//           right's successor | T |                      one transaction of the lane: tx/txn.cc
//   record  copies |"copies of records"| slot words |"slots of copies"| old blocks retired
//   leaf    copy |"new leaf"| left.next |"leaf unlinked"| old leaf retired
//
// Authoritative are: for a merge the lane's transaction, for a record its slot word, for a leaf the
// link to it. No key changes, so there is no version for snapshots and no conflict for
// transactions. After a crash a moved record is in its old block or in its new one, each whole.
// Recovery frees the other block. The records of old versions are not moved. The versions in a
// leaf's list move with its keys.
#include "store/tree/compact.h"

#include <array>
#include <bit>

#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

namespace {

constexpr unsigned kLeavesAtOnce = 32;  // in one epoch
constexpr unsigned kTries = 8;          // at a leaf, before it is skipped
constexpr unsigned kMergeFill = 44;     // records of a merged leaf at most: room for inserts

unsigned used_of(const ShadowLeaf& shadow) {
  return static_cast<unsigned>(std::popcount(shadow.used_slots()));
}

struct MovedEntry {
  unsigned slot;  // in its new leaf, or where it stays
  SlotWord word;
  std::uint8_t fingerprint;
};

// Stores a merge on media, inside an open transaction. REQUIRES: both leaves are locked; the slots
// are free in the left one.
Status store_merged(tx::Txn& txn, ShadowLeaf& shadow, PoolOffset next, const MovedEntry* moved,
                    unsigned count) {
  Leaf& left = *shadow.leaf;
  if (!TENUTO_PLANT("store_merge_header_not_saved"))
    TENUTO_TRY(txn.add_later(&left.head, sizeof left.head));
  TENUTO_TRY(txn.ready());
  std::uint64_t bitmap = bitmap_of(left);
  UsedFingerprints fingerprints = fingerprints_of(shadow);
  for (const MovedEntry* e = moved; e != moved + count; ++e) {
    store_ordered(left.slot[e->slot], e->word);
    if (!TENUTO_PLANT("store_merge_slot_unflushed")) flush(left.slot[e->slot]);
    store_ordered(left.head.fingerprint[e->slot], e->fingerprint);
    fingerprints.of[e->slot] = e->fingerprint;
    bitmap |= 1ull << e->slot;
  }
  store_ordered(left.head.next, header_word(left.head.next, next.value));
  store_ordered(left.head.bitmap, bitmap_word(left.head.bitmap, bitmap, fingerprints));
  return Status::ok;
}

// REQUIRES: the leaf is locked, the copies are durable.
void store_moved(ShadowLeaf& shadow, const MovedEntry* moved, unsigned count) {
  for (const MovedEntry* e = moved; e != moved + count; ++e) {
    publish(shadow.leaf->slot[e->slot], e->word);
  }
  fence("slots of copies", "old records are retired");
  for (const MovedEntry* e = moved; e != moved + count; ++e) shadow.set_word(e->slot, e->word);
}

// The order of a leaf whose used slots, in turn, become the slots 0, 1, 2, ... of `fresh`.
// REQUIRES: the leaf is locked.
void copy_order(const ShadowLeaves& shadows, const ShadowLeaf& shadow, ShadowLeaf& fresh) {
  if (!shadow.order.known()) return;
  const std::uint64_t used = shadow.used_slots();
  const SlotHeads& heads = shadows.heads_of(shadow);
  WholeOrder order;
  if (shadow.order.has_heads()) {
    order = {shadows.heads_of(fresh), shadow.order.prefix(), shadow.order.open()};
  }
  for (unsigned i = 0; i < shadow.count(); ++i) {
    const unsigned slot = shadow.order.slot(i);
    const std::uint64_t below = used & ((1ull << slot) - 1);
    order.add(static_cast<unsigned>(std::popcount(below)), heads.of[slot]);
  }
  fresh.order.set(order);
}

}  // namespace

class Tree::Compact {
 public:
  Compact(Tree& tree, CompactWork& work) : tree_(tree), work_(work) {}

  Status merge_leaves(std::optional<std::string>& from);
  Status move_blocks(std::optional<std::string>& from);

 private:
  Status merge_right_of(const Place& left, std::string_view upper);
  Status verify_leaf(const Place& place) const;
  Status merge_pair(const Place& at_left, const Place& at_right);
  Status merge_locked(ShadowLeaf& left, ShadowLeaf& right);
  struct Copy {
    PoolOffset at;
    KeyHash hash;  // of the key
  };
  Result<Copy> copy_record(PoolOffset old);
  Status move_records(const Place& place);
  Status move_leaf(const Place& place);
  void replace_leaf(ShadowLeaf& left, ShadowLeaf& shadow, ShadowLeaf& fresh,
                    const heap::Block& block, std::string_view low, PoolOffset next);

  Tree& tree_;
  CompactWork& work_;
};

// --- leaves become fewer -------------------------------------------------------------------------

Status Tree::Compact::merge_leaves(std::optional<std::string>& from) {
  const EpochGuard guard;
  static_cast<void>(tree_.garbage_.mine());  // before a lock: it may have to be made
  unsigned tries = 0;
  for (unsigned n = 0; n < kLeavesAtOnce && from && !work_.over();) {
    UpperBound upper;
    const Place left = tree_.index_.locate(*from, Aim::at, &upper);
    Status s = upper.bounded ? merge_right_of(left, upper.key) : Status::not_found;
    if (s == Status::ok) work_.done.leaves_merged += 1;
    if (s == Status::not_found) s = verify_leaf(left);
    if (s == Status::conflict && ++tries < kTries) continue;
    tries = 0;
    n += 1;
    if (s == Status::ok) continue;  // the left leaf may take one more
    if (s != Status::not_found && s != Status::conflict) return s;
    if (upper.bounded) {
      from = std::move(upper.key);
    } else {
      from.reset();
    }
  }
  return Status::ok;
}

// not_found: together they have too many records.
Status Tree::Compact::merge_right_of(const Place& left, std::string_view upper) {
  const Place right = tree_.index_.locate(upper);
  const bool fit =
      right.leaf != left.leaf && used_of(*left.leaf) + used_of(*right.leaf) <= kMergeFill;
  return fit ? merge_pair(left, right) : Status::not_found;
}

// A compaction without a bound reads every record, so that it finds damage. not_found: nothing is
// damaged.
Status Tree::Compact::verify_leaf(const Place& place) const {
  if (work_.moves_max != 0 || TENUTO_PLANT("store_compaction_reads_nothing"))
    return Status::not_found;
  std::vector<Entry> found;
  TENUTO_TRY(tree_.leaves_.entries(place, found, true));
  return Status::not_found;
}

Status Tree::Compact::merge_pair(const Place& at_left, const Place& at_right) {
  ShadowLeaf& left = *at_left.leaf;
  ShadowLeaf& right = *at_right.leaf;
  if (!left.lock_if(at_left.version)) return Status::conflict;
  LeafLock left_lock(left);
  if (!right.lock_if(at_right.version)) {
    left_lock.unlock_unchanged();
    return Status::conflict;
  }
  LeafLock right_lock(right);
  const Status s = merge_locked(left, right);
  if (s != Status::ok) {
    right_lock.unlock_unchanged();
    left_lock.unlock_unchanged();
    return s;
  }
  right_lock.unlock_dead();
  left_lock.unlock();
  tree_.retire_block(low_block(*right.leaf), right.leaf->low.bytes());
  tree_.retire_block(tree_.file_.offset_of(right.leaf), sizeof(Leaf));
  return Status::ok;
}

// REQUIRES: both locked. conflict: they are not neighbours any more.
Status Tree::Compact::merge_locked(ShadowLeaf& left, ShadowLeaf& right) {
  if (store::next_of(*left.leaf) != tree_.file_.offset_of(right.leaf)) return Status::conflict;
  const Result<std::string_view> low = tree_.leaves_.low_of(right);
  if (!low) return low.error();
  const Result<PoolOffset> next = tree_.leaves_.next_of(right);
  if (!next) return next.error();
  std::vector<Entry> keys;
  TENUTO_TRY(tree_.leaves_.entries({&right, right.version.load(std::memory_order_relaxed)}, keys));
  std::array<MovedEntry, kSlots> moved;
  unsigned count = 0;
  std::uint64_t used = left.used_slots();
  for (std::uint64_t rest = right.used_slots(); rest != 0; rest &= rest - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(rest));
    if (used == kBitmapMask) return Status::conflict;
    moved[count] = {choose_slot(used), right.word(slot),
                    right.fingerprint[slot].load(std::memory_order_relaxed)};
    used |= 1ull << moved[count++].slot;
  }
  tx::Txn& txn = tree_.engine_.mine();
  const auto merge = [&] {
    TENUTO_TRY(txn.begin());
    tx::Saving saving(txn);
    TENUTO_TRY(store_merged(txn, left, *next, moved.data(), count));
    saving.done();
    TENUTO_TRY(txn.commit());
    for (unsigned i = 0; i < count; ++i) {
      left.set_entry(moved[i].slot, moved[i].word, moved[i].fingerprint, {});
    }
    // The right leaf may have been empty, so the order may still be there.
    if (!TENUTO_PLANT("store_merge_leaves_the_order_closed")) left.order.open_up();
    tree_.versions_.join(left, right);
    return Status::ok;
  };
  return tree_.index_.remove(&right, *low, merge);
}

// --- blocks go elsewhere -------------------------------------------------------------------------

Status Tree::Compact::move_blocks(std::optional<std::string>& from) {
  const EpochGuard guard;
  static_cast<void>(tree_.garbage_.mine());  // before a lock: it may have to be made
  unsigned tries = 0;
  for (unsigned n = 0; n < kLeavesAtOnce && from && !work_.over();) {
    UpperBound upper;
    const Place place = tree_.index_.locate(*from, Aim::at, &upper);
    Status s = move_leaf(place);
    if (s == Status::not_found) s = move_records(place);
    if ((s == Status::ok || s == Status::conflict) && ++tries < kTries) continue;  // look again
    tries = 0;
    n += 1;
    if (s != Status::ok && s != Status::not_found && s != Status::conflict) return s;
    if (upper.bounded) {
      from = std::move(upper.key);
    } else {
      from.reset();
    }
  }
  return Status::ok;
}

// Does not copy a damaged record, because the copy would get a sound checksum.
Result<Tree::Compact::Copy> Tree::Compact::copy_record(PoolOffset old) {
  Record record;
  if (!read_record(tree_.file_, old, record)) return tree_.leaves_.damaged(old, "record");
  if (!record_sound(tree_.file_, old, record))
    return tree_.leaves_.damaged(old, "record's checksum");
  const Result<heap::Block> block = tree_.heap_.reserve(
      record_block_bytes(record_bytes(record.key.size(), record.value.size())), heap::Kind::record);
  if (!block) return block.error();
  if (TENUTO_PLANT("store_moved_record_unflushed")) {
    std::memcpy(tree_.file_.at<std::byte>(block->offset), tree_.file_.at<std::byte>(old),
                record_bytes(record.key.size(), record.value.size()));
    auto& head = *tree_.file_.at<RecordHead>(block->offset);
    head =
        RecordHead::make(head.key_bytes(), head.value_field(), record_check(block->offset, record));
    return Copy{block->offset, hash_key(record.key)};
  }
  write_record(tree_.file_, block->offset, record.key, record.value);
  return Copy{block->offset, hash_key(record.key)};
}

// Moves all records of a leaf that are in slabs to be emptied, with two fences. not_found: there
// are none. conflict: the leaf has changed.
Status Tree::Compact::move_records(const Place& place) {
  ShadowLeaf& shadow = *place.leaf;
  std::array<MovedEntry, kSlots> moved;
  std::array<PoolOffset, kSlots> old;
  std::array<KeyHash, kSlots> hashes;
  unsigned found = 0;
  const auto look_at = [&](unsigned slot) {
    const SlotWord word = shadow.word(slot);
    if (!tree_.heap_.leaving(word.record())) return;
    moved[found] = {slot, word, 0};
    old[found++] = word.record();
  };
  if (work_.in_key_order && !shadow.order.known()) {
    SortedLeaf sorted;
    TENUTO_TRY(tree_.leaves_.ordered(place, sorted));  // and leaves the order there
  }
  // In the order of their keys, if it is known: new blocks often lie one behind the other.
  if (shadow.order.known() && !TENUTO_PLANT("store_moved_in_order_of_slots")) {
    for (unsigned i = 0; i < shadow.count(); ++i) look_at(shadow.order.slot(i));
  } else {
    for (std::uint64_t used = shadow.used_slots(); used != 0; used &= used - 1) {
      look_at(static_cast<unsigned>(std::countr_zero(used)));
    }
  }
  if (!shadow.still(place.version)) return Status::conflict;
  if (found == 0) return Status::not_found;
  // Given back on every way out but the good one.
  struct Copies {
    heap::Heap& heap;
    std::array<MovedEntry, kSlots>& moved;
    unsigned count = 0;
    ~Copies() {
      for (unsigned i = 0; i < count; ++i) heap.release(moved[i].word.record());
    }
  } copies{tree_.heap_, moved};
  while (copies.count < found) {
    const Result<Copy> copy = copy_record(old[copies.count]);
    if (!copy) return copy.error();
    moved[copies.count].word = SlotWord::make(copy->at, moved[copies.count].word.hash());
    hashes[copies.count] = copy->hash;
    copies.count += 1;
  }
  // Before the lock, so that other threads wait for one fence only.
  fence("copies of records", "slots of copies");
  if (!shadow.lock_if(place.version)) return Status::conflict;
  copies.count = 0;
  const bool keeps = TENUTO_PLANT("store_lookup_keeps_moved");
  for (unsigned i = 0; !keeps && i < found; ++i) tree_.lookups_.forget(hashes[i]);
  const bool too_early = TENUTO_PLANT("store_moved_record_released_early");
  for (unsigned i = 0; too_early && i < found; ++i) tree_.heap_.release(old[i]);
  store_moved(shadow, moved.data(), found);
  shadow.unlock();
  for (unsigned i = 0; !too_early && i < found; ++i)
    tree_.retire_record(old[i], hashes[i], tree_.heap_.usable_size(old[i]));
  work_.done.records_moved += found;
  return Status::ok;
}

// Moves the leaf's own block. A copy takes its place in the chain, and a new shadow leaf takes its
// place in the index. The first leaf is not moved, because it is named elsewhere. not_found: the
// leaf may stay. conflict: other threads are busy here.
Status Tree::Compact::move_leaf(const Place& place) {
  ShadowLeaf& shadow = *place.leaf;
  if (ShadowLeaf::damaged(place.version)) return Status::corrupt;
  if (!tree_.heap_.leaving(tree_.file_.offset_of(shadow.leaf))) return Status::not_found;
  const Result<std::string_view> low = tree_.leaves_.low_of(shadow);
  if (!low) return low.error();
  if (low->empty()) return Status::not_found;
  const Result<PoolOffset> next = tree_.leaves_.next_of(shadow);
  if (!next) return next.error();
  const Result<heap::Block> block = tree_.heap_.reserve(sizeof(Leaf), heap::Kind::derived);
  if (!block) return block.error();
  UnlinkedBlock unlinked(tree_.heap_, block->offset);
  tree_.shadows_.cover(block->offset);  // before the locks: from there on nothing needs memory
  const Place at_left = tree_.index_.locate(*low, Aim::before);
  ShadowLeaf& left = *at_left.leaf;
  const bool left_locked = &left != &shadow && left.lock_if(at_left.version);
  const bool locked = left_locked && shadow.lock_if(place.version);
  if (!locked || store::next_of(*left.leaf) != tree_.file_.offset_of(shadow.leaf)) {
    if (locked) shadow.unlock_unchanged();
    if (left_locked) left.unlock_unchanged();
    return Status::conflict;
  }
  // The copy gets sound words and a sound checksum, whatever the leaf has.
  if (const Status s = tree_.leaves_.words_sound(shadow); s != Status::ok) {
    shadow.unlock_unchanged();
    left.unlock_unchanged();
    return s;
  }
  unlinked.linked();
  replace_leaf(left, shadow, tree_.shadows_.fresh(block->offset), *block, *low, *next);
  shadow.unlock_dead();
  left.unlock();
  tree_.retire_block(tree_.file_.offset_of(shadow.leaf), sizeof(Leaf));
  work_.done.leaves_moved += 1;
  return Status::ok;
}

// REQUIRES: both locked.
void Tree::Compact::replace_leaf(ShadowLeaf& left, ShadowLeaf& shadow, ShadowLeaf& fresh,
                                 const heap::Block& block, std::string_view low, PoolOffset next) {
  Leaf& copy = *tree_.file_.at<Leaf>(block.offset);
  std::array<NewEntry, kSlots> entries;
  unsigned count = 0;
  for (std::uint64_t used = shadow.used_slots(); used != 0; used &= used - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(used));
    entries[count] = {shadow.word(slot), shadow.fingerprint[slot].load(std::memory_order_relaxed)};
    fresh.set_entry(count, entries[count].word, entries[count].fingerprint, {});
    count += 1;
  }
  copy_order(tree_.shadows_, shadow, fresh);
  if (TENUTO_PLANT("store_moved_leaf_linked_first")) {
    publish(left.leaf->head.next, header_word(left.leaf->head.next, block.offset.value));
  }
  fill_leaf(copy, block.offset, tree_.id_, next, entries.data(), count, low,
            low_block(*shadow.leaf));
  fresh.set_leaf(copy);
  fence("new leaf", "chain link");
  unlink_next(*left.leaf, block.offset);
  tree_.versions_.join(fresh, shadow);
  tree_.index_.exchange(&shadow, low, &fresh);
}

Status merge_leaves(Tree& tree, std::optional<std::string>& from, CompactWork& work) {
  return Tree::Compact(tree, work).merge_leaves(from);
}

Status move_blocks(Tree& tree, std::optional<std::string>& from, CompactWork& work) {
  return Tree::Compact(tree, work).move_blocks(from);
}

}  // namespace TENUTO_NS::store
