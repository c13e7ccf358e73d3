// Memory that a program overwrote: headers of the heap, and canaries behind blocks.
//
// Headers. While the pool is open DRAM has all that the header of a slab says. A store behind the
// end of a block, or a stray one, may change the header on media; a crash would then lose the slab.
// So the header is compared where a slab is looked at anyway: when blocks are taken from it or
// given back (but not the store's records), when it is morphed or erased, in validate(), and in a
// close, which also compares the bits. What is wrong is restored from DRAM, reported, and the pool
// turns read-only: the bytes beside the header may be wrong, too, and these nobody knows. Such a
// pool is not closed cleanly.
//
// Canaries (PoolOptions::canaries). The last word of every logged block belongs to the heap. It has
// a value that follows from the pool's id and the word's offset, not from the block: so blocks of
// two sizes that end at one place agree, and a canary that is there once stays right.
//   a block that left its slab for a cache, or is an extent in use  =>  its canary is durable   (C)
//   a new slab          canaries of all blocks | slab header                     the same fence
//   a slab cut anew     canaries of all blocks | slab shape                      the same fence
//   a morphed slab      blocks of the other part may have overwritten canaries: those of the blocks
//                       that are taken are written again | they are handed out
//   an extent           canary | it is handed out
// So no protocol knows of canaries. In a slab without a second part a free block has its canary,
// too, unless a header could end there, and it is compared when the block is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "file/pool_file.h"
#include "heap/slab.h"

namespace TENUTO_NS::heap {

inline constexpr std::uint64_t kCanaryBytes = 8;

// The usable bytes of a block of a pool with canaries. `bytes`: those of the block, without a type.
constexpr PoolOffset canary_place(PoolOffset block, std::uint64_t bytes) {
  return block + (bytes - kCanaryBytes);
}
// The alignment that a request with a canary asks for.
std::uint64_t align_beside_canary(std::uint64_t bytes, std::uint64_t align);
std::uint64_t canary_at(const pm::PoolFile& file, PoolOffset place);
bool canary_intact(const pm::PoolFile& file, PoolOffset block, std::uint64_t bytes);
// Stores it if it is not there. Returns whether it stored and flushed.
bool write_canary(const pm::PoolFile& file, PoolOffset block, std::uint64_t bytes);
// For all blocks of a part of a slab. Flushed, not fenced.
void write_canaries(const pm::PoolFile& file, const BlockGrid& grid);
// For blocks that leave `slab`, or null: any slab's, whose canaries may be missing. corrupt: a free
// block was written to.
Status guard_taken(pm::PoolFile& file, const Slab* slab, std::uint64_t block_bytes,
                   std::span<const TakenBlock> blocks);

// What a broken canary looks like. `next`: so many blocks behind it have broken ones, too.
struct Overflow {
  PoolOffset block;
  std::uint64_t bytes = 0;  // with the canary
  std::uint64_t type = 0;
  unsigned next = 0;
};
Status say_overflow(const pm::PoolFile& file, const Overflow& o, const char* what, Report* report);
// Reports it, restores the canary, and turns the pool read-only. Returns corrupt.
Status overflowed(pm::PoolFile& file, const Overflow& o);

// Whether the header on media is that of the slab. REQUIRES: arena->mu is held, as for the next
// one; not an old part. Cost: one line.
bool header_sound(const pm::PoolFile& file, const Slab& slab);
Status say_header(const pm::PoolFile& file, const Slab& slab, const char* what, Report* report);
// If it is not: reports it, restores the header, and turns the pool read-only. True: it was sound.
bool guard_header(pm::PoolFile& file, const Slab& slab);

}  // namespace TENUTO_NS::heap
