// What the heap writes to media: slab headers, the bookkeeping log and the intents in lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pm/crc32c.h"
#include "pm/format.h"
#include "pm/log.h"
#include "tenuto/units.h"

namespace TENUTO_NS::heap {

// --- slab: an order-4 frame ----------------------------------------------------------------------
//   line 0                        header
//   line first_line ..            bitmap stripes: the bit of block i is in stripe i % stripes,
//                                 at position i / stripes
//   data_offset                   blocks
// In a slab of typed blocks the lines behind the stripes hold the types, one word a block.
// A morphed slab (morph.h) has two parts. Each part has its own stripes and blocks. The blocks of
// the new part begin behind the stripes of both parts.
inline constexpr std::uint64_t kSlabBytes = 64u << 10;
inline constexpr std::uint64_t kSlabMagic = 0x42414c53544e54;  // "TNTSLAB" in the file
inline constexpr unsigned kStripesMax = pm::kStripesMax;
inline constexpr unsigned kStripeBits = kLineBytes * 8;
inline constexpr unsigned kBlocksMax = kSlabBytes / 16;
inline constexpr unsigned kHeaderLinesMax = 127;
inline constexpr std::uint8_t kNoPart = 63;

// How one part of a slab is cut. The rest follows from the pool's stripes (cut_geometry).
struct SlabCut {
  std::uint8_t class_id = kNoPart;
  std::uint8_t first_line = 0;  // of its stripes
  std::uint8_t end_line = 0;    // its blocks begin at or behind this line

  constexpr explicit operator bool() const { return class_id != kNoPart; }
  constexpr bool operator==(const SlabCut&) const = default;
};

struct SlabShape {
  SlabCut now;
  SlabCut old;  // of a morphed slab: its bits stay authoritative for its blocks

  constexpr bool operator==(const SlabShape&) const = default;
};

// The shape is one word, so that it changes atomically. From the low bits: class 6 bits, first line
// 7, end line 7, the same for the old part, 8 zero bits. The top 16 bits are a checksum salted with
// the slab's offset; it is never 0.
struct ShapeWord {
  std::uint64_t raw = 0;

  static constexpr std::uint64_t pack(const SlabCut& c) {
    return c.class_id | std::uint64_t{c.first_line} << 6 | std::uint64_t{c.end_line} << 13;
  }
  static constexpr SlabCut unpack(std::uint64_t v) {
    return {static_cast<std::uint8_t>(v & 63), static_cast<std::uint8_t>(v >> 6 & 127),
            static_cast<std::uint8_t>(v >> 13 & 127)};
  }
  static constexpr std::uint64_t pack(const SlabShape& s) {
    return pack(s.now) | pack(s.old) << 20;
  }

