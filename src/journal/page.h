// The page of a pool file about its journal. journal.cc and file/journal.cc write it past the
// mapping. A pool that never had a journal has zeros there.
//
//   0, 512    checkpoint stamps, written in turn
//   1 KiB     where the journal was at the last open with it; for reports, decides nothing
//
// A stamp means: this file holds all blocks of that life before `block`, and may hold parts of
// those before `block + more`. A checkpoint or a replay may be cut short. So it first raises
// `more`, durably, and then writes those blocks into the file. A checkpoint writes a stamp with the
// new `block` along with its pages, before the journal's start moves. So a pool and its journal
// that belong together have
//
//   journal's start <= block of the newest stamp,   its block + more <= journal's end
//
// A pool file, or a journal, that was replaced by an older copy of the same life does not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "journal/format.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

struct CheckpointStamp {
  std::uint64_t life;
  std::uint64_t block;     // nothing of this block or a later one need be in the file
  std::uint64_t sequence;  // slot sequence & 1 holds it
  std::uint32_t more;      // how many blocks from there on may be in it in part
  std::uint32_t crc;       // crc32c of all before
};
static_assert(OnMedia<CheckpointStamp> && sizeof(CheckpointStamp) == 32);

inline constexpr std::uint64_t kStampBytes = 512;  // of a slot
inline constexpr std::uint64_t kJournalPlaceOffset = kJournalPageOffset + 1024;
inline constexpr std::size_t kJournalPlaceMax = 3060;

struct JournalPlace {
  std::uint32_t crc;  // of the rest
  std::uint32_t bytes;
  char path[kJournalPlaceMax];  // the end of a longer one
};
static_assert(OnMedia<JournalPlace> && kJournalPlaceOffset + sizeof(JournalPlace) <= kLanesOffset);

struct StampsFound {
  std::uint64_t block = 1;     // of the newest stamp of this life; 1: nothing was checkpointed
  std::uint64_t end = 1;       // its block + more
  std::uint64_t sequence = 0;  // the highest of any life
  bool damaged = false;        // one that cannot be read may have been newer
};

StampsFound read_stamps(int pool_fd, std::uint64_t life);
// Not durable yet. False, with errno, when it failed. REQUIRES: end - block fits into 32 bits.
bool write_stamp(int pool_fd, std::uint64_t life, std::uint64_t block, std::uint64_t end,
                 std::uint64_t sequence);

// Empty: unknown.
std::string read_journal_place(int pool_fd);
bool write_journal_place(int pool_fd, const std::string& path);

}  // namespace TENUTO_NS::pm
