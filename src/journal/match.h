// Compares the ids of a pool and a journal, and decides what may be done with the journal. It does
// no I/O. journal/file.cc asks it before anything in the file is used or written.
//
// A pool's superblock names its journal's id and the life in which that was last begun. The
// journal's header names the pool, itself and the life. All ids are random, so nothing fits by
// chance. A journal is replayed only if both sides name each other. It is begun anew only if it
// provably holds nothing that a pool needs. Everything else is refused, with a report that says
// what to do.
//
//   state                        superblock                        journal's header
//   made with its pool           clean, life A                     made, life A
//   announced                    as it was, life B, before A       life A (the pool has all of it)
//   begun                        the same                          running, life B (holds nothing)
//   in use                       running, life B                   running, life B
//   closed                       clean, life B                     running, life B, then closed
//
// The superblock is authoritative: a pool names a life before its journal has it. So if the pool
// has not named the journal's life, the pool is an older copy. If it names that life no more, the
// journal is an older copy.
#pragma once

#include <cstdint>
#include <string>

#include "journal/format.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

// What a pool knows of its journal.
struct JournalExpected {
  std::uint64_t pool_id = 0;      // 0: any; for a rescue that was told so
  std::uint64_t journal_id = 0;   // 0: none yet
  std::uint64_t life = 0;         // Superblock::journal_life
  std::uint64_t life_before = 0;  // Superblock::journal_life_before
  // The pool was in use with it, so its contents count.
  bool in_use = false;
  // A superblock copy is damaged, and the other may be of an older state. The journal's contents
  // count if the ids fit.
  bool unsure = false;
  // A rescue found no sound superblock: a journal of that pool counts, whatever its life.
  bool any_life = false;
  std::string pool_path = {};  // the pool's real path
  std::string place = {};      // where its journal was at the last open; for reports
  unsigned mode = 0600;        // of a new journal
  bool temporary = false;      // a new journal goes with the clean close

  bool any_pool() const { return pool_id == 0; }
  bool to_be_read() const { return in_use || unsure; }
};

enum class JournalUse : std::uint8_t {
  replay,  // its contents count
  begin,   // it has no contents that count
  unborn,  // begin; but if it has a block, the pool is an older copy
};

// corrupt, invalid_argument: refused, with a report.
Result<JournalUse> match_journal(const JournalHeader& h, const JournalExpected& e,
                                 const std::string& path, Report* report);

// The pool's path as a header has it.
bool names_pool_path(const JournalHeader& h, const std::string& path);
void set_pool_path(JournalHeader& h, const std::string& path);

// "1234abcd...", for reports and `info`.
std::string id_text(std::uint64_t id);

}  // namespace TENUTO_NS::pm
