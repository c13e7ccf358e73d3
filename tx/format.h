// The persistent format of a transaction.
//
// A lane has one transaction line and two undo areas of kLaneUndoLines log lines. The transactions
// of a lane use the areas in turn (sequence & 1). A full area continues in log frames of 64 KiB.
// Their chain starts in the transaction line and stays linked for reuse. The transaction line is
// authoritative. It gives an entry of sequence s its meaning:
//     s == committed + 1           undo it: the transaction did not end
//     frees_done < s <= committed  the bit of a freed block may still be set: clear it again
//     otherwise                    nothing
// If s has a `prepared` entry, another pool's transaction line decides it first (joint.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pm/crc32c.h"
#include "pm/format.h"
#include "pm/log.h"
#include "tenuto/units.h"

namespace TENUTO_NS::tx {

inline constexpr std::size_t kAreas = 2;

// A 48-bit number and its checksum in one word: one store writes both, and the check needs no other
// word. The checksum (the lower 16 bits) is salted with the word's place. So it finds damage and
// words that are at a wrong place. An all-zero word is the number 0.
struct SealedWord {
  std::uint64_t raw = 0;

  static constexpr std::uint64_t kMax = (1ull << 48) - 1;

  static std::uint64_t check(std::uint64_t number, std::uint64_t salt) {
    const std::uint32_t crc = pm::crc32c_u64(pm::crc32c_u64(~0u, salt), number);
    return (crc ^ crc >> 16) & 0xffff;
  }
  static std::uint64_t make(std::uint64_t number, std::uint64_t salt) {
    return number == 0 ? 0 : number << 16 | check(number, salt);
  }
  std::uint64_t number() const { return raw >> 16; }
  bool sound(std::uint64_t salt) const { return raw == make(number(), salt); }
};

// The salt: a word of a lane.
enum class WordPlace : std::uint8_t {
  committed = 1,
  frees_done = 2,
  log_frame = 3,
  next = 5,
  decisions = 6
};
constexpr std::uint64_t salt_of(LaneId lane, WordPlace place, std::size_t index = 0) {
  return std::uint64_t{lane.value} << 32 | index << 8 | static_cast<std::uint64_t>(place);
}

// The transaction line (lane line kLaneTxLine). Its stores become durable in program order, and
// `committed` is always stored last.
//     frees_done <= committed + 1                                                          (T1)
//     the bits of frees up to committed - 2 are durably clear: two areas are enough        (T2)
struct alignas(kLineBytes) TxLine {
  SealedWord committed;          // the last sequence that ended, by commit or by abort
  SealedWord frees_done;         // blocks freed up to this sequence have durably clear bits
  SealedWord log_frame[kAreas];  // first overflow frame of each area, as an offset
  SealedWord decisions;          // frame of the decisions (joint.cc), as an offset; 0: none
  std::uint64_t reserved[3];
};
static_assert(pm::OnMedia<TxLine> && sizeof(TxLine) == kLineBytes);
static_assert(offsetof(TxLine, frees_done) == 8 && offsetof(TxLine, log_frame) == 16);

enum class EntryKind : std::uint8_t { undo = 1, alloc = 2, free = 3, prepared = 4 };

inline constexpr std::size_t kEntryBytes = 48;  // old bytes in one undo entry

// A transaction of one lane, in any pool.
struct TxnName {
  std::uint64_t pool_id;
  std::uint64_t lane;
  std::uint64_t sequence;
  bool operator==(const TxnName&) const = default;
};
static_assert(pm::OnMedia<TxnName> && sizeof(TxnName) == 24);

// Word 0 of an entry: offset (48 bits), length (6 bits), kind. Words 1..6 of an undo entry hold the
// old bytes, padded with zeros; those of a prepared entry the name of the transaction that decides.
struct EntryHead {
  std::uint64_t raw = 0;

  static constexpr EntryHead make(EntryKind kind, PoolOffset at, std::size_t length) {
    return {at.value << 16 | static_cast<std::uint64_t>(length) << 8 |
            static_cast<std::uint64_t>(kind)};
  }
  constexpr EntryKind kind() const { return static_cast<EntryKind>(raw & 0xff); }
  constexpr std::size_t length() const { return raw >> 8 & 0xff; }
  constexpr PoolOffset offset() const { return {raw >> 16}; }
  // Whether make() can have made the word. Does not check where the offset points.
  constexpr bool sound() const {
    const EntryKind k = kind();
    if (k == EntryKind::undo) return length() >= 1 && length() <= kEntryBytes;
    if (k == EntryKind::prepared) return length() == sizeof(TxnName) && offset().value == 0;
    return (k == EntryKind::alloc || k == EntryKind::free) && length() == 0;
  }
};
static_assert(EntryHead::make(EntryKind::undo, {0x123456789abc}, 48).offset().value ==
              0x123456789abc);
static_assert(EntryHead::make(EntryKind::undo, {64}, 48).length() == 48);
static_assert(EntryHead::make(EntryKind::free, {64}, 0).kind() == EntryKind::free);
static_assert(EntryHead::make(EntryKind::alloc, {64}, 0).sound());
static_assert(!EntryHead::make(EntryKind::undo, {64}, 49).sound());

inline constexpr std::uint64_t kLogFrameMagic = 0x474f4c58544e54;  // "TNTXLOG" in the file
inline constexpr std::size_t kLogFrameBytes = 64u << 10;

// The first line of a log frame. Log lines fill the rest. Only `next` changes while the frame is
// linked. A frame of decisions has kDecisionsArea as its area, and no next one. Each of its lines
// names another pool's transaction that the line's sequence of this lane has decided.
inline constexpr std::uint32_t kDecisionsArea = kAreas;
struct alignas(kLineBytes) LogFrameHeader {
  std::uint64_t magic;
  std::uint32_t lane;
  std::uint32_t area;
  std::uint64_t index;  // 0: the frame that the transaction line names
  SealedWord next;      // offset; 0 ends the chain
  std::uint64_t reserved[3];
  std::uint32_t zero;
  std::uint32_t crc;  // of magic, lane, area and index
};
static_assert(pm::OnMedia<LogFrameHeader> && sizeof(LogFrameHeader) == kLineBytes);
static_assert(offsetof(LogFrameHeader, next) == 24 && offsetof(LogFrameHeader, crc) == 60);

inline constexpr std::size_t kLogFrameLines = kLogFrameBytes / kLineBytes - 1;

inline TxnName name_in(const pm::LogLine& line) {
  TxnName name;
  std::memcpy(&name, &line.word[1], sizeof name);
  return name;
}

inline std::uint32_t header_crc(const LogFrameHeader& h) {
  return pm::crc32c(&h, offsetof(LogFrameHeader, next));
}

}  // namespace TENUTO_NS::tx
