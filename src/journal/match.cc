#include "journal/match.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "pm/plant.h"

namespace TENUTO_NS::pm {

namespace {

constexpr const char* kMoveAway =
    "; put the right one back, or give its place as PoolOptions::journal.path";

std::string shown_path(const JournalHeader& h) {
  const std::size_t n = ::strnlen(h.pool_path, sizeof h.pool_path);
  return n == 0 ? "a pool" : std::string(h.pool_path, n);
}

Result<JournalUse> refuse(Status s, Report* report, std::string what, const JournalExpected& e,
                          const std::string& path, std::string expected, std::string found) {
  if (!e.place.empty() && e.place != path) what += " (at the last open it was " + e.place + ")";
  return fail(s, report, std::move(what), path, std::move(expected), std::move(found));
}

Result<JournalUse> match_another_pools(const JournalHeader& h, const JournalExpected& e,
                                       const std::string& path, Report* report) {
  // Of a pool at this very path that was never finished, or was closed and replaced.
  const bool idle = h.state != static_cast<std::uint32_t>(JournalState::running);
  if (idle && !e.to_be_read() && names_pool_path(h, e.pool_path)) return JournalUse::begin;
  return refuse(e.to_be_read() ? Status::corrupt : Status::invalid_argument, report,
                "this is another pool's journal, made for " + shown_path(h) +
                    (e.to_be_read() ? kMoveAway
                                    : "; give another place as PoolOptions::journal.path, or "
                                      "move that file away if its pool is gone"),
                e, path, "pool " + id_text(e.pool_id), "pool " + id_text(h.pool_id));
}

// The pool was in use, or may have been.
Result<JournalUse> match_needed(const JournalHeader& h, const JournalExpected& e,
                                const std::string& path, Report* report) {
  const bool closed = h.state == static_cast<std::uint32_t>(JournalState::closed);
  const bool made = h.state == static_cast<std::uint32_t>(JournalState::made);
  if (e.unsure && !e.in_use && made) return JournalUse::begin;  // the lost copy announced it
  if (h.journal_id != e.journal_id) {
    return refuse(Status::corrupt, report,
                  std::string("this is a journal of the pool, but not the one that it was in use "
                              "with") +
                      kMoveAway,
                  e, path, "journal " + id_text(e.journal_id), "journal " + id_text(h.journal_id));
  }
  const bool before = e.life_before != 0 && h.life == e.life_before;
  if (before) return JournalUse::begin;  // the pool has all of that life
  // A clean close writes the pool first. So only a damaged superblock can be behind the journal.
  if (h.life != e.life || (closed && !e.unsure)) {
    return refuse(Status::corrupt, report,
                  std::string("the journal is older or newer than the pool: one of the two was "
                              "replaced by another copy") +
                      kMoveAway,
                  e, path, "life " + id_text(e.life),
                  closed ? "closed after it" : "life " + id_text(h.life));
  }
  if (closed) return JournalUse::begin;
  return e.life_before != 0 && !e.unsure ? JournalUse::unborn : JournalUse::replay;
}

}  // namespace

Result<JournalUse> match_journal(const JournalHeader& h, const JournalExpected& e,
                                 const std::string& path, Report* report) {
  if (e.any_pool()) return JournalUse::replay;
  if (h.pool_id != e.pool_id) return match_another_pools(h, e, path, report);
  if (e.any_life) return JournalUse::replay;
  if (TENUTO_PLANT("journal_ids_not_compared")) {
    return e.to_be_read() ? JournalUse::replay : JournalUse::begin;
  }
  if (e.to_be_read()) return match_needed(h, e, path, report);
  // This pool needs nothing of it. The journal's state shows whether another copy does.
  const bool idle = h.state != static_cast<std::uint32_t>(JournalState::running);
  const bool ours = h.journal_id == e.journal_id;
  if (ours && h.life == e.life) return e.life_before != 0 ? JournalUse::unborn : JournalUse::begin;
  if (idle || (ours && e.life_before != 0 && h.life == e.life_before)) return JournalUse::begin;
  return refuse(Status::corrupt, report,
                "the journal may hold writes that the pool does not know of: the pool is an older "
                "copy than its journal, or another copy of it was open with this journal; put the "
                "right pool back, or move the journal away to go on with what is in the pool",
                e, path, "journal " + id_text(e.journal_id) + ", life " + id_text(e.life),
                "journal " + id_text(h.journal_id) + ", life " + id_text(h.life));
}

bool names_pool_path(const JournalHeader& h, const std::string& path) {
  JournalHeader mine{};
  set_pool_path(mine, path);
  return std::memcmp(mine.pool_path, h.pool_path, sizeof h.pool_path) == 0;
}

void set_pool_path(JournalHeader& h, const std::string& path) {
  std::memset(h.pool_path, 0, sizeof h.pool_path);
  const std::size_t n = std::min(path.size(), sizeof h.pool_path - 1);
  std::memcpy(h.pool_path, path.data() + (path.size() - n), n);
}

std::string id_text(std::uint64_t id) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(id));
  return text;
}

}  // namespace TENUTO_NS::pm
