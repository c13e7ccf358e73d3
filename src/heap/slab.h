// A persistent slab and its shadow in DRAM.
//
// Authoritative: for logged blocks the bit in the persistent stripes. For derived blocks nothing
// while the pool is open: a clean close writes the stripes, and after a crash the owner marks its
// blocks. The header is written before any block is handed out. Later only its shape changes
// (morph.h).
//   zeroed stripes, frame bit | header, magic last in its line | blocks are handed out
// First fence: a header implies clean stripes and a taken frame. Second fence: a log can name a
// block only after the header of its slab is durable. Only an empty slab gives its frame back,
// after its magic is erased and fenced. So recovery never finds a stale header.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "file/pool_file.h"
#include "heap/format.h"
#include "heap/heap.h"
#include "heap/size_class.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

class Arena;
class Wear;

inline constexpr unsigned kNoBlock = ~0u;

// One bit a block: of any slab, and in a shadow.
using BlockBits = std::array<std::uint64_t, kBlocksMax / 64>;
using AtomicBits = std::array<std::atomic<std::uint64_t>, kBlocksMax / 64>;
using BitWords = std::span<std::uint64_t>;
using AtomicWords = std::span<std::atomic<std::uint64_t>>;

// The first block whose bit is set in `bits`, part of word `w`. REQUIRES: bits != 0.
inline unsigned first_block(std::size_t w, std::uint64_t bits) {
  return static_cast<unsigned>(64 * w) + static_cast<unsigned>(std::countr_zero(bits));
}

// The words that the bits of any slab of the class take, as a power of two.
constexpr unsigned bit_words(ClassId class_id) {
  const auto blocks = static_cast<unsigned>(kSlabBytes / kClassBytes[class_id.value]);
  return std::bit_ceil((blocks + 63) / 64);
}

// Where the blocks of a slab, or of one part of it, are.
struct BlockGrid {
  PoolOffset offset;  // of the slab
  std::uint32_t block_bytes = 0;
  std::uint32_t data_offset = 0;
  std::uint32_t blocks = 0;
  std::uint32_t divider = 0;  // 2^32 / block_bytes, rounded up

  PoolOffset block_offset(unsigned i) const { return offset + data_offset + i * block_bytes; }
  // The index of the block that starts at o, or kNoBlock. Does not divide.
  unsigned index_of(PoolOffset o) const {
    const std::uint64_t d = o.value - offset.value - data_offset;
    const auto i = static_cast<unsigned>(d * divider >> 32);
    return o.value >= offset.value + data_offset && i < blocks && i * block_bytes == d ? i
                                                                                       : kNoBlock;
  }
  // The index of the block that contains o, or kNoBlock. REQUIRES: o is in the slab.
  unsigned index_around(PoolOffset o) const {
    if (o.value < offset.value + data_offset) return kNoBlock;
    const unsigned i = index_of_start(o);
    return i < blocks ? i : kNoBlock;
  }
  // The index of the block that starts at o. REQUIRES: one does.
  unsigned index_of_start(PoolOffset o) const {
    return static_cast<unsigned>((o.value - offset.value - data_offset) * divider >> 32);
  }
};

struct OldPart;  // morph.h

// A block that a cache gets, and the stripe of its bit.
struct TakenBlock {
  PoolOffset offset;
  unsigned stripe = 0;
};

// The place of a block's persistent bit.
struct BitPlace {
  std::uint64_t& word;
  std::uint64_t bit;
};

