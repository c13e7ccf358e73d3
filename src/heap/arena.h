// An arena: the slabs that a group of lanes takes blocks from, by kind and class, under one lock.
//
// A slab of logged blocks is *sparse* when less than the threshold of it is in use. A sparse slab
// is at the end of its class's list, so that it empties. It is also in the arena's list of sparse
// slabs, in the order in which they became sparse. A class without free blocks morphs the first
// sparse slab that can be morphed (morph.h) before it takes a new slab. A slab becomes a candidate
// only when a block of it is given back, or when recovery finds it sparse.
//
// **Slabs of records in shared pages** (Kind::record) are filled one after the other. Their pages
// are on a disk, and each page that a record is stored to is read before and written after. A block
// that is used again alone costs that for itself. So a slab gives blocks again only when a quarter
// of it is free: until then no list has it, and the class makes new slabs. Hence at most a quarter
// of the blocks is free where a class makes a slab. In a full pool, and in an evacuation, slabs of
// records are as all others, until there is room for a new one.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <mutex>
#include <vector>

#include "heap/frame_source.h"
#include "heap/page_table.h"
#include "heap/slab.h"
#include "pm/short_lock.h"

namespace TENUTO_NS::heap {

class Arena {
 public:
  Arena(pm::PoolFile& file, FrameSource& frames, PageTable& pages, unsigned core,
        double morph_occupancy, Wear* wear = nullptr)
      : file_(file),
        frames_(frames),
        pages_(pages),
        core_(core),
        morph_occupancy_(morph_occupancy),
        wear_(wear) {}

  // Takes up to `want` blocks of the class, and at least one unless the pool is full, or the arena
  // has none and may not make a slab for it.
  enum class From : std::uint8_t { its_slabs, anywhere };
  Result<unsigned> take(ClassId class_id, Kind kind, TakenBlock* out, unsigned want,
                        From from = From::anywhere);

  // Gives blocks of this arena's slabs back. A class keeps one empty slab; others that become empty
  // lose their frame.
  void give(Slab& slab, const unsigned* indexes, std::size_t count);

  // Recovery. adopt makes a shadow for a slab found in the pool, or one for each part. When the
  // slab's free_bits are final, the caller enlists it, or discards it if nothing in it is used.
  // discard erases the header and does not fence. Null: another thread is here, and `wait` is
  // false.
  Slab* adopt(PoolOffset offset, const SlabHeader& header, bool wait);
  void enlist(Slab& slab);
  void discard(Slab& slab);

  // The old part has no block left: releases its shadow. REQUIRES: mu is held.
  void drop_old_part(Slab& now);

  // Gives back the frames of all slabs that are wholly free.
  void trim();

  // Evacuation (evacuate.cc). After leave() nothing is taken from the slab, and it loses its frame
  // when it is empty. leave() returns false for a slab that cannot be evacuated. stay_all() keeps
  // the slabs that are not empty yet and returns their number.
  void use_all();  // also the few free blocks of dense slabs, until stay_all() or a new slab
  bool leave(Slab& slab);
  unsigned stay_all();
  unsigned count_leaving();

  // Calls f for every shadow: of a morphed slab once for each part.
  template <class F>
  void for_each_slab(const F& f) {
    const std::lock_guard lock(mu);
    for (const auto& slab : slabs_) {
      if (slab->header != nullptr) f(*slab);
    }
  }

  unsigned node = 0;        // NUMA; constant after open
  bool on_one_node = true;  // the pool, too
  pm::ShortLock mu;         // guards the lists here, and the fields of Slab that are marked so

 private:
  struct List {
    Slab* head = nullptr;  // slabs with free blocks
    Slab* tail = nullptr;
    unsigned empty = 0;  // of these, wholly free
  };
  // worn_max: only in a frame with at most so many lines, and without growth.
  Slab* new_slab(ClassId class_id, Kind kind, Status* why, const std::uint64_t* worn_max = nullptr);
  // arena_wear.cc
  Slab* fresh_slab(List& list, ClassId class_id, Kind kind);
  unsigned take_least_worn(Slab& slab, TakenBlock* out, unsigned want);
  bool rest_frame(const Slab& slab);
  Slab* morphed_slab(ClassId class_id);
  Slab& morph(Slab& slab, const SlabShape& shape);
  Slab& fresh_shadow(ClassId class_id);
  void spare_shadow(Slab& slab);
  void place(Slab& slab) const;
  class ShadowToFill;
  void list(Slab& slab);
  void list_last(Slab& slab);
  bool is_dense(const Slab& slab) const;
  void list_dense();
  void unlist(Slab& slab);
  bool is_sparse(const Slab& slab) const;
  void list_sparse(Slab& slab);
  void unlist_sparse(Slab& slab);
  // After blocks became free.
  void relist(Slab& slab, bool was_empty);
  void retire(Slab& slab);
  void erase(Slab& slab);
  unsigned take_old(ClassId class_id, TakenBlock* out, unsigned want);
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
  Wear* const wear_;  // null without wear levelling
  // Guarded by mu.
  std::array<std::array<List, kClasses>, kKinds> lists_{};
  bool uses_all_ = false;                     // is_dense() is false
  std::array<List, kClasses> old_parts_{};    // of morphed slabs, by the class of the old part
  std::vector<std::unique_ptr<Slab>> slabs_;  // shadows stay allocated while the pool is open
  // Shadows by the words of their bits: how many there are, and those without a slab.
  struct Shadows {
    std::size_t made = 0;
    std::vector<Slab*> spare;
  };
  Shadows& spares_of(unsigned words) { return shadows_[std::bit_width(words) - 1]; }
  std::array<Shadows, std::bit_width(kBlocksMax / 64)> shadows_;
  Slab* sparse_head_ = nullptr;  // the one that became sparse first, or was tried longest ago
  Slab* sparse_tail_ = nullptr;
  unsigned sparse_count_ = 0;
};

}  // namespace TENUTO_NS::heap
