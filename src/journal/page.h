// The page of a pool file that speaks of its journal. Written past the mapping, by journal.cc and
// file/journal.cc; a pool that never had a journal has zeros there.
//
//   0, 512    checkpoint stamps, written in turn
//   1 KiB     where the journal was at the last open with it: for words, decides nothing
//
// A stamp says "this file holds all blocks of that life before `block`, and may hold some of those
// before `block + more`". The second is written, and on the device, before the first of those goes
// into the file (by a checkpoint, or by a replay, which may be cut short like it); the first is
// with the pages of its checkpoint, before the journal's start moves. So of a pool and its journal
// that belong together
//
//   journal's start <= block of the newest stamp,   its block + more <= journal's end
//
// and a pool file, or a journal, that was replaced by an older copy of the same life does not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "journal/format.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

struct CheckpointStamp {
  std::uint64_t life;
  std::uint64_t block;     // of this number, and later ones, nothing need be in the file
  std::uint64_t sequence;  // slot sequence & 1 holds it
  std::uint32_t more;      // blocks from there on of which something may be
  std::uint32_t crc;       // crc32c of all before
};
static_assert(OnMedia<CheckpointStamp> && sizeof(CheckpointStamp) == 32);

inline constexpr std::uint64_t kStampBytes = 512;  // a slot
inline constexpr std::uint64_t kJournalPlaceOffset = kJournalPageOffset + 1024;
inline constexpr std::size_t kJournalPlaceMax = 3060;

struct JournalPlace {
  std::uint32_t crc;  // of the rest
  std::uint32_t bytes;
  char path[kJournalPlaceMax];  // of a longer one the end
};
static_assert(OnMedia<JournalPlace> && kJournalPlaceOffset + sizeof(JournalPlace) <= kLanesOffset);

struct StampsFound {
  std::uint64_t block = 1;     // of the newest stamp of this life; 1: nothing was checkpointed
  std::uint64_t end = 1;       // its block + more
  std::uint64_t sequence = 0;  // the highest of any life
  bool damaged = false;        // one that cannot be read may have said more
};

StampsFound read_stamps(int pool_fd, std::uint64_t life);
// Not durable yet. False, with errno, when it failed. REQUIRES: end - block fits into 32 bits.
bool write_stamp(int pool_fd, std::uint64_t life, std::uint64_t block, std::uint64_t end,
                 std::uint64_t sequence);

// Empty: unknown.
std::string read_journal_place(int pool_fd);
bool write_journal_place(int pool_fd, const std::string& path);

}  // namespace TENUTO_NS::pm