// The shadow of a slab, or of one part of a morphed slab. The page table points to the new part's.
// A shadow that is reused serves slabs whose bits take as many words: they never move, because a
// thread may look at the shadow of a slab that has just gone.
struct Slab : BlockGrid {
  // Constant while the slab exists.
  SlabHeader* header = nullptr;
  SlabShape shape;                   // what the header has, or had when this shadow was made
  std::uint32_t stripes = 0;         // set_stripes
  std::uint32_t stripe_divider = 0;  // 2^20 / stripes, rounded up
  ClassId class_id;
  Kind kind = Kind::logged;
  Arena* arena = nullptr;  // constant, also when the shadow is reused for another slab
  std::uint8_t owner = 0;  // NUMA: the node of its arena
  std::uint8_t node = 0;   // and that of its frame
  // Atomic. `old`: the old part of this new part, while any block of it is held. `successor`: the
  // new part of this old part.
  std::atomic<OldPart*> old = nullptr;
  std::atomic<Slab*> successor = nullptr;
  std::unique_ptr<OldPart> old_storage;  // allocated at first use, kept with the shadow
  // Guarded by arena->mu. free_bits: blocks of this slab that are not in use and in no cache.
  BitWords free_bits;
  std::uint32_t free_count = 0;
  std::uint32_t blocked = 0;  // not free, because held blocks of the old part overlap them
  Slab* prev = nullptr;
  Slab* next = nullptr;
  Slab* sparse_prev = nullptr;
  Slab* sparse_next = nullptr;
  bool listed = false;
  bool sealed = true;   // the stripes had the seal of the last clean close when open read them
  bool sparse = false;  // in the arena's list of slabs that may be morphed
  // Derived: the stripes have live_bits, with the seal of a clean close (recover.cc).
  bool stripes_known = false;
  // The persistent bits mean nothing while the pool is open: derived blocks, and all blocks of a
  // pool with Consistency::gc.
  bool in_dram = false;
  // Atomic. Logged blocks that reserve() handed out, neither published nor released yet. Derived
  // blocks that rest (heap_wear.cc).
  AtomicWords reserved_bits;
  // Atomic; changed under arena->mu. The slab is being emptied (evacuate.cc): no list has it, and
  // no cache takes its blocks.
  std::atomic<bool> leaving = false;
  std::uint64_t born = 0;  // constant while the slab exists; no two slabs have the same

  explicit Slab(unsigned words);  // of each of the bits
  ~Slab();
  unsigned words() const { return static_cast<unsigned>(free_bits.size()); }
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
  // i / stripes without a division. Exact, because i < 2^12 and stripes <= 32.
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
  // Changes the bit; other threads may change neighbouring ones. The caller flushes the word.
  const std::uint64_t& store_persistent(unsigned i, bool on) const {
    const auto [word, bit] = place(i);
    if (on) {
      __atomic_fetch_or(&word, bit, __ATOMIC_ACQ_REL);
    } else {
      __atomic_fetch_and(&word, ~bit, __ATOMIC_ACQ_REL);
    }
    return word;
  }

  // The type of block i in a slab of typed blocks. The types of a stripe's blocks are side by side:
  // a batch takes neighbours of one stripe, single allocations go round the stripes.
  std::uint64_t& type_word(unsigned i) const {
    const unsigned stripe = stripe_of(i);
    const unsigned before = stripe * row_of(blocks) + std::min(stripe, stripe_of(blocks));
    return reinterpret_cast<std::uint64_t*>(header + shape.now.end_line)[before + row_of(i)];
  }

  static bool is_set(std::span<const std::atomic<std::uint64_t>> bits, unsigned i) {
    return (bits[i / 64].load(std::memory_order_acquire) >> (i % 64) & 1) != 0;
  }
  // Both return whether this call changed the bit.
  static bool set(AtomicWords bits, unsigned i) {
    const std::uint64_t bit = 1ull << (i % 64);
    return (bits[i / 64].fetch_or(bit, std::memory_order_acq_rel) & bit) == 0;
  }
  static bool clear(AtomicWords bits, unsigned i) {
    const std::uint64_t bit = 1ull << (i % 64);
    return (bits[i / 64].fetch_and(~bit, std::memory_order_acq_rel) & bit) != 0;
  }
  // Live. Logged: allocated, and no thread is freeing it. Derived: recovery marked it; then what
  // the stripes have. Any thread.
  bool live(unsigned i) const { return is_set(live_bits_, i); }
  bool set_live(unsigned i) { return set(live_bits_, i); }
  bool clear_live(unsigned i) { return clear(live_bits_, i); }
  // 64 blocks at a time, for recovery and figures.
  std::uint64_t live_word(std::size_t w) const {
    return live_bits_[w].load(std::memory_order_acquire);
  }
  void set_live_word(std::size_t w, std::uint64_t bits) {
    live_bits_[w].store(bits, std::memory_order_relaxed);
  }
  // Of the 64 blocks of a word, those that are not free. The last words may have fewer, or none.
  std::uint64_t used_word(std::size_t w) const {
    const std::size_t end = std::min<std::size_t>(64 * (w + 1), blocks);
    const std::size_t n = end - std::min(end, 64 * w);
    return ~free_bits[w] & (n < 64 ? (1ull << n) - 1 : ~0ull);
  }
  // set_live without a locked instruction. REQUIRES: no other thread changes it.
  bool set_live_alone(unsigned i) {
    std::atomic<std::uint64_t>& word = live_bits_[i / 64];
    const std::uint64_t before = word.load(std::memory_order_relaxed);
    const std::uint64_t bit = 1ull << i % 64;
    word.store(before | bit, std::memory_order_relaxed);
    return (before & bit) == 0;
  }
  // For recovery, when the live ones are those of the stripes: changes the bit in both.
  void recover(unsigned i, bool allocated) {
    if (in_dram || live(i) == allocated) return;
    flush(store_persistent(i, allocated));
    allocated ? set_live(i) : clear_live(i);
  }
  bool reserved(unsigned i) const { return is_set(reserved_bits, i); }
  bool set_reserved(unsigned i) { return set(reserved_bits, i); }
  bool clear_reserved(unsigned i) { return clear(reserved_bits, i); }

