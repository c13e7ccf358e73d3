#include "heap/arena.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "heap/guard.h"
#include "heap/morph.h"
#include "heap/wear.h"
#include "pm/assert.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kEmptySlabsKept = 1;  // a class, so that frames do not go back and forth
constexpr unsigned kMorphTries = 32;     // sparse slabs tried before a new slab is taken
constexpr unsigned kFillFrom = 4;        // a slab of records with a fourth of its blocks free

PageOwner owner_of(const Slab& slab) {
  return slab.kind == Kind::typed ? PageOwner::typed : PageOwner::slab;
}
}  // namespace

Result<unsigned> Arena::take(ClassId class_id, Kind kind, TakenBlock* out, unsigned want,
                             From from) {
  const std::lock_guard lock(mu);
  List& list = lists_[static_cast<unsigned>(kind)][class_id.value];
  unsigned got = 0;
  while (got < want) {
    Slab* slab = wear_ == nullptr ? list.head : fresh_slab(list, class_id, kind);
    if (slab == nullptr) {
      if (got > 0) break;
      Status why = Status::full;
      if (from == From::anywhere) {
        if (kind == Kind::logged) slab = morphed_slab(class_id);
        if (slab == nullptr) slab = new_slab(class_id, kind, &why);
      }
      if (slab == nullptr && kind == Kind::record && !uses_all_ &&
          !TENUTO_PLANT("heap_full_beside_dense_slabs")) {
        list_dense();
        slab = list.head;
      }
      if (slab == nullptr && kind == Kind::logged) got = take_old(class_id, out, want);
      if (got > 0 && file_.canaries()) {
        TENUTO_TRY(guard_taken(file_, nullptr, kClassBytes[class_id.value], {out, got}));
      }
      if (got > 0) break;
      if (slab == nullptr) return why;
    }
    if (!guard_header(file_, *slab)) return Status::corrupt;
    if (slab->empty()) list.empty -= 1;
    const unsigned before = got;
    got += wear_ == nullptr ? slab->take(out + got, want - got)
                            : take_least_worn(*slab, out + got, want - got);
    if (file_.canaries() && is_logged(kind)) {
      TENUTO_TRY(guard_taken(file_, slab, slab->block_bytes, {out + before, got - before}));
    }
    if (slab->free_count == 0) unlist(*slab);
    if (slab->sparse && !is_sparse(*slab)) unlist_sparse(*slab);
  }
  return got;
}

void Arena::give(Slab& slab, const unsigned* indexes, std::size_t count) {
  const std::lock_guard lock(mu);
  Slab* const successor = slab.successor.load(std::memory_order_relaxed);
  Slab& now = successor != nullptr ? *successor : slab;
  // The store's records are given back without a look at the slab. Its page may be on a disk alone,
  // and to read it took a fifth of the time of updates in a store larger than memory.
  if (!is_derived(now.kind)) guard_header(file_, now);
  const bool was_empty = now.empty();
  for (std::size_t i = 0; i < count; ++i) {
    if (slab.is_free(indexes[i])) {  // freed twice: two references led to it
      static_cast<void>(file_.damaged(slab.block_offset(indexes[i]), "block that is freed twice"));
      continue;
    }
    slab.set_free(indexes[i]);
    if (successor != nullptr) free_old_block(now, indexes[i]);
  }
  if (successor != nullptr && slab.free_count == slab.blocks) drop_old_part(now);
  if (now.leaving.load(std::memory_order_relaxed)) {
    if (now.empty()) erase(now);
    return;
  }
  relist(now, was_empty);
  if (now.empty() && list_of(now).empty > kEmptySlabsKept) retire(now);
}

// REQUIRES for both: mu is held.
void Arena::relist(Slab& slab, bool was_empty) {
  if (slab.free_count != 0 && !slab.listed && !is_dense(slab)) list(slab);
  if (!slab.sparse && is_sparse(slab)) {  // from now on last in its class's list
    unlist(slab);
    list_sparse(slab);
    list(slab);
  }
  if (slab.empty() && !was_empty) list_of(slab).empty += 1;
}

void Arena::drop_old_part(Slab& now) {
  Slab& old = *now.old.load(std::memory_order_relaxed)->slab;
  if (old.listed) unlist(old);
  now.old.store(nullptr, std::memory_order_release);
  old.successor.store(nullptr, std::memory_order_relaxed);
  spare_shadow(old);
}

// For a full pool: old blocks that overlap nothing in use. REQUIRES: mu is held.
unsigned Arena::take_old(ClassId class_id, TakenBlock* out, unsigned want) {
  for (Slab* old = old_parts_[class_id.value].head; old != nullptr; old = old->next) {
    Slab& now = *old->successor.load(std::memory_order_relaxed);
    const unsigned got = take_old_blocks(now, out, want);
    if (now.listed && now.free_count == 0) unlist(now);
    if (got > 0) return got;
  }
  return 0;
}

// Needs no memory: fresh_shadow() reserves the room.
void Arena::spare_shadow(Slab& slab) {
  slab.header = nullptr;
  spares_of(slab.words()).spare.push_back(&slab);
}

