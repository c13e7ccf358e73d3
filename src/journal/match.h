// Whose a journal is, and what may be done with it: the ids of both sides compared. Pure, called by
// journal/file.cc before anything in the file is believed or written.
//
// A pool's superblock names its journal's id, and the life in which that was last begun; the
// journal's header names the pool, itself, and the life. All are random, so nothing fits by chance.
// Only who names the other on both sides is replayed; only what provably holds nothing that
// anybody needs is begun anew; all else is refused, with words that say what to do.
//
//   moment                       superblock                        journal's header
//   made with its pool           clean, life A                     made, life A
//   announced                    as it was, life B, before A       life A (the pool has all of it)
//   begun                        the same                          running, life B (holds nothing)
//   in use                       running, life B                   running, life B
//   closed                       clean, life B                     running, life B, then closed
//
// The superblock is authoritative: a journal never has a life that its pool has not named. So one
// that has is newer than the pool, and one whose life the pool does not name any more is older.
#pragma once

#include <cstdint>
#include <string>

#include "journal/format.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

// What a pool says of its journal.
struct JournalExpected {
  std::uint64_t pool_id = 0;      // 0: a rescue that was told so; any
  std::uint64_t journal_id = 0;   // 0: none yet
  std::uint64_t life = 0;         // Superblock::journal_life
  std::uint64_t life_before = 0;  // Superblock::journal_life_before
  // The pool was in use with it: what it holds counts.
  bool in_use = false;
  // A superblock copy is damaged, so that the other may be of an older state: what the journal
  // holds counts if the ids fit.
  bool unsure = false;
  // A rescue that found no sound superblock: whatever it holds of that pool, of whatever life.
  bool any_life = false;
  std::string pool_path = {};  // the pool's real one
  std::string place = {};      // where its journal was at the last open, for words
  unsigned mode = 0600;        // of a journal that is made

  bool any_pool() const { return pool_id == 0; }
  bool to_be_read() const { return in_use || unsure; }
};

enum class JournalUse : std::uint8_t {
  replay,  // what it holds counts
  begin,   // it holds nothing that counts
  unborn,  // begin; and a block in it says that the pool is an older copy
};

// corrupt, invalid_argument: refused, with the report.
Result<JournalUse> match_journal(const JournalHeader& h, const JournalExpected& e,
                                 const std::string& path, Report* report);

// As it stands in a header.
bool names_pool_path(const JournalHeader& h, const std::string& path);
void set_pool_path(JournalHeader& h, const std::string& path);

// "1234abcd..." as in words and in `info`.
std::string id_text(std::uint64_t id);

}  // namespace TENUTO_NS::pm
