// The end of a tree: after a drop, a rename that replaced it, a rollback of the transaction that
// made it. REQUIRES: nothing durable names the tree, so that no crash brings it back; every handle
// says that it is gone, so that nobody new comes in by one.
//
//    begin_end   advance the epoch
//    callers     every call on the tree pins an epoch before it asks whether the tree is there
//                (CollectionUse), iterators and views hold theirs. When the old one is over they
//                have left: nobody reads or writes in the tree.
//    sweeps      they come from the history and not through a handle, without an epoch between two
//                leaves. While one has versions of this tree in its hands the end waits. Then each
//                leaf's list is emptied, and what snapshots still own there is condemned
//                (VersionStore::forget); nobody puts more into a list. In the end
//                VersionStore::take_condemned takes those of this tree, if no sweep has them by
//                then: no sweep finds anything of it again, and its list heads, empty, may go to
//                other leaves.
//    lookers     a reader of *another* tree may still walk along these versions: it holds a version
//                word with a head that its leaf gave back, and that a leaf of this tree took. It
//                does not believe what it finds, but it looks. So the epoch is advanced once more,
//                and what the lists named stays until that one is over, too.
//    over        nobody is led here by anything. What waited in the garbage lists is freed, whoever
//    put it
//                there (sweeps included, for they are over), then versions, records, leaves, shadow
//                leaves; not a record that its slot cannot mean, for it may be another tree's.
//
// Nothing of this needs memory: what was dropped is given back when there is none, too.
//
// No step waits for another thread: what cannot be done yet is tried again by the next call that
// changes the catalog, finds the pool full, or compacts; so nobody waits under the collections'
// lock. Until then validate() knows the blocks (note_dropped). A close waits for the sweeps, and
// then does all of it at once (end_now), for by its contract nobody is in a call; the history has
// emptied all lists then.
//
// A bulk load ends only the old shape of a tree. Its inner nodes go through the garbage lists, as
// always; its one list is emptied while the leaf is locked (VersionStore::clear), and the versions
// go with the sweep that has them, or will (bulk.cc).
#include <bit>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "store/tree/tree.h"

namespace TENUTO_NS::store {

namespace {

// A flipped bit may have made a slot name a record of another tree, and nobody has looked since. It
// is not given back with this one: the record has to have its slot's 24 bits of hash. Cost: a line
// of each record is read.
bool is_own(const pm::PoolFile& file, const ShadowLeaf& shadow, unsigned slot) {
  const SlotWord word = shadow.word(slot);
  Record record;
  if (!read_record(file, word.record(), record)) return false;
  const KeyHash hash = hash_key(record.key);
  return hash.slot == word.hash() &&
         hash.fingerprint == shadow.fingerprint[slot].load(std::memory_order_relaxed);
}

}  // namespace

void Tree::begin_end() {
  TENUTO_ASSERT(end_ == End::none);
  end_epoch_ = advance_epoch();
  end_ = End::callers;
}

bool Tree::try_end() {
  TENUTO_ASSERT(end_ != End::none);
  if (end_ == End::callers) {
    if (!epoch_is_over(end_epoch_) || !forget_history()) return false;
    end_epoch_ = advance_epoch();
    end_ = End::lookers;
  }
  if (end_ == End::lookers) {
    if (!epoch_is_over(end_epoch_)) return false;
    // Giving back does not stop half way: what it needs is there before, or it comes later.
    if (!pm::had_memory([this] { heap_.prepare_thread(); })) return false;
    give_all_back();
  }
  return true;
}

void Tree::end_now() {
  heap_.prepare_thread();  // may throw, and nothing is done then
  if (end_ < End::lookers) {
    const bool forgotten = forget_history();
    TENUTO_ASSERT(forgotten);  // no sweep is under way
  }
  if (end_ != End::over) give_all_back();
}

// Pinned, for a sweep may still unlink leaves, which then have no list; nobody makes one.
bool Tree::forget_history() {
  const EpochGuard guard;
  bool free = true;
  index_.each_leaf([&](ShadowLeaf* shadow) {
    if (!free || ShadowLeaf::version_list(shadow->version.load(std::memory_order_acquire)) == 0)
      return;
    free = versions_.forget(*this, *shadow);
  });
  return free && versions_.take_condemned(*this, forgotten_);
}

void Tree::give_all_back() {
  garbage_.drain();
  if (garbage_.lost()) file_.leave_to_recovery();
  while (OldVersion* v = forgotten_) {
    forgotten_ = v->after;
    if (v->record) heap_.release(v->record);
    OldVersion::destroy(v);
  }
  index_.each_leaf([this](ShadowLeaf* shadow) {
    const std::uint64_t all = shadow->used_slots();
    for (std::uint64_t used = all; used != 0; used &= used - 1) {
      prefetch(shadow->word(static_cast<unsigned>(std::countr_zero(used))));
    }
    for (std::uint64_t used = all; used != 0; used &= used - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(used));
      const PoolOffset record = shadow->word(slot).record();
      if (is_own(file_, *shadow, slot) || TENUTO_PLANT("store_drop_frees_what_is_not_its_own")) {
        heap_.release(record);
      } else {
        static_cast<void>(pm::had_memory([&] {
          static_cast<void>(damaged(record, "record of a collection that was dropped"));
        }));
      }
    }
    if (const PoolOffset block = low_block(*shadow->leaf)) heap_.release(block);
    heap_.release(file_.offset_of(shadow->leaf));
    shadows_.put(shadow);
  });
  end_ = End::over;
}

}  // namespace TENUTO_NS::store
