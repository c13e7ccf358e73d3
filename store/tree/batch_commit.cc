// A batch whose leaves are locked: it validates what a transaction has read, saves what will
// change, changes the leaves in place, and lets them go. The steps: batch.cc.
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "pm/plant.h"
#include "store/tree/batch.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

// Checks that nothing the transaction read has changed since. The argument: versions.h, and for
// collections life.h.
Status Tree::Batch::validate() {
  if (reads_ == nullptr) return Status::ok;
  for (const CollectionLife* life : reads_->lives) {
    if (!life->is_open() && !TENUTO_PLANT("store_commit_lives_not_validated")) {
      return Status::conflict;
    }
  }
  if (reads_->snapshot == nullptr) return Status::ok;
  if (reads_->expired() && !TENUTO_PLANT("store_commit_time_not_validated")) {
    return Status::conflict;
  }
  std::vector<ShadowLeaf*> mine;
  for (const LockedLeaf& l : locked_) mine.push_back(l.shadow);
  std::sort(mine.begin(), mine.end());
  const SnapshotCore& snapshot = *reads_->snapshot;
  for (const ReadRange& r : reads_->ranges) {
    TENUTO_TRY(r.tree().unchanged(r, snapshot.timestamp, mine));
  }
  // An expired snapshot has kept no versions that could show a change.
  return snapshot.expired.load(std::memory_order_acquire) ? Status::expired : Status::ok;
}

Status Tree::Batch::save(tx::Txn& txn) {
  for (const LockedLeaf& l : locked_) {
    if (l.header_changes && !TENUTO_PLANT("store_batch_header_not_saved"))
      TENUTO_TRY(txn.log_later(&l.shadow->leaf->head, sizeof(LeafHeader)));
    for (std::size_t i = l.first; i < l.end; ++i) {
      const Change& c = changes_[i];
      if (!c.found || c.op->erase) continue;
      TENUTO_TRY(txn.log_later(&l.shadow->leaf->slot[c.slot], sizeof(SlotWord)));
    }
  }
  return txn.ready();
}

// Changes the leaves in place, and flushes each line once. The commit fences.
void Tree::Batch::store() {
  for (const LockedLeaf& l : locked_) {
    Leaf& leaf = *l.shadow->leaf;
    std::uint64_t slot_lines = 0;
    for (std::size_t i = l.first; i < l.end; ++i) {
      const Change& c = changes_[i];
      if (c.op->erase) continue;
      store_ordered(leaf.slot[c.slot], SlotWord::make(c.record, c.hash.slot));
      if (TENUTO_PLANT("store_batch_slot_unflushed")) continue;
      slot_lines |= 1ull << c.slot / kSlotsPerLine;
    }
    for (; slot_lines != 0; slot_lines &= slot_lines - 1) {
      const auto line = static_cast<unsigned>(std::countr_zero(slot_lines));
      flush_bytes(&leaf.slot[line * kSlotsPerLine], kLineBytes);
    }
    if (l.header_changes) store_header(l);
  }
}

void Tree::Batch::store_header(const LockedLeaf& l) {
  LeafHeader& head = l.shadow->leaf->head;
  std::uint64_t bitmap = bitmap_of(*l.shadow->leaf);
  UsedFingerprints fingerprints = fingerprints_of(*l.shadow);
  for (std::size_t i = l.first; i < l.end; ++i) {
    const Change& c = changes_[i];
    if (c.op->erase == !c.found) continue;  // an update, or an erase of nothing
    fingerprints.of[c.slot] = c.op->erase ? std::uint8_t{0} : c.hash.fingerprint;
    if (!c.op->erase) store_ordered(head.fingerprint[c.slot], c.hash.fingerprint);
    bitmap ^= 1ull << c.slot;
  }
  store_ordered(head.bitmap, bitmap_word(head.bitmap, bitmap, fingerprints));
  if (!TENUTO_PLANT("store_batch_header_unflushed")) flush(head);
}

void Tree::Batch::finish() {
  for (const LockedLeaf& l : locked_) {
    for (std::size_t i = l.first; i < l.end; ++i) {
      Change& c = changes_[i];
      keep(l, c);
      const SlotWord word = SlotWord::make(c.record, c.hash.slot);
      if (c.op->erase) {
        if (c.found) l.shadow->remove_entry(c.slot);
      } else if (c.found) {
        l.shadow->set_word(c.slot, word);
        enter(l, c);
      } else {
        l.shadow->set_entry(c.slot, word, c.hash.fingerprint,
                            l.tree->leaves_.place_in_order(*l.shadow, c.op->key));
      }
    }
  }
  // Look for empty leaves before the unlock: after that a shadow leaf may die.
  for (const LockedLeaf& l : locked_) {
    if (l.header_changes && l.shadow->used_slots() == 0) emptied_.push_back(&changes_[l.first]);
  }
  for (const LockedLeaf& l : locked_) {
    const bool late = TENUTO_PLANT("store_lookup_forgets_one_by_one");
    if (late) forget(l);
    l.shadow->unlock();
    if (late) ::usleep(20);
  }
  locked_.clear();
  for (Change& c : changes_) c.record = {};  // it belongs to its leaf now
  for (Change& c : changes_) {
    std::int64_t bytes = -c.old_bytes;
    std::int64_t records = c.found ? -1 : 0;
    if (!c.op->erase) {
      bytes += bytes_of({c.op->key, c.op->value});
      records += 1;
    } else if (c.found) {
      ++erased_;
    }
    if (c.found && !c.kept) {
      const auto old_bytes = static_cast<std::uint64_t>(c.old_bytes) + sizeof(RecordHead);
      c.tree().retire_record(c.old_word.record(), c.hash, old_bytes);
      retired_bytes_ += old_bytes;
    }
    c.tree().garbage_.mine().count(records, bytes);
  }
  if (now_.snapshots() != 0) versions().sweep();
  for (const Change* c : emptied_) c->tree().unlink_empty(c->op->key);
}

void Tree::Batch::keep(const LockedLeaf& l, Change& c) {
  if (now_.snapshots() == 0 || (c.op->erase && !c.found)) return;
  const SnapshotCore* own = reads_ == nullptr ? nullptr : reads_->snapshot.get();
  c.kept =
      versions().keep({*l.tree, *l.shadow, c.op->key, c.hash, now_.clock(), c.old_word.record(),
                       static_cast<std::uint64_t>(c.old_bytes), c.op->erase, own});
}

// Removes the keys' entries from the lookup cache.
void Tree::Batch::forget(const LockedLeaf& l) {
  const bool early = TENUTO_PLANT("store_lookup_batch_enters_early");
  for (std::size_t i = l.first; i < l.end; ++i) {
    if (!changes_[i].found) continue;
    l.tree->lookups_.forget(changes_[i].hash);
    if (early) enter(l, changes_[i]);
  }
  if (early) ::usleep(20);
}

// Enters the new record, if the key's bucket has room. REQUIRES: the batch is committed, and the
// leaf locked. So who finds the record here waits at the leaves of the other keys.
void Tree::Batch::enter(const LockedLeaf& l, const Change& c) {
  if (c.op->erase) return;
  LookupCache::Change change(l.tree->lookups_, c.hash);
  change.becomes(c.record);
}

}  // namespace TENUTO_NS::store
