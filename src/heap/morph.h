// Morphing: a slab of which little is in use becomes one of another class, with the blocks in use
// where they are. The arena chooses the slab.
//
// On media the old part's stripes stay where they are and stay authoritative for its blocks:
// whoever frees one clears the same bit as before. The new part has stripes of its own, in lines of
// the header that are free, or behind the old ones. One word of the header, the shape, says how
// both parts are cut:
//   empty stripes of the new part | shape = {new, old} | its blocks are handed out
// Authoritative: until the shape is durable the old part alone, then both. First fence: a shape
// promises clean stripes. Second: a block that a log names has a slab. A crash leaves the one or
// the other, and nothing to undo. When the last old block is free its stripes are all zero, so
// nothing is written then; the next morph overwrites the shape. An intent that names a block names
// its size, and a place is in use by one part at a time, so recovery knows which bit is meant.
//
// What is in the way of a morph: an old part that still has blocks, a block that is not free (in
// use, in limbo, in a cache) where the new header ends, too few new blocks between those that are
// not free. Only logged slabs: recovery learns of derived blocks from marks, which name no size.
//
// When the pool is full, blocks of the old part that are in nobody's way are handed out once more.
//
// In DRAM each part has a shadow. That of the old part is not touched by a morph, so threads that
// hold one of its blocks go on with it; the page table names the new part's, which has the OldPart.
#pragma once

#include <cstdint>
#include <optional>

#include "heap/slab.h"

namespace TENUTO_NS::heap {

// What a lookup has to know of the old part. Constant while `Slab::old` leads to it, but for
// `held`: a bit is cleared, under arena->mu, when its block is given back and before a new block
// that overlaps it becomes free. So whoever owns a block, old or new, finds it in its own part.
struct OldPart {
  BlockGrid grid;
  Slab* slab = nullptr;
  AtomicBits held{};

  // The index of the held block that starts at o, or kNoBlock.
  unsigned held_at(PoolOffset o) const {
    const unsigned i = grid.index_of(o);
    return i != kNoBlock && Slab::is_set(held, i) ? i : kNoBlock;
  }
};

// How `slab` could be cut for the class; nothing when something is in the way. Reads the shadow
// only. REQUIRES: arena->mu is held, as for all below; the slab is logged, has no old part, and is
// of another class.
std::optional<SlabShape> plan_morph(const Slab& slab, ClassId class_id, unsigned pool_stripes);
// The protocol above. Two fences; a line for each stripe and one for the header.
void write_shape(pm::PoolFile& file, const Slab& slab, const SlabShape& shape);

// join_parts needs no memory after this.
void make_room_for_old(Slab& now);

// `now` and `old` become the parts of one slab, no block of the old one held yet.
void join_parts(Slab& now, Slab& old);
// The old part's blocks that are not free are held, and those of the new part that overlap them not
// free. False when one of these is in use.
bool hold_old_blocks(Slab& now);
// Up to `want` blocks of the old part that overlap nothing in use become held again, and those of
// the new part that overlap them not free. Writes nothing: both parts have their bits.
unsigned take_old_blocks(Slab& now, PoolOffset* out, unsigned want);
// Whether the blocks of the new part that held ones overlap are out of use, and so many as counted.
bool blocked_soundly(const Slab& now);
// Block i of the old part is given back. New blocks that no other held block overlaps become free.
void free_old_block(Slab& now, unsigned i);

}  // namespace TENUTO_NS::heap