  unsigned live_count() const {
    unsigned n = 0;
    for (std::size_t w = 0; w < words(); ++w) {
      n += static_cast<unsigned>(std::popcount(live_word(w)));
    }
    return n;
  }
  // Logged: allocated, or handed out by reserve().
  unsigned held_count() const {
    unsigned n = 0;
    for (std::size_t i = 0; i < words(); ++i) {
      n += static_cast<unsigned>(
          std::popcount(live_word(i) | reserved_bits[i].load(std::memory_order_relaxed)));
    }
    return n;
  }

  // Whether exactly the blocks that are not free are live.
  bool live_are_used() const {
    bool apart = true;
    for (std::size_t i = 0; i < words(); ++i) {
      apart = apart && (live_word(i) & free_bits[i]) == 0;
    }
    return apart && live_count() + free_count == blocks;
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
  // Takes up to `want` free blocks, lowest first: neighbours are in different stripes.
  unsigned take(TakenBlock* out, unsigned want);
  unsigned take_least_worn(const Wear& wear, TakenBlock* out, unsigned want);  // wear.cc

 private:
  AtomicWords live_bits_;
  std::unique_ptr<std::uint64_t[]> plain_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> atomic_;
};

// A small block. index is kNoBlock when no block of the slab starts there. slab is null when no
// slab owns the offset.
struct SlabBlock {
  Slab* slab = nullptr;
  unsigned index = kNoBlock;
  explicit operator bool() const { return slab != nullptr; }
};

// Makes the shadow of the persistent slab at `offset` with the sound header `h`, for the part cut
// like `shape.now`. All bits are clear.
void attach_slab(Slab& slab, pm::PoolFile& file, PoolOffset offset, const SlabHeader& h,
                 const SlabShape& shape);
// Writes a new slab into a fresh frame and returns its header. Two fences.
SlabHeader format_slab(pm::PoolFile& file, PoolOffset offset, ClassId class_id, Kind kind);
// Erases the magic. Flushed, not fenced.
void erase_slab(Slab& slab);
// A copy of the slab header at `offset`, if it is sound.
std::optional<SlabHeader> find_slab(const pm::PoolFile& file, PoolOffset offset);
// The lines of the header and of the stripes of both parts, as recovery copies them.
struct SlabLines {
  alignas(kLineBytes) std::array<std::uint64_t, (kHeaderLinesMax + 1) * kLineBytes / 8> word;

  // Reads the lines. Returns a copy of the header, if the one at `offset` is sound.
  std::optional<SlabHeader> read(const pm::PoolFile& file, PoolOffset offset, bool mapped);
  // Whether the stripes have the seal of the last clean close.
  bool sealed(const SlabHeader& header) const;
  // The persistent bits of one part of the slab, in block order.
  void used(const Slab& part, BlockBits& bits) const;
};
// As find_slab, for a damaged superblock: the header is sound, and of this pool if its id is known.
std::optional<SlabHeader> find_slab_of_any_pool(const pm::PoolFile& file, PoolOffset offset);
// Whether the header there would be sound if one bit of it were another.
bool has_bit_flipped(const pm::PoolFile& file, PoolOffset offset);
// Writes the whole persistent bitmap: a bit is set unless its block is free. Flushed, not fenced.
void write_stripes(const Slab& slab, std::span<const std::uint64_t> free_bits);
// For a clean close: stores the checksum of the stripes. Flushed, not fenced.
void seal_stripes(const Slab& slab);
// After a clean close: whether the stripes have that checksum.
bool stripes_sealed(const Slab& slab);
// Whether the old part's stripes are all zero. The shape may name it after its shadow is gone.
bool old_stripes_clear(const Slab& slab);
// Reads the persistent bitmap in block order. Bits without a block are left out.
void read_stripes(const Slab& slab, BlockBits& used);

}  // namespace TENUTO_NS::heap