  static ShapeWord sealed(std::uint64_t value, std::uint64_t salt) {
    const std::uint32_t crc = pm::crc32c_u64(pm::crc32c_u64(~0u, salt), value);
    const std::uint64_t check = (crc ^ crc >> 16) & 0xffff;
    return {value | (check == 0 ? 0xffff : check) << 48};
  }
  static ShapeWord make(const SlabShape& s, PoolOffset slab) { return sealed(pack(s), slab.value); }
  constexpr std::uint64_t value() const { return raw & ((1ull << 48) - 1); }
  constexpr SlabShape shape() const { return {unpack(raw), unpack(raw >> 20)}; }
  bool sound(PoolOffset slab) const {
    return raw == sealed(value(), slab.value).raw && value() >> 40 == 0;
  }
};
static_assert(pm::OnMedia<ShapeWord> && sizeof(ShapeWord) == 8);
static_assert(ShapeWord{ShapeWord::pack({{36, 7, 127}, {0, 1, 9}})}.shape() ==
              SlabShape{{36, 7, 127}, {0, 1, 9}});

struct alignas(kLineBytes) SlabHeader {
  std::uint64_t magic;  // stored last: when it is there, the other fields are whole
  std::uint64_t self;   // offset of this slab
  std::uint64_t pool_id;
  std::uint8_t kind;     // a heap::Kind
  std::uint8_t stripes;  // of the pool
  std::uint16_t zero;
  std::uint32_t crc;  // crc32c of self .. zero; these never change
  ShapeWord shape;
  std::uint32_t closed_crc;  // of the stripes of both parts, written by a clean close
  std::uint32_t zero_too;
  std::uint64_t zeros[2];
};
static_assert(pm::OnMedia<SlabHeader> && sizeof(SlabHeader) == kLineBytes);
static_assert(offsetof(SlabHeader, crc) == 28 && offsetof(SlabHeader, shape) == 32);

inline std::uint32_t slab_crc(const SlabHeader& h) {
  return pm::crc32c(&h.self, offsetof(SlabHeader, crc) - offsetof(SlabHeader, self));
}

// --- bookkeeping log: which extents and huge objects are in use ----------------------------------
// A list of 1-KiB chunks cut from 64-KiB segments. An entry is a single word, so it cannot tear.
// Entry i is in line 1 + i % 15: neighbouring entries are in different lines.
inline constexpr std::uint64_t kBookSegmentBytes = 64u << 10;
inline constexpr std::uint64_t kBookChunkBytes = 1u << 10;
inline constexpr unsigned kBookChunkLines = kBookChunkBytes / kLineBytes - 1;
inline constexpr unsigned kBookChunkEntries = kBookChunkLines * 8;
inline constexpr std::uint64_t kBookSegmentMagic = 0x474553544e54;  // "TNTSEG"
inline constexpr std::uint64_t kBookChunkMagic = 0x4b4e4843544e54;  // "TNTCHNK"

// The header of a segment. It takes the place of the first chunk.
struct alignas(kLineBytes) BookSegment {
  std::uint64_t magic;
  std::uint64_t self;
  std::uint64_t next;  // older segment, 0 at the end
  std::uint64_t zero[5];
};
static_assert(pm::OnMedia<BookSegment> && sizeof(BookSegment) == kLineBytes);

struct alignas(kLineBytes) BookChunk {
  std::uint64_t magic;
  std::uint64_t self;
  std::uint64_t next;  // next chunk of the list, 0 at its end
  std::uint64_t id;    // of this use of the chunk: never used again, larger than all before
  std::uint64_t zero[4];
  std::uint64_t entries[kBookChunkEntries];

  std::uint64_t& entry(unsigned i) {
    return entries[(i % kBookChunkLines) * 8 + i / kBookChunkLines];
  }
  const std::uint64_t& entry(unsigned i) const {
    return entries[(i % kBookChunkLines) * 8 + i / kBookChunkLines];
  }
};
static_assert(pm::OnMedia<BookChunk> && sizeof(BookChunk) == kBookChunkBytes);

enum class BookType : unsigned { empty = 0, logged = 1, derived = 2, tombstone = 3 };

// Names an entry by its chunk's id and its index. It does not use the chunk's offset: a chunk may
// be collected and used again, and old tombstones must not kill its new entries.
struct BookPosition {
  std::uint64_t value = 0;  // 0: none

  static constexpr BookPosition make(std::uint64_t chunk_id, unsigned index) {
    return {chunk_id << 7 | index};
  }
  constexpr std::uint64_t chunk_id() const { return value >> 7; }
  constexpr unsigned index() const { return static_cast<unsigned>(value & 127); }
  constexpr bool operator==(const BookPosition&) const = default;
};

// One word. The low 2 bits are the type.
// An extent or huge object has 26 bits of size and 35 bits of offset, both in 4-KiB frames. Its top
// bit is set when the block is typed: the last word of the extent is then the type.
// A tombstone has the position of the entry that it kills.
struct BookEntry {
  std::uint64_t raw = 0;

