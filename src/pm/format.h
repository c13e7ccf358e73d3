// The head of a pool file. All integers are little-endian.
//
//   0        superblock, copy 0 (one page)
//   4 KiB    superblock, copy 1
//   8 KiB    head page: roots, zone count, heap slots, lane segment table
//   12 KiB   zone table
//   60 KiB   journal page: the journal's place, and which of its blocks this file holds
//            (journal/page.h)
//   64 KiB   first lane segment (kLanesPerSegment lanes)
//   kHeadBytes ...  zone 0's lower state, then frames (the frames of the head belong to zone 0)
//
// The superblock copies are written in turn: sequence & 1 picks the copy. The valid copy with the
// higher sequence is authoritative. Copies change at create, open and close, and when the pool gets
// a mark (kVariantJoint and those behind it): both, one after the other, so the first decides.
//
// Layout 4 (version 0.1) had superblocks of one line, no journal page and no times. file/super.cc
// reads both layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

// A type whose objects may be stored in a pool file.
template <class T>
concept OnMedia = std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T> &&
    std::has_unique_object_representations_v<T> && !std::is_pointer_v<T>;

inline constexpr std::uint64_t kPoolMagic = 0x314f54554e4554;  // "TENUTO1" in the file
inline constexpr std::uint32_t kLayoutVersion = 5;
inline constexpr std::uint32_t kLayoutVersionOld = 4;  // read; an open to write upgrades it
inline constexpr std::uint32_t kByteOrderMark = 0x01020304;

enum class PoolState : std::uint32_t { clean = 1, running = 2 };

struct Superblock {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint32_t line_bytes;
  std::uint32_t state;     // PoolState
  std::uint64_t sequence;  // copy sequence & 1 holds it
  std::uint64_t pool_id;   // random, never 0
  std::uint64_t created_unix_s;
  std::uint32_t stripes;       // of new slabs
  std::uint32_t variant;       // kVariant...
  std::uint32_t born_version;  // layout that the pool was made with
  std::uint32_t zero;
  // Random ids, never 0. They alone decide which journal is this pool's, and whether its contents
  // count (journal/match.h).
  std::uint64_t life;          // of the last open for writing
  std::uint64_t journal_id;    // the pool's journal; 0: it never had one
  std::uint64_t journal_life;  // in which it was last begun; in use if it is `life`
  // Not 0: that begin is only announced, and the journal may still have this life.
  std::uint64_t journal_life_before;
  // The sequence of the superblock that the last clean close wrote; 0: unknown (heap/book.h). It
  // counts if closed_at is this superblock's own sequence: an earlier build, which does not keep it
  // up, leaves another one.
  std::uint64_t closed;
  std::uint64_t closed_at;
  std::uint64_t zero_end;
  std::uint32_t zero_last;
  std::uint32_t crc;  // crc32c of all before
};
static_assert(OnMedia<Superblock>);
static_assert(sizeof(Superblock) == 128 && offsetof(Superblock, crc) == 124);

// Superblock::variant. A version that does not know a bit refuses the pool that has it.
inline constexpr std::uint32_t kVariantConsistency = 0xff;
inline constexpr std::uint32_t kVariantCanaries = 0x100;
inline constexpr std::uint32_t kVariantJoint = 0x200;  // it was in a transaction over several pools
inline constexpr std::uint32_t kVariantDamaged = 0x400;  // a slab was found damaged: read-only
// A leaf was found that is not the one of the close before: only a rescue reads the pool.
inline constexpr std::uint32_t kVariantLeafLost = 0x800;

// One zone: its first byte and its length. Entries below HeadPage::zone_count are valid and
// contiguous.
struct ZoneEntry {
  std::uint64_t offset;
  std::uint64_t bytes;
};
static_assert(OnMedia<ZoneEntry> && sizeof(ZoneEntry) == 16);

