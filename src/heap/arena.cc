#include "heap/arena.h"

#include "pm/assert.h"

namespace tenuto::inline TENUTO_ABI::heap {

namespace {
constexpr unsigned kEmptySlabsKept = 1;  // a class, against frames going back and forth
}

Result<unsigned> Arena::take(ClassId class_id, Kind kind, PoolOffset* out, unsigned want) {
  const std::lock_guard lock(mu);
  List& list = lists_[static_cast<unsigned>(kind)][class_id.value];
  unsigned got = 0;
  while (got < want) {
    Slab* slab = list.head;
    if (slab == nullptr) {
      if (got > 0) break;
      Status why = Status::full;
      slab = new_slab(class_id, kind, &why);
      if (slab == nullptr) return why;
    }
    if (slab->free_count == slab->blocks) list.empty -= 1;
    got += slab->take(out + got, want - got);
    if (slab->free_count == 0) unlist(*slab);
  }
  return got;
}

void Arena::give(Slab& slab, const unsigned* indexes, std::size_t count) {
  const std::lock_guard lock(mu);
  for (std::size_t i = 0; i < count; ++i) {
    if (slab.is_free(indexes[i])) {  // freed twice: two references led to it
      file_.log(file_.where(slab.block_offset(indexes[i]), "freed twice"));
      file_.poison(Status::corrupt);
      continue;
    }
    slab.set_free(indexes[i]);
  }
  if (!slab.listed) list(slab);
  if (slab.free_count < slab.blocks) return;
  List& l = list_of(slab);
  l.empty += 1;
  if (l.empty > kEmptySlabsKept) retire(slab);
}

Slab& Arena::fresh_twin() {
  if (!spare_twins_.empty()) {
    Slab& slab = *spare_twins_.back();
    spare_twins_.pop_back();
    return slab;
  }
  slabs_.push_back(std::make_unique<Slab>());
  return *slabs_.back();
}

// REQUIRES: mu is held. Two fences, once a slab.
Slab* Arena::new_slab(ClassId class_id, Kind kind, Status* why) {
  const Result<PoolOffset> frame = frames_.get(frame::kOrderSlab, core_);
  if (!frame) {
    *why = frame.error();
    return nullptr;
  }
  const SlabHeader header = format_slab(file_, *frame, class_id, kind);
  Slab& slab = fresh_twin();
  attach_slab(slab, file_, *frame, header);
  slab.arena = this;
  slab.fill_free_all();
  pages_.set(*frame, PageOwner::slab, &slab);
  list(slab);
  list_of(slab).empty += 1;
  return &slab;
}

Slab& Arena::adopt(PoolOffset offset, const SlabHeader& header) {
  const std::lock_guard lock(mu);
  Slab& slab = fresh_twin();
  attach_slab(slab, file_, offset, header);
  slab.arena = this;
  pages_.set(offset, PageOwner::slab, &slab);
  return slab;
}

void Arena::enlist(Slab& slab) {
  const std::lock_guard lock(mu);
  if (slab.free_count == 0) return;
  list(slab);
  if (slab.free_count == slab.blocks) list_of(slab).empty += 1;
}

void Arena::discard(Slab& slab) {
  const std::lock_guard lock(mu);
  pages_.clear(slab.offset);
  erase_slab(slab);
  slab.header = nullptr;
  spare_twins_.push_back(&slab);
}

void Arena::trim() {
  const std::lock_guard lock(mu);
  for (const auto& slab : slabs_) {
    if (slab->header != nullptr && slab->free_count == slab->blocks) retire(*slab);
  }
}

// REQUIRES for list and unlist: mu is held.
void Arena::list(Slab& slab) {
  List& l = list_of(slab);
  slab.prev = nullptr;
  slab.next = l.head;
  if (l.head != nullptr) l.head->prev = &slab;
  l.head = &slab;
  slab.listed = true;
}

void Arena::unlist(Slab& slab) {
  List& l = list_of(slab);
  (slab.prev != nullptr ? slab.prev->next : l.head) = slab.next;
  if (slab.next != nullptr) slab.next->prev = slab.prev;
  slab.prev = slab.next = nullptr;
  slab.listed = false;
}

// REQUIRES: mu is held, every block is free. One fence.
void Arena::retire(Slab& slab) {
  list_of(slab).empty -= 1;
  unlist(slab);
  pages_.clear(slab.offset);
  erase_slab(slab);
  fence("slab header erased", "its frame is given back");
  frames_.put(slab.offset, frame::kOrderSlab, core_);
  slab.header = nullptr;
  spare_twins_.push_back(&slab);
}

}  // namespace tenuto::inline TENUTO_ABI::heap
