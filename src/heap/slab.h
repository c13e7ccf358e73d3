// A slab's volatile shadow, and the persistent slab it stands for.
//
// Authoritative: for logged blocks the bit in the persistent stripes; for derived blocks nothing
// while the pool runs (a clean close writes the stripes, a crash recovery asks the owner). The
// header is written before any block is handed out, and then only its shape changes (morph.h):
//   zeroed stripes, frame bit | header, magic last in its line | blocks are handed out
// First fence: a header promises clean stripes and a taken frame. Second: a block that a log names
// has a slab. A slab goes back to its frame only when empty, and its magic is erased and fenced
// first, so a header found by recovery is never a stale one.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>

#include "file/pool_file.h"
#include "heap/format.h"
#include "heap/heap.h"
#include "heap/size_class.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

class Arena;

inline constexpr unsigned kNoBlock = ~0u;

using BlockBits = std::array<std::uint64_t, kBlocksMax / 64>;  // one a block
using AtomicBits = std::array<std::atomic<std::uint64_t>, kBlocksMax / 64>;

// Where the blocks of a slab, or of one part of it, stand.
struct BlockGrid {
  PoolOffset offset;  // of the slab
  std::uint32_t block_bytes = 0;
  std::uint32_t data_offset = 0;
  std::uint32_t blocks = 0;
  std::uint32_t divider = 0;  // 2^32 / block_bytes, rounded up

  PoolOffset block_offset(unsigned i) const { return offset + data_offset + i * block_bytes; }
  // The index of the block that starts at o, or kNoBlock. No division.
  unsigned index_of(PoolOffset o) const {
    const std::uint64_t d = o.value - offset.value - data_offset;
    const auto i = static_cast<unsigned>(d * divider >> 32);
    return o.value >= offset.value + data_offset && i < blocks && i * block_bytes == d ? i
                                                                                       : kNoBlock;
  }
};

struct OldPart;  // morph.h

// Where the persistent bit of a block stands.
struct BitPlace {
  std::uint64_t& word;
  std::uint64_t bit;
};

// The shadow of a slab, or of one part of a morphed one. The page table names that of the new part.
struct Slab : BlockGrid {
  // Constant while the slab lives.
  SlabHeader* header = nullptr;
  SlabShape shape;                   // as its header says, or said when this shadow was made
  std::uint32_t stripes = 0;         // set_stripes
  std::uint32_t stripe_divider = 0;  // 2^20 / stripes, rounded up
  ClassId class_id;
  Kind kind = Kind::logged;
  Arena* arena = nullptr;  // constant: also when the shadow stands for another slab
  // Atomic. Of a new part: the old one, as long as blocks of it are held. Of an old part: the new.
  std::atomic<OldPart*> old = nullptr;
  std::atomic<Slab*> successor = nullptr;
  std::unique_ptr<OldPart> old_storage;  // made when first needed, kept with the shadow
  // Guarded by arena->mu. free_bits: blocks of this slab in no cache and not in use.
  BlockBits free_bits{};
  std::uint32_t free_count = 0;
  std::uint32_t blocked = 0;  // not free because held blocks of the old part overlap them
  Slab* prev = nullptr;
  Slab* next = nullptr;
  Slab* sparse_prev = nullptr;
  Slab* sparse_next = nullptr;
  bool listed = false;
  bool sealed = true;   // as it was found by an open after a clean close
  bool sparse = false;  // in the arena's list of slabs that may be morphed
  // Atomic. Logged: block is allocated and nobody is freeing it. Derived: marked by recovery.
  AtomicBits live_bits{};
  // Atomic. Logged blocks that reserve() handed out and nobody published or released yet.
  AtomicBits reserved_bits{};
  // Atomic; changed under arena->mu. It is being emptied (evacuate.cc): in no list, in no cache.
  std::atomic<bool> leaving = false;

  Slab();
  ~Slab();
  bool is_old() const { return successor.load(std::memory_order_acquire) != nullptr; }
  // Nothing in it is in use, in a cache or held by its old part.
  bool empty() const {
    return free_count == blocks && old.load(std::memory_order_relaxed) == nullptr;
  }
  unsigned used() const { return blocks - free_count - blocked; }

  void set_stripes(std::uint32_t n) {
    stripes = n;
    stripe_divider = ((1u << 20) + n - 1) / n;
  }
  // i / stripes without a division; exact, as no index reaches 2^12 and no divisor exceeds 32.
  unsigned row_of(unsigned i) const { return i * stripe_divider >> 20; }
  unsigned stripe_of(unsigned i) const { return i - row_of(i) * stripes; }

  BitPlace place(unsigned i) const {
    const unsigned row = row_of(i);
    const unsigned line = shape.now.first_line + (i - row * stripes);
    auto* words = reinterpret_cast<std::uint64_t*>(header) + std::size_t{8} * line;
    return {words[row / 64], 1ull << row % 64};
  }
  bool persistent(unsigned i) const {
    const auto [word, bit] = place(i);
    return (__atomic_load_n(&word, __ATOMIC_ACQUIRE) & bit) != 0;
  }
  // Changes the bit; other threads change neighbours' bits meanwhile. The caller flushes the word.
  const std::uint64_t& store_persistent(unsigned i, bool on) const {
    const auto [word, bit] = place(i);
    if (on) {
      __atomic_fetch_or(&word, bit, __ATOMIC_ACQ_REL);
    } else {
      __atomic_fetch_and(&word, ~bit, __ATOMIC_ACQ_REL);
    }
    return word;
  }