// NUMA: where the slab is, and who owns it.
void Arena::place(Slab& slab) const {
  slab.owner = static_cast<std::uint8_t>(node);
  if (on_one_node) return;
  slab.node = static_cast<std::uint8_t>(frames_.frames().node_of(frame_of_offset(slab.offset)));
}

// A shadow that is being filled. Becomes spare again unless take() is called.
class Arena::ShadowToFill {
 public:
  ShadowToFill(Arena& arena, ClassId class_id)
      : arena_(arena), slab_(&arena.fresh_shadow(class_id)) {}
  ~ShadowToFill() {
    if (slab_ != nullptr) arena_.spare_shadow(*slab_);
  }
  ShadowToFill(const ShadowToFill&) = delete;
  ShadowToFill& operator=(const ShadowToFill&) = delete;
  Slab& slab() const { return *slab_; }
  Slab& take() { return *std::exchange(slab_, nullptr); }

 private:
  Arena& arena_;
  Slab* slab_;
};

// Morphs a sparse slab of another class into this class; null when none can be morphed. Two fences,
// once a slab. REQUIRES: mu is held, and no slab of the class has free blocks.
Slab* Arena::morphed_slab(ClassId class_id) {
  const unsigned tries = std::min(kMorphTries, sparse_count_);
  for (unsigned i = 0; i < tries; ++i) {
    Slab& slab = *sparse_head_;
    const auto shape = plan_morph(slab, class_id, file_.superblock().stripes);
    if (shape) return &morph(slab, *shape);
    unlist_sparse(slab);
    list_sparse(slab);  // the others have their turn first
  }
  return nullptr;
}

Slab& Arena::morph(Slab& slab, const SlabShape& shape) {
  // Before anything is written: nothing below needs memory.
  ShadowToFill shadow(*this, {shape.now.class_id});
  if (shape.old) make_room_for_old(shadow.slab());
  unlist_sparse(slab);
  if (slab.empty()) list_of(slab).empty -= 1;
  if (slab.listed) unlist(slab);
  guard_header(file_, slab);
  write_shape(file_, slab, shape);
  Slab& now = shadow.take();
  attach_slab(now, file_, slab.offset, *slab.header, shape);
  place(now);
  now.fill_free_all();
  if (shape.old) {
    join_parts(now, slab);
    list(slab);
    const bool apart = hold_old_blocks(now);
    TENUTO_ASSERT(apart);
  } else {
    spare_shadow(slab);
  }
  pages_.set(slab.offset, PageOwner::slab, &now);
  list(now);
  if (now.empty()) list_of(now).empty += 1;
  return now;
}

Slab& Arena::fresh_shadow(ClassId class_id) {
  const unsigned words = bit_words(class_id);
  Shadows& shadows = spares_of(words);
  if (!shadows.spare.empty()) {
    Slab& slab = *shadows.spare.back();
    shadows.spare.pop_back();
    return slab;
  }
  const std::size_t all = shadows.made + 1;
  if (shadows.spare.capacity() < all) shadows.spare.reserve(2 * all);
  slabs_.push_back(std::make_unique<Slab>(words));
  slabs_.back()->arena = this;
  shadows.made = all;
  return *slabs_.back();
}

// REQUIRES: mu is held. Two fences, once a slab.
Slab* Arena::new_slab(ClassId class_id, Kind kind, Status* why, const std::uint64_t* worn_max) {
  std::optional<ShadowToFill> shadow;  // before anything is written
  if (!TENUTO_PLANT("heap_slab_made_before_its_shadow")) shadow.emplace(*this, class_id);
  const auto use = kind == Kind::record ? frame::ZoneUse::records : frame::ZoneUse::any;
  const Result<PoolOffset> frame = worn_max != nullptr ? frames_.get_fresher(*worn_max, core_)
                                                       : frames_.get(frame::kOrderSlab, core_, use);
  if (!frame) {
    *why = frame.error();
    return nullptr;
  }
  const SlabHeader header = format_slab(file_, *frame, class_id, kind);
  if (wear_ != nullptr) wear_->wrote_header(*frame, 1 + header.stripes);
  if (!shadow) shadow.emplace(*this, class_id);
  Slab& slab = shadow->take();
  attach_slab(slab, file_, *frame, header, header.shape.shape());
  place(slab);
  slab.kind = kind;
  if (kind == Kind::record) uses_all_ = false;  // there is room for new slabs
  slab.in_dram = slab.in_dram || is_derived(kind);
  slab.fill_free_all();
  pages_.set(*frame, owner_of(slab), &slab);
  list(slab);
  list_of(slab).empty += 1;
  return &slab;
}

