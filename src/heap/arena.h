// An arena: the slabs that a group of lanes takes blocks from, by kind and class, under one lock.
//
// A slab of logged blocks of which less than the threshold is in use is *sparse*: it stands last in
// its class's list, so that it empties, and in the arena's list of sparse slabs, in the order in
// which that happened. A class without free blocks morphs the first of these that can be (morph.h)
// before it takes a new slab. What only one class ever took from is no candidate before something
// was given back.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "heap/frame_source.h"
#include "heap/page_table.h"
#include "heap/slab.h"

namespace TENUTO_NS::heap {

class Arena {
 public:
  Arena(pm::PoolFile& file, FrameSource& frames, PageTable& pages, unsigned core,
        double morph_occupancy)
      : file_(file),
        frames_(frames),
        pages_(pages),
        core_(core),
        morph_occupancy_(morph_occupancy) {}

  // Up to `want` blocks of the class, at least one unless full.
  Result<unsigned> take(ClassId class_id, Kind kind, PoolOffset* out, unsigned want);

  // Gives blocks of this arena's slabs back. A slab that becomes empty beyond one spare a class
  // loses its frame.
  void give(Slab& slab, const unsigned* indexes, std::size_t count);

  // Recovery: a shadow for a slab found in the pool, or one for each part; once its free_bits are
  // final, either enlist it or, when nothing in it is used, discard it (its header is erased, not
  // fenced).
  Slab& adopt(PoolOffset offset, const SlabHeader& header);
  void enlist(Slab& slab);
  void discard(Slab& slab);

  // The old part has no block left: its shadow goes. REQUIRES: mu is held.
  void drop_old_part(Slab& now);

  // Gives back the frames of all wholly free slabs.
  void trim();

  // Evacuation (evacuate.cc): nothing is taken from the slab any more, and it goes when it is
  // empty. False: it is nothing to be emptied. Those that are left stay, and how many.
  bool leave(Slab& slab);
  unsigned stay_all();
  unsigned count_leaving();

  // Old parts have a turn of their own.
  template <class F>
  void for_each_slab(const F& f) {
    const std::lock_guard lock(mu);
    for (const auto& slab : slabs_) {
      if (slab->header != nullptr) f(*slab);
    }
  }

  std::mutex mu;  // guards the lists here and the marked fields of the slabs

 private:
  struct List {
    Slab* head = nullptr;  // slabs with free blocks
    Slab* tail = nullptr;
    unsigned empty = 0;  // of which wholly free
  };
  Slab* new_slab(ClassId class_id, Kind kind, Status* why);
  Slab* morphed_slab(ClassId class_id);
  Slab& morph(Slab& slab, const SlabShape& shape);
  Slab& fresh_shadow();
  void spare_shadow(Slab& slab);
  class ShadowToFill;
  void list(Slab& slab);
  void list_last(Slab& slab);
  void unlist(Slab& slab);
  bool is_sparse(const Slab& slab) const;
  void list_sparse(Slab& slab);
  void unlist_sparse(Slab& slab);
  // After blocks became free.
  void relist(Slab& slab, bool was_empty);
  void retire(Slab& slab);
  void erase(Slab& slab);
  unsigned take_old(ClassId class_id, PoolOffset* out, unsigned want);
  List& list_of(const Slab& slab) {
    if (slab.is_old()) return old_parts_[slab.class_id.value];
    return lists_[static_cast<unsigned>(slab.kind)][slab.class_id.value];
  }

  // Constant after open.
  pm::PoolFile& file_;
  FrameSource& frames_;
  PageTable& pages_;
  const unsigned core_;
  const double morph_occupancy_;
  // Guarded by mu.
  std::array<std::array<List, kClasses>, kKinds> lists_{};
  std::array<List, kClasses> old_parts_{};    // of morphed slabs, by their own class
  std::vector<std::unique_ptr<Slab>> slabs_;  // shadows never die while the pool is open
  std::vector<Slab*> spare_shadows_;
  Slab* sparse_head_ = nullptr;  // least recently used first
  Slab* sparse_tail_ = nullptr;
  unsigned sparse_count_ = 0;
};

}  // namespace TENUTO_NS::heap