  // The type of block i of a slab of typed ones. Those of a stripe's blocks stand side by side: a
  // batch takes neighbours of one stripe, single allocations go round the stripes.
  std::uint64_t& type_word(unsigned i) const {
    const unsigned stripe = stripe_of(i);
    const unsigned before = stripe * row_of(blocks) + std::min(stripe, stripe_of(blocks));
    return reinterpret_cast<std::uint64_t*>(header + shape.now.end_line)[before + row_of(i)];
  }

  static bool is_set(const AtomicBits& bits, unsigned i) {
    return (bits[i / 64].load(std::memory_order_acquire) >> (i % 64) & 1) != 0;
  }
  // Both return whether this call changed it.
  static bool set(AtomicBits& bits, unsigned i) {
    const std::uint64_t bit = 1ull << (i % 64);
    return (bits[i / 64].fetch_or(bit, std::memory_order_acq_rel) & bit) == 0;
  }
  static bool clear(AtomicBits& bits, unsigned i) {
    const std::uint64_t bit = 1ull << (i % 64);
    return (bits[i / 64].fetch_and(~bit, std::memory_order_acq_rel) & bit) != 0;
  }
  bool live(unsigned i) const { return is_set(live_bits, i); }
  bool set_live(unsigned i) { return set(live_bits, i); }
  // In recovery, when live_bits has what the stripes have: makes both say so.
  void recover(unsigned i, bool allocated) {
    if (live(i) == allocated) return;
    flush(store_persistent(i, allocated));
    allocated ? set(live_bits, i) : clear(live_bits, i);
  }
  bool clear_live(unsigned i) { return clear(live_bits, i); }
  bool reserved(unsigned i) const { return is_set(reserved_bits, i); }
  bool set_reserved(unsigned i) { return set(reserved_bits, i); }
  bool clear_reserved(unsigned i) { return clear(reserved_bits, i); }

  unsigned live_count() const {
    unsigned n = 0;
    for (const auto& word : live_bits) {
      n += static_cast<unsigned>(std::popcount(word.load(std::memory_order_relaxed)));
    }
    return n;
  }

  bool is_free(unsigned i) const { return (free_bits[i / 64] >> (i % 64) & 1) != 0; }
  void set_free(unsigned i) {
    free_bits[i / 64] |= 1ull << (i % 64);
    free_count += 1;
  }
  void clear_free(unsigned i) {
    free_bits[i / 64] &= ~(1ull << (i % 64));
    free_count -= 1;
  }
  void fill_free_all();
  // Takes up to `want` free blocks, lowest first, so that neighbours go to different stripes.
  unsigned take(PoolOffset* out, unsigned want);
};

// Where a small block stands. index is kNoBlock when no block of the slab starts there; slab is
// null when the place belongs to no slab.
struct SlabBlock {
  Slab* slab = nullptr;
  unsigned index = kNoBlock;
  explicit operator bool() const { return slab != nullptr; }
};

// Makes the volatile shadow of the persistent slab at `offset` with the (sound) header `h`, of the
// part that is cut like `shape.now`. All bits clear.
void attach_slab(Slab& slab, pm::PoolFile& file, PoolOffset offset, const SlabHeader& h,
                 const SlabShape& shape);
// Writes a new slab into a fresh frame; two fences. Returns its header.
SlabHeader format_slab(pm::PoolFile& file, PoolOffset offset, ClassId class_id, Kind kind);
// Erases the magic; flushed, not fenced.
void erase_slab(Slab& slab);
// A copy of the sound slab header that stands at `offset`, if one does.
std::optional<SlabHeader> find_slab(const pm::PoolFile& file, PoolOffset offset);
// The header's lines with the stripes of both parts, copied when recovery finds a slab.
struct SlabLines {
  alignas(kLineBytes) std::array<std::uint64_t, (kHeaderLinesMax + 1) * kLineBytes / 8> word;

  // Reads them; a copy of the header, if a sound one stands at `offset`.
  std::optional<SlabHeader> read(const pm::PoolFile& file, PoolOffset offset);
  // Whether the stripes are those of the last clean close.
  bool sealed(const SlabHeader& header) const;
  // The persistent bits of a part of the slab, in block order.
  void used(const Slab& part, BlockBits& bits) const;
};
// The same where the superblock may be damaged: sound in itself, and of this pool if that is known.
std::optional<SlabHeader> find_slab_of_any_pool(const pm::PoolFile& file, PoolOffset offset);
// Writes the whole persistent bitmap: a block is set unless it is free. Flushed, not fenced.
void write_stripes(const Slab& slab, const BlockBits& free_bits);
// At a clean close: the stripes are as they will be found. Flushed, not fenced.
void seal_stripes(const Slab& slab);
// After one: whether they are.
bool stripes_sealed(const Slab& slab);
// The stripes of the old part that the shape still names, in DRAM long forgotten, are all zero.
bool old_stripes_clear(const Slab& slab);
// The persistent bitmap in block order; bits that stand for no block are left out.
void read_stripes(const Slab& slab, BlockBits& used);

}  // namespace TENUTO_NS::heap