Slab* Arena::adopt(PoolOffset offset, const SlabHeader& header, bool wait) {
  std::unique_lock lock(mu, std::defer_lock);
  if (wait) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return nullptr;
  }
  const SlabShape shape = header.shape.shape();
  // First all that needs memory.
  ShadowToFill shadow(*this, {shape.now.class_id});
  std::optional<ShadowToFill> shadow_of_old;
  if (shape.old && !TENUTO_PLANT("heap_recovery_ignores_old_part")) {
    shadow_of_old.emplace(*this, ClassId{shape.old.class_id});
    make_room_for_old(shadow.slab());
  }
  Slab& slab = shadow.take();
  attach_slab(slab, file_, offset, header, shape);
  place(slab);
  const bool with_records =
      frames_.frames().use_of(frame_of_offset(offset)) == frame::ZoneUse::records;
  if (with_records && slab.kind == Kind::derived) slab.kind = Kind::record;
  if (shadow_of_old) {
    Slab& old = shadow_of_old->take();
    attach_slab(old, file_, offset, header, {shape.old, {}});
    place(old);
    join_parts(slab, old);
  }
  pages_.set(offset, owner_of(slab), &slab);
  return &slab;
}

void Arena::enlist(Slab& slab) {
  const std::lock_guard lock(mu);
  relist(slab, false);
  if (const OldPart* old = slab.old.load(std::memory_order_relaxed)) list(*old->slab);
}

void Arena::discard(Slab& slab) {
  const std::lock_guard lock(mu);
  pages_.clear(slab.offset);
  erase_slab(slab);
  spare_shadow(slab);
}

void Arena::trim() {
  const std::lock_guard lock(mu);
  for (const auto& slab : slabs_) {
    if (slab->header != nullptr && !slab->is_old() && slab->empty()) retire(*slab);
  }
}

// A slab of records that has few free blocks. Wear levelling chooses among all.
bool Arena::is_dense(const Slab& slab) const {
  return slab.kind == Kind::record && wear_ == nullptr && !uses_all_ &&
         slab.free_count < slab.blocks / kFillFrom &&
         !TENUTO_PLANT("heap_records_fill_single_blocks");
}

// Cost: a look at all slabs. REQUIRES: mu is held.
void Arena::list_dense() {
  uses_all_ = true;
  for (const auto& slab : slabs_) {
    const bool waits = slab->header != nullptr && slab->kind == Kind::record && !slab->listed &&
                       !slab->leaving.load(std::memory_order_relaxed);
    if (waits && slab->free_count != 0) list(*slab);
  }
}

// REQUIRES for list to unlist_sparse: mu is held. Of records the slab that was emptied first is
// filled first: others may get emptier meanwhile.
void Arena::list(Slab& slab) {
  if (slab.kind == Kind::record && wear_ == nullptr) return list_last(slab);
  List& l = list_of(slab);
  slab.prev = slab.sparse ? l.tail : nullptr;
  slab.next = slab.sparse ? nullptr : l.head;
  (slab.prev != nullptr ? slab.prev->next : l.head) = &slab;
  (slab.next != nullptr ? slab.next->prev : l.tail) = &slab;
  slab.listed = true;
}

void Arena::unlist(Slab& slab) {
  List& l = list_of(slab);
  (slab.prev != nullptr ? slab.prev->next : l.head) = slab.next;
  (slab.next != nullptr ? slab.next->prev : l.tail) = slab.prev;
  slab.prev = slab.next = nullptr;
  slab.listed = false;
}

bool Arena::is_sparse(const Slab& slab) const {
  const bool in_transition = slab.old.load(std::memory_order_relaxed) != nullptr &&
                             !TENUTO_PLANT("heap_morph_again_too_early");
  // Marks do not tell a block of one part from one of the other.
  return slab.kind == Kind::logged && !slab.in_dram && !in_transition && slab.free_count != 0 &&
         slab.used() < morph_occupancy_ * slab.blocks;
}

void Arena::list_sparse(Slab& slab) {
  slab.sparse_prev = sparse_tail_;
  (sparse_tail_ != nullptr ? sparse_tail_->sparse_next : sparse_head_) = &slab;
  sparse_tail_ = &slab;
  sparse_count_ += 1;
  slab.sparse = true;
}

void Arena::unlist_sparse(Slab& slab) {
  (slab.sparse_prev != nullptr ? slab.sparse_prev->sparse_next : sparse_head_) = slab.sparse_next;
  (slab.sparse_next != nullptr ? slab.sparse_next->sparse_prev : sparse_tail_) = slab.sparse_prev;
  slab.sparse_prev = slab.sparse_next = nullptr;
  sparse_count_ -= 1;
  slab.sparse = false;
}

// REQUIRES for both: mu is held, every block is free. One fence.
void Arena::retire(Slab& slab) {
  list_of(slab).empty -= 1;
  unlist(slab);
  if (slab.sparse) unlist_sparse(slab);
  erase(slab);
}

// REQUIRES: the slab is in no list.
void Arena::erase(Slab& slab) {
  guard_header(file_, slab);
  pages_.clear(slab.offset);
  erase_slab(slab);
  fence("slab header erased", "its frame is given back");
  if (wear_ == nullptr || !rest_frame(slab)) frames_.put(slab.offset, frame::kOrderSlab, core_);
  spare_shadow(slab);
}

}  // namespace TENUTO_NS::heap