inline constexpr unsigned kStripesMax = 32;  // that a slab's bitmap may have (heap/format.h)
inline constexpr std::size_t kRootSlots = 8;
inline constexpr std::size_t kRootUser = 0;  // PtrWord of the user's root object
// Copies of the offsets of the store's and its catalog's first leaves (store/kv/head.cc).
inline constexpr std::size_t kRootStore = 1;
inline constexpr std::size_t kRootCatalog = 2;
inline constexpr std::size_t kLaneSegmentsMax = 64;
inline constexpr std::size_t kLanesPerSegment = 64;
inline constexpr std::size_t kLaneBytes = 8192;
inline constexpr std::size_t kLaneSegmentBytes = kLanesPerSegment * kLaneBytes;  // 512 KiB

// Milliseconds since 1970 that the pool stores for lifetimes (store/tree/clock.cc). One line.
inline constexpr std::size_t kTimeWords = 8;

struct HeadPage {
  std::uint64_t roots[kRootSlots];
  std::uint64_t zone_count;  // storing it commits a zone entry
  std::uint64_t zone_pad[7];
  std::uint64_t heap[8];   // one line for the heap's own list heads (heap/format.h)
  std::uint64_t store[8];  // one line for the store (store/tree/format.h)
  char layout[64];         // name and size of the root object, see store/pool/root.cc
  std::uint64_t lane_segments[kLaneSegmentsMax];  // offsets; 0 ends the table; [0] is in the head
  std::uint64_t times[kTimeWords];                // sealed, each twice (file/times.cc)
};
static_assert(OnMedia<HeadPage> && sizeof(HeadPage) <= kFrameBytes);
static_assert(offsetof(HeadPage, zone_count) % kLineBytes == 0);
static_assert(offsetof(HeadPage, heap) % kLineBytes == 0);
static_assert(offsetof(HeadPage, store) % kLineBytes == 0);
static_assert(offsetof(HeadPage, layout) % kLineBytes == 0);
static_assert(offsetof(HeadPage, lane_segments) % kLineBytes == 0);
static_assert(offsetof(HeadPage, times) % kLineBytes == 0);

inline constexpr std::uint64_t kHeadPageOffset = 2 * kFrameBytes;
inline constexpr std::uint64_t kZoneTableOffset = 3 * kFrameBytes;
inline constexpr std::uint64_t kLanesOffset = 64u << 10;
inline constexpr std::uint64_t kJournalPageOffset = kLanesOffset - kFrameBytes;
inline constexpr std::size_t kZonesMax =
    (kJournalPageOffset - kZoneTableOffset) / sizeof(ZoneEntry);
inline constexpr std::uint64_t kHeadBytes = kLanesOffset + kLaneSegmentBytes;

// A lane: the persistent log area of one thread. The heap's intents and the transaction log use
// different lines of it, and neither knows the other's.
//   line 0        transaction header (tx/format.h)
//   line 1..3     heap: retired sequences; the first two are used in turn, the third by other lanes
//   line 4..31    heap: intents, a ring
//   line 32..79   undo area 0
//   line 80..127  undo area 1
inline constexpr std::size_t kLaneLines = kLaneBytes / kLineBytes;
inline constexpr std::size_t kLaneTxLine = 0;
inline constexpr std::size_t kLaneRetiredLine = 1;
inline constexpr std::size_t kLaneRetiredLines = 3;
inline constexpr std::size_t kLaneIntentLine = kLaneRetiredLine + kLaneRetiredLines;
inline constexpr std::size_t kLaneIntentLines = 28;
inline constexpr std::size_t kLaneUndoLine = 32;
inline constexpr std::size_t kLaneUndoLines = 48;  // each of the two areas
static_assert(kLaneIntentLine + kLaneIntentLines == kLaneUndoLine);
static_assert(kLaneUndoLine + 2 * kLaneUndoLines == kLaneLines);

}  // namespace TENUTO_NS::pm
