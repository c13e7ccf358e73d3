// Wear levelling in an arena: which slab of a class gives the next blocks (wear.h).
#include <algorithm>

#include "heap/arena.h"
#include "heap/wear.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kLookSlabs = 16;  // of a class, from the head of its list
constexpr std::uint64_t kOverwrite = kSlabBytes / kLineBytes;  // lines
}  // namespace

// The first slab in the list that is not worn. It is used until it is, and then left alone: so hot
// objects are in few slabs at a time, the others empty, and their frames are free for any class. If
// all are worn, a new slab in a frame that is not, if the file has one, or in one that is less worn
// than they are, by an overwrite; else the least worn. (Without that a class with few slabs would
// go on in one of them while all free frames are just above the limit, which rises slowly.) Worn
// ones go to the end of the list, so that others come to the front. Null: the list is empty.
// REQUIRES: mu is held.
Slab* Arena::fresh_slab(List& list, ClassId class_id, Kind kind) {
  if (list.head == nullptr || TENUTO_PLANT("heap_wear_takes_the_first_slab")) return list.head;
  Slab* best = nullptr;
  std::uint64_t best_worn = 0;
  Slab* slab = list.head;
  for (unsigned n = 0; n < kLookSlabs && slab != nullptr; ++n) {
    Slab* const next = slab->next;
    const std::uint64_t worn = wear_->of_slab(*slab);
    if (worn <= Wear::kWorn) return slab;
    if (best == nullptr || worn < best_worn) {
      best = slab;
      best_worn = worn;
    }
    if (next != nullptr) {
      unlist(*slab);
      list_last(*slab);
    }
    slab = next;
  }
  if (kind == Kind::record) return best;  // its zones have frames of their own
  if (TENUTO_PLANT("heap_wear_stays_in_its_slabs")) return best;
  Status why = Status::full;
  const std::uint64_t limit = wear_->limit();
  const std::uint64_t best_lines = best_worn * limit / Wear::kWorn;
  const std::uint64_t worn_max = std::max(limit, best_lines - std::min(best_lines, kOverwrite));
  Slab* const fresh = new_slab(class_id, kind, &why, &worn_max);
  return fresh != nullptr ? fresh : best;
}

unsigned Arena::take_least_worn(Slab& slab, TakenBlock* out, unsigned want) {
  const bool first = TENUTO_PLANT("heap_wear_takes_the_first_block");
  const unsigned got = first ? slab.take(out, want) : slab.take_least_worn(*wear_, out, want);
  wear_->took(slab, out, got);
  return got;
}

// The blocks of an evacuated slab did not rest, so its frame does. In other slabs each block
// rested before it was free. False: the frame is free at once.
bool Arena::rest_frame(const Slab& slab) {
  if (!slab.leaving.load(std::memory_order_relaxed) || wear_->rest_ms() <= 0) return false;
  return wear_->rest(core_).add({wear_->now_ms(), slab.offset, 0, Resting::What::slab_frame});
}

}  // namespace TENUTO_NS::heap
