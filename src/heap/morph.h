// Morphing: a slab of which little is in use becomes a slab of another class. The blocks in use
// stay where they are. The arena chooses the slab.
//
// On media the old part's stripes stay in place and stay authoritative for the old blocks: a free
// of an old block clears the same bit as before. The new part has its own stripes, in free lines of
// the header or behind the old stripes. A new slab has room for them there (whole_cut), unless that
// would cost too many blocks, or an older version made it; then they take the place of its first
// blocks. One word of the header, the shape, defines both parts:
//   empty stripes of the new part | shape = {new, old} | its blocks are handed out
// Authoritative: the old part alone until the shape is durable, then both parts. First fence: a
// shape implies clean stripes. Second fence: a log can name a new block only after the shape is
// durable. A crash leaves the old shape or the new one; recovery undoes nothing.
//
// The end of a transition writes nothing: when the last old block is free, the old stripes are all
// zero. The next morph overwrites the shape. Recovery knows which bit an intent means: the intent
// has the size of its block, and only one part at a time uses a place.
//
// A morph is refused when
//   - the slab still has blocks of an old part;
//   - there is no room for the stripes, and a block in their place is not free (in use, in limbo,
//   in
//     a cache);
//   - too few new blocks fit between the blocks that are not free;
//   - the slab is not logged: recovery finds derived blocks by marks, which have no size.
//
// When the pool is full, old blocks that overlap nothing in use are handed out again.
//
// In DRAM each part has a shadow. A morph does not change the old part's shadow, so threads that
// hold one of its blocks continue with it. The page table points to the new part's shadow, which
// has the OldPart.
#pragma once

#include <cstdint>
#include <optional>

#include "heap/slab.h"

namespace TENUTO_NS::heap {

// What a lookup needs of the old part. Constant while `Slab::old` points to it, except `held`. When
// an old block is given back, its bit in `held` is cleared under arena->mu, before a new block that
// overlaps it becomes free. So the owner of a block, old or new, always finds it in its own part.
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

// How `slab` would be cut for the class; nothing when the morph is refused. Reads the shadow only.
// REQUIRES: arena->mu is held, as for all functions below; the slab is logged, has no old part and
// is of another class.
std::optional<SlabShape> plan_morph(const Slab& slab, ClassId class_id, unsigned pool_stripes);
// The protocol above. Two fences; one line for each stripe and one for the header.
void write_shape(pm::PoolFile& file, const Slab& slab, const SlabShape& shape);

// Allocates, so that join_parts needs no memory.
void make_room_for_old(Slab& now);

// Makes `now` and `old` the parts of one slab. No old block is held yet.
void join_parts(Slab& now, Slab& old);
// Holds all old blocks that are not free. New blocks that overlap them become blocked: they are not
// free. False when such a new block is in use.
bool hold_old_blocks(Slab& now);
// Hands out up to `want` free old blocks that overlap nothing in use. They are held again, and the
// new blocks that overlap them become blocked. Writes nothing: both parts have their bits.
unsigned take_old_blocks(Slab& now, TakenBlock* out, unsigned want);
// Whether the new blocks that overlap held blocks are out of use, and their number is `blocked`.
bool blocked_soundly(const Slab& now);
// Gives block i of the old part back. New blocks that no other held block overlaps become free.
void free_old_block(Slab& now, unsigned i);

}  // namespace TENUTO_NS::heap