  static constexpr BookEntry make_extent(BookType type, PoolOffset offset, std::uint64_t frames,
                                         bool typed = false) {
    return {std::uint64_t{typed} << 63 | offset.value / kFrameBytes << 28 | frames << 2 |
            static_cast<unsigned>(type)};
  }
  static constexpr BookEntry make_tombstone(BookPosition killed) {
    return {killed.value << 2 | static_cast<unsigned>(BookType::tombstone)};
  }
  constexpr BookType type() const { return static_cast<BookType>(raw & 3); }
  constexpr PoolOffset offset() const { return {(raw << 1 >> 29) * kFrameBytes}; }
  constexpr bool typed() const { return raw >> 63 != 0; }
  constexpr std::uint64_t frames() const { return raw >> 2 & ((1u << 26) - 1); }
  constexpr BookPosition killed() const { return {raw >> 2}; }
};
static_assert(BookEntry::make_extent(BookType::logged, {12288}, 7).offset().value == 12288);
static_assert(BookEntry::make_extent(BookType::derived, {12288}, 7).frames() == 7);
static_assert(BookEntry::make_extent(BookType::derived, {12288}, 7).type() == BookType::derived);
static_assert(BookEntry::make_extent(BookType::logged, {12288}, 7, true).offset().value == 12288);
static_assert(BookEntry::make_extent(BookType::logged, {12288}, 7, true).typed());
static_assert(BookEntry::make_tombstone({99}).killed().value == 99);
static_assert(BookPosition::make(5, 119).index() == 119);
static_assert(BookPosition::make(5, 119).chunk_id() == 5);

// The checksum of a list, and the lower half of the sequence of the superblock that says that the
// pool is clean. Of any other sequence it says nothing: a pool of an earlier build has 0 there, and
// such a build closes a pool and leaves an older seal.
struct BookSeal {
  std::uint64_t raw = 0;

  static constexpr BookSeal make(std::uint64_t sequence, std::uint32_t crc) {
    return {sequence << 32 | crc};
  }
  constexpr bool is_of(std::uint64_t sequence) const {
    return raw != 0 && raw >> 32 == (sequence & 0xffff'ffff);
  }
  constexpr std::uint32_t crc() const { return static_cast<std::uint32_t>(raw); }
};

// --- table of slabs ------------------------------------------------------------------------------
// The derived slabs of a closed pool (slab_table.cc), in parts of 64 KiB. This head, then for each
// slab a word, and the bits of the blocks in use, in block order and in whole words.
inline constexpr std::uint64_t kSlabTableMagic = 0x4c42'5442'4c53'4e54;

struct SlabTablePart {
  std::uint64_t magic;
  std::uint64_t self;
  std::uint64_t pool_id;
  std::uint64_t before;      // the part before, 0 in the first one
  std::uint32_t before_crc;  // of its head and words
  std::uint32_t words;       // behind this head
  std::uint64_t zero[3];
};
static_assert(pm::OnMedia<SlabTablePart> && sizeof(SlabTablePart) == kLineBytes);
inline constexpr std::size_t kSlabTableWords = (kSlabBytes - sizeof(SlabTablePart)) / 8;

// A slab: where it is, in units of 64 KiB, and its class.
struct SlabTableEntry {
  std::uint64_t raw = 0;

