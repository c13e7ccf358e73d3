// How a tree is given back: after a drop, a rename that replaced it, or a rollback of the
// transaction that made it. REQUIRES: nothing durable names the tree, so no crash brings it back;
// every handle reports that it is gone, so no new call comes in through one.
//
//   begin_end   Advance the epoch.
//   callers     When that epoch is over, all calls have left: every call on the tree pins an epoch
//               before it asks whether the tree is there (CollectionUse), and iterators and views
//               hold theirs. So no thread reads or writes in the tree.
//   sweeps      Sweeps come from the version store, not through a handle. They pin no epoch between
//               two leaves. So this step is put off while a sweep works on versions of this tree.
//               Then VersionStore::forget empties each leaf's list and condemns what snapshots own
//               there. Nothing is added to a list any more. Last, take_condemned takes the tree's
//               versions, unless a sweep has them by then. From here on no sweep finds anything of
//               the tree. Its list heads are empty and may be given to other leaves.
//   lookers     A reader of *another* tree may still walk along these versions: its version word
//               names a head that its leaf gave back and that a leaf of this tree took. It does not
//               use what it finds, but it reads it. So the epoch is advanced once more, and the
//               versions stay until that epoch is over, too.
//   over        No pointer leads here any more. Free what is in the garbage lists, which no sweep
//               adds to, then versions, records, leaves, shadow leaves. A record that does not fit
//               its slot is not freed, because it may be another tree's (is_own).
//
// **No memory** is needed, except that the last step first prepares the calling thread
// (Heap::prepare_thread). If there is none for that, the step is tried again later.
//
// **No step waits** for another thread, so no thread waits under the collections' lock. What cannot
// be done yet is tried again by the next call that changes the catalog, finds the pool full, or
// compacts. Until then validate() knows the blocks (note_dropped). A close waits for the sweeps and
// then does all of it at once (end_now). By its contract no call is under way, and the version
// store has emptied all lists.
//
// A bulk load ends only the old shape of a tree. Its inner nodes are retired as usual. Its one list
// is emptied while the leaf is locked (VersionStore::clear), and the versions are freed by the
// sweep that has them, or will have them (bulk.cc).
#include <bit>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "store/tree/tree.h"

namespace TENUTO_NS::store {

namespace {

// Whether the record fits the slot's 24 bits of hash. A flipped bit may have made the slot name a
// record of another tree, without a read that noticed it. Such a record is not freed with this
// tree. Cost: reads a line of each record.
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
    if (!epoch_is_over(end_epoch_) || !forget_versions()) return false;
    end_epoch_ = advance_epoch();
    end_ = End::lookers;
  }
  if (end_ == End::lookers) {
    if (!epoch_is_over(end_epoch_)) return false;
    // give_all_back() must not stop half-way, so what it needs is made first. If it cannot be,
    // later.
    if (!pm::had_memory([this] { heap_.prepare_thread(); })) return false;
    give_all_back();
  }
  return true;
}

void Tree::end_now() {
  heap_.prepare_thread();  // may throw; then nothing is done
  if (end_ < End::lookers) {
    const bool forgotten = forget_versions();
    TENUTO_ASSERT(forgotten);  // no sweep is under way
  }
  if (end_ != End::over) give_all_back();
}

// Pinned, because a sweep may still unlink leaves. These have no list, and no list is made any
// more.
bool Tree::forget_versions() {
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
      leaves_.prefetch(shadow->word(static_cast<unsigned>(std::countr_zero(used))));
    }
    for (std::uint64_t used = all; used != 0; used &= used - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(used));
      const PoolOffset record = shadow->word(slot).record();
      if (is_own(file_, *shadow, slot) || TENUTO_PLANT("store_drop_frees_what_is_not_its_own")) {
        heap_.release(record);
      } else {
        static_cast<void>(pm::had_memory([&] {
          static_cast<void>(leaves_.damaged(record, "record of a collection that was dropped"));
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
