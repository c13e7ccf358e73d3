// A journal file: a header, then a ring of blocks.
//
//   0, 4 KiB     header, two copies written in turn; the valid one with the higher sequence counts
//   8 KiB ...    the ring: blocks of whole 4-KiB units, one after the other, round and round
//
// A block holds the merged line images of one cut. It is durable before the next one is begun, so
// the journal ends at the first block that does not check. A block that checks behind that one
// proves damage, and is never skipped. Blocks count up. Their checksums are salted with the ids of
// pool and journal, and cover the random id of the life they were written in. So blocks of another
// life or journal mean nothing, even where a power cut or a copy brings their bytes back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pm/crc32c.h"
#include "pm/format.h"

namespace TENUTO_NS::pm {

inline constexpr std::uint64_t kJournalMagic = 0x314c4e52554f4a;       // "JOURNL1"
inline constexpr std::uint64_t kJournalBlockMagic = 0x4b434f4c424e4a;  // "JNBLOCK"
inline constexpr std::uint32_t kJournalVersion = 2;
inline constexpr std::uint32_t kJournalVersionOld = 1;  // of pools of layout 4
inline constexpr std::uint64_t kJournalUnitBytes = 4096;
inline constexpr std::uint64_t kJournalRingOffset = 2 * kJournalUnitBytes;
inline constexpr std::uint64_t kJournalBytesMin = 256u << 10;

// made: it had no life yet and holds nothing. closed: it holds nothing, its pool has all of it.
enum class JournalState : std::uint32_t { made = 1, running = 2, closed = 3 };

struct JournalHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint64_t pool_id;
  std::uint64_t ring_bytes;
  std::uint64_t sequence;     // copy sequence & 1 holds it
  std::uint64_t journal_id;   // random, never 0
  std::uint64_t life;         // random: of the open that began it, or of no open yet
  std::uint64_t start;        // ring position (never wraps) of the first block that counts
  std::uint64_t start_block;  // and its number
  std::uint32_t state;        // JournalState
  std::uint32_t temporary;    // 1: a clean close removes the file
  char pool_path[424];        // real path, then zeros; the end of a longer one. For reports
  std::uint32_t zero;
  std::uint32_t crc;  // crc32c of all before
};
static_assert(OnMedia<JournalHeader> && sizeof(JournalHeader) == 512);

// Of version 1. Its blocks are not read: version 0.1 must open a pool that needs them.
struct JournalHeaderOld {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint64_t pool_id;
  std::uint64_t ring_bytes;
  std::uint64_t sequence;
  std::uint64_t incarnation;
  std::uint64_t start;
  std::uint64_t start_block;
  std::uint32_t zero;
  std::uint32_t crc;  // crc32c of all before
};
static_assert(OnMedia<JournalHeaderOld> && sizeof(JournalHeaderOld) == 72);

enum class JournalBlockKind : std::uint32_t { lines = 1, skip = 2 };

struct JournalBlock {
  std::uint64_t magic;
  std::uint64_t life;
  std::uint64_t number;
  std::uint64_t position;  // where it is, unwrapped
  std::uint32_t kind;      // skip: the ring goes on at its beginning
  std::uint32_t lines;
  std::uint32_t raw_bytes;     // of the payload: line numbers, then line images
  std::uint32_t packed_bytes;  // as LZ4; equal to raw_bytes: not compressed
  std::uint64_t payload_crc;   // crc32c
  std::uint32_t zero;
  std::uint32_t crc;  // crc32c of all before
};
static_assert(OnMedia<JournalBlock> && sizeof(JournalBlock) == 64);

// A place in the ring, unwrapped, so that it only grows; and the number of the block there.
struct JournalPosition {
  std::uint64_t at = 0;
  std::uint64_t block = 0;
};

inline constexpr std::uint64_t kJournalBlockBytesMax = 1u << 30;  // of line images, unpacked
inline constexpr std::uint64_t kJournalPositionMax = std::uint64_t{1} << 62;

inline std::uint32_t crc_of(const JournalHeader& h) {
  return crc32c(&h, offsetof(JournalHeader, crc));
}

// The start value of a block's checksums.
inline std::uint32_t salt_of(std::uint64_t pool_id, std::uint64_t journal_id, std::uint64_t life) {
  const std::uint64_t ids[] = {pool_id, journal_id, life};
  return crc32c(ids, sizeof ids);
}
inline std::uint32_t crc_of(const JournalBlock& b, std::uint32_t salt) {
  return crc32c(&b, offsetof(JournalBlock, crc), salt);
}

// The bytes that a block takes in the ring.
inline std::uint64_t ring_bytes_of(const JournalBlock& b) {
  return round_up(sizeof b + std::uint64_t{b.packed_bytes}, kJournalUnitBytes);
}

}  // namespace TENUTO_NS::pm
