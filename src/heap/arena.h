// An arena: the slabs that a group of lanes takes blocks from, by kind and class, under one lock.
// Called by the thread caches to refill and spill, and by recovery to fill.
//
// (Slab morphing will choose among the slabs of an arena here.)
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "heap/frame_source.h"
#include "heap/page_table.h"
#include "heap/slab.h"

namespace tenuto::inline TENUTO_ABI::heap {

class Arena {
 public:
  Arena(pm::PoolFile& file, FrameSource& frames, PageTable& pages, unsigned core)
      : file_(file), frames_(frames), pages_(pages), core_(core) {}

  // Up to `want` blocks of the class, at least one unless full.
  Result<unsigned> take(ClassId class_id, Kind kind, PoolOffset* out, unsigned want);

  // Gives blocks of this arena's slabs back. A slab that becomes empty beyond one spare a class
  // loses its frame.
  void give(Slab& slab, const unsigned* indexes, std::size_t count);

  // Recovery: a twin for a slab found in the pool; once its free_bits are final, either
  // enlist it or, when nothing in it is used, discard it (its header is erased, not fenced).
  Slab& adopt(PoolOffset offset, const SlabHeader& header);
  void enlist(Slab& slab);
  void discard(Slab& slab);

  // Gives back the frames of all wholly free slabs.
  void trim();

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
    unsigned empty = 0;    // of which wholly free
  };
  Slab* new_slab(ClassId class_id, Kind kind, Status* why);
  Slab& fresh_twin();
  void list(Slab& slab);
  void unlist(Slab& slab);
  void retire(Slab& slab);
  List& list_of(const Slab& slab) {
    return lists_[static_cast<unsigned>(slab.kind)][slab.class_id.value];
  }

  // Constant after open.
  pm::PoolFile& file_;
  FrameSource& frames_;
  PageTable& pages_;
  const unsigned core_;
  // Guarded by mu.
  std::array<std::array<List, kClasses>, 2> lists_{};
  std::vector<std::unique_ptr<Slab>> slabs_;  // twins never die while the pool is open
  std::vector<Slab*> spare_twins_;
};

}  // namespace tenuto::inline TENUTO_ABI::heap