  static constexpr SlabTableEntry make(PoolOffset slab, unsigned class_id) {
    return {slab.value / kSlabBytes << 8 | class_id};
  }
  constexpr PoolOffset offset() const { return {(raw >> 8) * kSlabBytes}; }
  constexpr unsigned class_id() const { return raw & 0xff; }
};
static_assert(SlabTableEntry::make({3 * kSlabBytes}, 36).offset().value == 3 * kSlabBytes);
static_assert(SlabTableEntry::make({3 * kSlabBytes}, 36).class_id() == 36);

// The last part. The first word is as in a BookSeal: of the superblock of that close, and the crc.
struct SlabTableName {
  BookSeal seal;
  std::uint64_t part = 0;
};

// The heap's line in the head page.
struct BookHead {
  std::uint64_t list[2];  // first chunk of each list
  std::uint64_t alt;      // the index of the live list
  std::uint64_t segment;  // newest segment
  BookSeal seal;          // of the live list
  SlabTableName table;
  std::uint64_t zero;
};
static_assert(pm::OnMedia<BookHead> && sizeof(BookHead) == sizeof(pm::HeadPage::heap));

// --- wear levelling ------------------------------------------------------------------------------
// The table of counts (wear_table.cc): an extent or huge object with this type. This head, then a
// 32-bit count for each 4-KiB frame of the pool, from frame 0 on, then one for each 64 KiB. An
// object of this type without a sound head is not ours.
inline constexpr std::uint64_t kWearType = 0xd15c'1ea7'0001'7e40;
inline constexpr std::uint64_t kWearMagic = 0x5241'4557'544e'54;  // "TNTWEAR" in the file

struct WearHead {
  std::uint64_t magic;
  std::uint64_t pool_id;
  std::uint64_t self;      // the table's offset
  std::uint64_t sequence;  // of the tables of a pool; the highest is the latest
  std::uint64_t frames;    // counts of frames
  std::uint64_t zero[2];
  std::uint32_t counts_crc;
  std::uint32_t crc;  // of all before
};
static_assert(pm::OnMedia<WearHead> && sizeof(WearHead) == kLineBytes);

// --- intents in a lane ---------------------------------------------------------------------------
// A log line that names blocks, and the words that they are attached to or detached from.
//   word 0        IntentHead
//   word 1        bytes of each block
//   word 2..6     by form:
//     pairs       up to 2: destination, target, destination, target, bytes of the second block
//     run         up to 4: first destination, targets; the destinations are neighbours
//     packed      up to 16: first destination, target, then 12 bits for each block: its offset in
//                 the slab in units of 16 bytes. The target's block is the slab
// A target is a block's offset in units of 16 bytes, and the version that the word gets.
// A malloc of a typed block on a versioned word uses the form `pairs`. The first pair is the word
// and the block. The "bytes of the second block" are the type.
enum class IntentOp : unsigned {
  malloc_to = 1,
  free_from = 2,
  versioned_malloc = 3,
  versioned_free = 4,
  swap = 5,
  typed_malloc = 6,  // on a versioned word
};
enum class IntentForm : unsigned { pairs = 0, run = 1, packed = 2 };
inline constexpr bool is_versioned(IntentOp op) { return op >= IntentOp::versioned_malloc; }

inline constexpr std::size_t kIntentPairs = 2;
inline constexpr std::size_t kIntentRun = 4;
inline constexpr std::size_t kIntentPacked = 16;
inline constexpr unsigned kPackedBits = 12;
static_assert((16u << kPackedBits) == kSlabBytes && kIntentPacked * kPackedBits == 3 * 64);

// `retired`: every intent of this lane with a sequence <= this one is over (intent.cc).
struct IntentHead {
  std::uint64_t raw = 0;

  static constexpr IntentHead make(IntentOp op, IntentForm form, std::size_t count,
                                   std::uint64_t retired) {
    return {retired << 16 | count << 8 | static_cast<std::uint64_t>(form) << 4 |
            static_cast<std::uint64_t>(op)};
  }
  constexpr unsigned op() const { return raw & 15; }
  constexpr unsigned form() const { return raw >> 4 & 15; }
  constexpr std::size_t count() const { return raw >> 8 & 255; }
  constexpr std::uint64_t retired() const { return raw >> 16; }
};
static_assert(IntentHead::make(IntentOp::swap, IntentForm::run, 3, 1ull << 47).retired() ==
              1ull << 47);
static_assert(IntentHead::make(IntentOp::swap, IntentForm::run, 3, 9).count() == 3);

struct IntentTarget {
  std::uint64_t raw = 0;

  static constexpr unsigned kPlaceBits = 40;
  static constexpr IntentTarget make(PoolOffset block, std::uint32_t version) {
    return {std::uint64_t{version} << kPlaceBits | block.value / 16};
  }
  constexpr PoolOffset block() const { return {(raw & ((1ull << kPlaceBits) - 1)) * 16}; }
  constexpr std::uint32_t version() const { return static_cast<std::uint32_t>(raw >> kPlaceBits); }
};
inline constexpr std::uint64_t kPoolBytesMax = 16ull << IntentTarget::kPlaceBits;
static_assert(IntentTarget::make({48}, 77).block().value == 48);
static_assert(IntentTarget::make({48}, 0xffffff).version() == 0xffffff);

}  // namespace TENUTO_NS::heap
