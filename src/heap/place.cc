#include "heap/place.h"

#include "heap/heap_paths.h"
#include "heap/morph.h"
#include "pm/metadata_key.h"

namespace TENUTO_NS::heap {

namespace {

Place block_in(const Slab& part, unsigned i, std::uint64_t canary_bytes) {
  Place p;
  p.what = Place::What::block;
  p.begin = part.block_offset(i);
  p.slab = part.born;
  p.derived = is_derived(part.kind);
  p.bytes = part.block_bytes - (p.derived ? 0 : canary_bytes);
  const bool allocated = p.derived ? !part.is_free(i) : part.live(i);
  const bool reserved = !p.derived && part.reserved(i);
  p.use = reserved ? Place::Use::reserved : allocated ? Place::Use::allocated : Place::Use::free;
  if (part.kind == Kind::typed && p.use != Place::Use::free) {
    p.type = __atomic_load_n(&part.type_word(i), __ATOMIC_RELAXED);
  }
  return p;
}

}  // namespace

Place Heap::look(PoolOffset o) const {
  const pm::MetadataOpen rights;
  State& s = *state_;
  if (o.value < pm::kHeadBytes) return {.what = Place::What::head};
  const PageTable::Entry e = s.pages.find(o);
  if (e.owner == PageOwner::none) return s.look_at_frames(o);
  const Slab& slab = *e.slab();
  const std::lock_guard lock(slab.arena->mu);  // nothing is morphed or erased meanwhile
  if (s.pages.find(o).object != e.object) return {};
  if (const OldPart* old = slab.old.load(std::memory_order_acquire)) {
    const unsigned i = old->grid.index_around(o);
    if (i != kNoBlock && Slab::is_set(old->held, i)) return block_in(*old->slab, i, s.canary_bytes);
  }
  const unsigned i = slab.index_around(o);
  if (i != kNoBlock) return block_in(slab, i, s.canary_bytes);
  const bool header = o < slab.offset + slab.data_offset;
  return {.what = header ? Place::What::slab_header : Place::What::gap,
          .begin = slab.offset,
          .bytes = slab.block_bytes};
}

Place Heap::State::look_at_frames(PoolOffset o) {
  const Result<ExtentAt> at = extents.containing(o);
  if (at) {
    const ExtentState state = at->word.state();
    Place p{.what = Place::What::block, .begin = at->begin};
    p.derived = is_derived(at->word.kind());
    p.bytes = at->word.bytes() - (at->word.used() && !p.derived ? canary_bytes : 0);
    if (state == ExtentState::live) p.use = Place::Use::allocated;
    if (state == ExtentState::reserved) p.use = Place::Use::reserved;
    if (p.use != Place::Use::free && extents.is_typed(at->begin)) {
      p.type = __atomic_load_n(&extents.type_word(at->begin), __ATOMIC_RELAXED);
    }
    return p;
  }
  const FrameId frame = frame_of_offset({round_down(o.value, kFrameBytes)});
  const bool taken = frames.frames().taken(frame, 0);
  return {.what = taken ? Place::What::inner : Place::What::nothing};
}

// Extents of chunks do not cross these. Only what starts at a frame has a slot.
Result<ExtentAt> Extents::containing(PoolOffset o) const {
  const std::uint64_t frame = o.value / kFrameBytes;
  const std::uint64_t region = round_down(frame, kChunkFrames);
  for (std::uint64_t f = frame + 1; f-- > region;) {
    const ExtentWord w = slots_.find({f * kFrameBytes});
    const bool begins = w.used() || w.state() == ExtentState::free;
    if (!begins && w.state() != ExtentState::busy) continue;
    if (f + w.frames() > frame) return ExtentAt{{f * kFrameBytes}, w};
    break;
  }
  const std::lock_guard lock(huge_mu_);
  const auto after = huge_.upper_bound(frame);
  if (after == huge_.begin()) return Status::not_found;
  const auto& [first, frames] = *std::prev(after);
  if (first + frames <= frame) return Status::not_found;
  return ExtentAt{{first * kFrameBytes}, slots_.find({first * kFrameBytes})};
}

std::string Place::text(PoolOffset o) const {
  const auto at = [](PoolOffset p) { return " at offset " + std::to_string(p.value); };
  switch (what) {
    case What::head:
      return "the head of the pool (superblocks, roots, logs)";
    case What::slab_header:
      return "header of the slab of " + std::to_string(bytes) + "-byte blocks" + at(begin);
    case What::gap:
      return "unused end of the slab of " + std::to_string(bytes) + "-byte blocks" + at(begin);
    case What::inner:
      return "memory of the heap or of its logs";
    case What::nothing:
      return "free memory";
    case What::block:
      break;
  }
  std::string t = "block of " + std::to_string(bytes) + " bytes" + at(begin) + ", ";
  if (derived && use != Use::free) t += "of the store, ";
  t += use == Use::allocated ? "allocated" : use == Use::reserved ? "reserved" : "free";
  if (type != 0) t += ", type " + std::to_string(type);
  if (o != begin) {
    t += "; the address is " + std::to_string(o.value - begin.value) + " bytes inside it";
  }
  return t;
}

const char* Place::refusal(PoolOffset o) const {
  if (what == What::nothing) return "it was freed before, or never allocated";
  if (what != What::block) return "a pointer was overwritten: no object can be there";
  if (o != begin) return "an interior pointer: free the block by the pointer to its start";
  if (use == Use::free) return "it was freed before: another pointer to it was kept";
  if (derived) return "it belongs to the store: change it by the calls of the store";
  if (use == Use::reserved) {
    return "it is only reserved: cancel or publish it, or end the transaction that allocated it";
  }
  return nullptr;
}

}  // namespace TENUTO_NS::heap
