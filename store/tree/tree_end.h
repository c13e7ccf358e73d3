// How a tree is given back: after a drop, a rename that replaced it, or a rollback of the
// transaction that made it. REQUIRES: nothing durable names the tree, so no crash brings it back;
// every handle reports that it is gone, so no new call comes in through one.
//
//   begin       Advance the epoch.
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
// compacts. Until then a validation knows the blocks (note). A close waits for the sweeps and
// then does all of it at once (end_now). By its contract no call is under way, and the version
// store has emptied all lists.
//
// A bulk load ends only the old shape of a tree. Its inner nodes are retired as usual. Its one list
// is emptied while the leaf is locked (VersionStore::clear), and the versions are freed by the
// sweep that has them, or will have them (bulk.cc).
#pragma once

#include <cstdint>

#include "store/tree/check.h"
#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// REQUIRES: one thread at a time.
class Tree::End {
 public:
  explicit End(Tree& tree) : tree_(tree), epoch_(advance_epoch()) {}
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  // true: all calls have left, and every block is with the heap. false: ask again. Does not wait.
  bool try_end();
  // The same at once, whatever epochs are pinned. REQUIRES: no call is in the tree or comes.
  void end_now();
  // Notes the blocks that were not given back yet, for validation.
  void note(Reached& reached) const;

 private:
  // What give_all_back() needs: leaves that are read, memory. Throws bad_alloc.
  void prepare();
  bool forget_versions();
  void give_all_back();

  Tree& tree_;
  enum class Step : std::uint8_t { callers, lookers, over } step_ = Step::callers;
  std::uint64_t epoch_;
  OldVersion* forgotten_ = nullptr;  // linked by `after`
};

}  // namespace TENUTO_NS::store
