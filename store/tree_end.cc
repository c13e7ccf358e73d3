// The end of a tree: after a drop, a rename that replaced it, a rollback of the transaction that
// made it. Called by collections.cc, which has made sure of two things: nothing durable names the
// tree, when no crash brings it back, and every handle says that it is gone, so that nobody new
// comes in by one.
//
//    begin_end   seal the epoch
//    callers     every call on the tree pins an epoch before it asks whether the tree is there
//                (CollectionUse), iterators and views hold theirs. When the sealed one is over they
//                have left: nobody reads or writes in the tree.
//    sweeps      they come from the history and not through a handle, without an epoch between two
//                leaves. While one has versions of this tree in its hands the end waits. Then
//                History::forget takes, in one step under its mutex, all versions that snapshots
//                still own, those that wait for a sweep, and the lists they hang in: no sweep finds
//                anything of this tree again, and its list heads, empty, may go to other leaves.
//    lookers     a reader of *another* tree may still walk along these versions: it holds a version
//                word with a head that its leaf gave back, and that a leaf of this tree took. It
//                does not believe what it finds, but it looks. So the epoch is sealed once more,
//                and what the lists named stays until that one is over, too.
//    over        nobody is led here by anything. What waited in the limbos is freed, whoever put it
//                there (sweeps included, for they are over), then versions, records, leaves, twins.
//
// No step waits for another thread: what cannot be done yet is tried again by the next call that
// changes the catalog, finds the pool full, or compacts; so nobody waits under the collections'
// lock. Until then validate() knows the blocks (note_dropped). A close waits for the sweeps, and
// then does all of it at once (end_now), for by its contract nobody is in a call; the history has
// emptied all lists then.
//
// A bulk load ends only the old shape of a tree. Its inner nodes go through the limbos, as always;
// its one list is emptied while the leaf is locked (History::clear), and the versions go with the
// sweep that has them, or will (bulk.cc).
#include <bit>
#include <vector>

#include "pm/assert.h"
#include "store/tree.h"

namespace tenuto::inline TENUTO_ABI::store {

void Tree::begin_end() {
  TENUTO_ASSERT(end_ == End::none);
  end_epoch_ = seal_epoch();
  end_ = End::callers;
}

bool Tree::try_end() {
  TENUTO_ASSERT(end_ != End::none);
  if (end_ == End::callers) {
    if (!epoch_is_over(end_epoch_) || !forget_history()) return false;
    end_epoch_ = seal_epoch();
    end_ = End::lookers;
  }
  if (end_ == End::lookers) {
    if (!epoch_is_over(end_epoch_)) return false;
    give_all_back();
  }
  return true;
}

void Tree::end_now() {
  if (end_ < End::lookers) {
    const bool forgotten = forget_history();
    TENUTO_ASSERT(forgotten);  // no sweep is under way
  }
  if (end_ != End::over) give_all_back();
}

// Pinned, for a sweep may still unlink leaves, which then have no list; nobody makes one.
bool Tree::forget_history() {
  const EpochGuard guard;
  std::vector<VLeaf*> listed;
  index_.for_each([&](VLeaf* twin, std::string_view) {
    if (VLeaf::history(twin->version.load(std::memory_order_acquire)) != 0) listed.push_back(twin);
  });
  return history_.forget(*this, listed, forgotten_);
}

void Tree::give_all_back() {
  limbos_.drain();
  while (OldVersion* v = forgotten_) {
    forgotten_ = v->after;
    if (v->record) heap_.release(v->record);
    OldVersion::destroy(v);
  }
  index_.for_each([this](VLeaf* twin, std::string_view) {
    for (std::uint64_t used = twin->used_slots(); used != 0; used &= used - 1) {
      heap_.release(twin->word(static_cast<unsigned>(std::countr_zero(used))).record());
    }
    if (const PoolOffset block = low_block(*twin->leaf)) heap_.release(block);
    heap_.release(file_.offset_of(twin->leaf));
    twins_.put(twin);
  });
  end_ = End::over;
}

}  // namespace tenuto::inline TENUTO_ABI::store
