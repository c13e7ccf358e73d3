// Recovery of transactions: undoes the unfinished ones and finishes the committed ones.
//
// Lanes are independent, so they are recovered in any order and need no common counter:
//   - No other lane has touched what this lane undoes. A transaction keeps its locks and blocks
//     until its end is durable.
//   - Nobody has reused a freed block before the lane's frees_done covered the free.
//
// The lane's transaction line as the crash left it is authoritative until the last fence. All work
// before `undone bytes and bits | lane retired` depends on that line and the entries only. Neither
// changes, so a crash during recovery repeats the same recovery. Then the line is set to frees_done
// = committed = the undone sequence. After that no entry applies.
//
// A transaction that is prepared for several pools (joint.cc) ends as the deciding pool says. It is
// asked before anything changes. What this lane itself decided and did not commit is erased before
// the line is set.
#include <algorithm>
#include <cstdio>
#include <string>

#include "frame/format.h"
#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tenuto/persist.h"
#include "tx/decisions.h"
#include "tx/engine.h"

namespace TENUTO_NS::tx {

namespace {

// The contents of one lane's log. Reading it changes nothing.
struct LaneLog {
  const pm::Lane* lane = nullptr;
  std::uint64_t committed = 0;
  std::uint64_t frees_done = 0;
  FrameChain frames[kAreas];
  std::vector<const pm::LogLine*> undo;  // undo and alloc entries of committed + 1, in order
  std::vector<PoolOffset> redo_free;
  bool open = false;                      // a transaction was under way
  const pm::LogLine* prepared = nullptr;  // of committed + 1: another pool decides it
  std::vector<PoolOffset> freed_then;     // frees of committed + 1: redone if it is committed
  bool decided = false;                   // it is; nothing is undone
  PoolOffset decisions;                   // its frame
  std::vector<pm::LogLine*> withdrawn;    // decisions of committed + 1 as of a decider: erased

  bool done() const { return !open && !decided && withdrawn.empty() && frees_done == committed; }
};

std::string name_of(const pm::Lane& lane) {
  return "transaction log of lane " + std::to_string(lane.id.value);
}

Status read_header(pm::PoolFile& file, LaneLog& log, Report* report) {
  const TxLine& line = tx_line(*log.lane);
  const LaneId id = log.lane->id;
  log.committed = line.committed.number();
  log.frees_done = line.frees_done.number();
  const bool sound = (line.committed.sound(salt_of(id, WordPlace::committed)) &&
                      line.frees_done.sound(salt_of(id, WordPlace::frees_done))) ||
                     TENUTO_PLANT("tx_header_checksum_not_compared");
  if (sound && log.frees_done <= log.committed + 1) return Status::ok;
  return fail(Status::corrupt, report, "the header of a transaction log is damaged",
              file.where(file.offset_of(&line), name_of(*log.lane)),
              "frees done at most one beyond committed, both checksums right",
              std::to_string(log.committed) + " committed, frees of " +
                  std::to_string(log.frees_done) + " done");
}

// Whether the place is in a zone's own state. The frame allocator has read that state already, and
// it has no owner.
bool in_zone_state(const pm::PoolFile& file, std::uint64_t offset, std::uint64_t bytes) {
  if (!file.in_range({offset}, bytes)) return false;  // a root
  // In a pool under rescue the zone count may be any number.
  const std::size_t zones = std::min<std::size_t>(file.zone_count(), pm::kZonesMax);
  for (std::size_t i = 0; i < zones; ++i) {
    const pm::ZoneEntry& zone = file.zone(i);
    const auto g = frame::ZoneGeometry::of(zone, zone.offset == 0 ? pm::kHeadBytes : 0);
    if (!g) continue;  // Frames::open refused such a pool
    const std::uint64_t end = zone.offset + std::uint64_t{g->own} * kFrameBytes;
    if (offset < end && offset + bytes > zone.offset) return true;
  }
  return false;
}

// Sorts one sealed entry into the log. corrupt: no transaction can have written it.
Status read_entry(pm::PoolFile& file, LaneLog& log, const pm::LogLine& line, Report* report) {
  const EntryHead head{line.word[0]};
  const std::uint64_t sequence = pm::log_sequence(line);
  const auto damaged = [&](const char* what, std::string expected, std::string found) {
    return fail(Status::corrupt, report, what,
                file.where(file.offset_of(&line), name_of(*log.lane)), std::move(expected),
                std::move(found));
  };
  if (sequence > log.committed + 1) {
    return damaged("an entry of a transaction that can not have begun",
                   "at most " + std::to_string(log.committed + 1), std::to_string(sequence));
  }
  if (!head.sound()) return damaged("a log entry of no known kind", {}, std::to_string(head.raw));
  const bool undo = sequence == log.committed + 1;
  const bool redo =
      head.kind() == EntryKind::free && sequence <= log.committed && sequence > log.frees_done;
  if (!undo && !redo) return Status::ok;
  if (head.kind() == EntryKind::prepared) {
    if (!TENUTO_PLANT("tx_prepared_entry_not_seen")) log.prepared = &line;
    log.open = true;
    return Status::ok;
  }
  const std::uint64_t bytes = head.kind() == EntryKind::undo ? head.length() : 1;
  const std::uint64_t at = head.offset().value;
  if (!in_log_reach(file, at, bytes) || in_zone_state(file, at, bytes)) {
    return damaged("a log entry about a place that is no data of this pool", {},
                   std::to_string(at));
  }
  if (redo && !TENUTO_PLANT("tx_frees_not_redone")) log.redo_free.push_back(head.offset());
  if (!undo) return Status::ok;
  log.open = true;
  if (head.kind() == EntryKind::free) {
    log.freed_then.push_back(head.offset());
  } else {
    log.undo.push_back(&line);
  }
  return Status::ok;
}

// REQUIRES: the line is not empty.
Status read_line(pm::PoolFile& file, LaneLog& log, const pm::LogLine& line, std::size_t area,
                 std::size_t i, Report* report) {
  if (pm::log_line_state(line) == pm::LogLineState::sealed) {
    return read_entry(file, log, line, report);
  }
  return fail(Status::corrupt, report, "a line of a transaction log is damaged",
              file.where(file.offset_of(&line), name_of(*log.lane)), "a checksum that fits",
              "line " + std::to_string(i) + " of area " + std::to_string(area));
}

// Finds the decisions of a transaction that did not commit.
Status read_decisions(pm::PoolFile& file, LaneLog& log, Report* report) {
  TENUTO_TRY(find_decisions(file, *log.lane, log.decisions, report));
  if (!log.decisions) return Status::ok;
  for (std::size_t i = 0; i < kLogFrameLines; ++i) {
    pm::LogLine& line = file.at<pm::LogLine>(log.decisions)[1 + i];
    const pm::LogLineState state = pm::log_line_state(line);
    if (state == pm::LogLineState::empty) continue;
    if (state == pm::LogLineState::damaged || pm::log_sequence(line) > log.committed + 1) {
      return fail(Status::corrupt, report, "a decision over several pools is damaged",
                  file.where(file.offset_of(&line), name_of(*log.lane)));
    }
    if (pm::log_sequence(line) <= log.committed) continue;
    log.withdrawn.push_back(&line);
    log.open = true;  // its sequence is used up, as that of any transaction which had begun
  }
  return Status::ok;
}

// The first damage ends the reading. With `notes` each damage is noted there, and the reading goes
// on, except after a damaged header: without it no entry has a meaning.
Status read_lane(pm::PoolFile& file, const pm::Lane& lane, LaneLog& log, Report* report,
                 std::vector<Report>* notes = nullptr) {
  Report local;
  Report* r = notes != nullptr ? &local : report;
  const auto stops = [&](Status s) {
    if (s == Status::ok) return false;
    if (notes != nullptr) notes->push_back(local);
    return notes == nullptr;
  };
  log.lane = &lane;
  if (const Status s = read_header(file, log, r); s != Status::ok) {
    static_cast<void>(stops(s));
    return s;
  }
  if (const Status s = read_decisions(file, log, r); stops(s)) return s;
  for (std::size_t area = 0; area < kAreas; ++area) {
    Status s = read_chain(file, lane, area, log.frames[area], r);
    if (stops(s)) return s;
    const bool frames = !TENUTO_PLANT("tx_overflown_entries_not_undone");
    const std::size_t lines =
        pm::kLaneUndoLines + frames * log.frames[area].size() * kLogFrameLines;
    for (std::size_t i = 0; i < lines; ++i) {
      const pm::LogLine& line = log_line(file, lane, area, log.frames[area], i);
      if (line.seal == 0) continue;  // as most are
      s = read_line(file, log, line, area, i, r);
      if (stops(s)) return s;
    }
  }
  return Status::ok;
}

std::string id_text(std::uint64_t pool_id) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(pool_id));
  return text;
}

const char* why_in_doubt(Verdict verdict) {
  switch (verdict) {
    case Verdict::not_open:
      return "the pool that decides it is not open; open that pool first";
    case Verdict::two_open:
      return "two pools with the id of the one that decides it are open; close the copy";
    case Verdict::not_reached:
      return "the pool that decides it is an older copy; open the right one";
    case Verdict::failed:
      return "the device of the pool that decides it failed; close that pool and open it again";
    case Verdict::aborted:
    case Verdict::committed:
      break;
  }
  return nullptr;
}

// How the prepared transaction of a lane ends. Changes no line. What the pool that decides says
// counts; `in_doubt` only where it says nothing.
Status decide(const pm::PoolFile& file, LaneLog& log, InDoubt in_doubt, Report* report) {
  const TxnName decider = name_in(*log.prepared);
  const TxnName part{file.superblock().pool_id, log.lane->id.value, log.committed + 1};
  Verdict verdict = OpenEngines::ask(decider, part);
  if (const char* const why = why_in_doubt(verdict)) {
    if (in_doubt == InDoubt::ask) {
      return fail(Status::in_doubt, report,
                  "a transaction over several pools was prepared here before a crash, and " +
                      std::string(why),
                  file.where(file.offset_of(log.prepared), name_of(*log.lane)),
                  "pool " + id_text(decider.pool_id));
    }
    verdict = in_doubt == InDoubt::commit ? Verdict::committed : Verdict::aborted;
  }
  if (verdict == Verdict::aborted) return Status::ok;
  log.open = false;
  log.decided = true;
  log.undo.clear();
  if (!TENUTO_PLANT("tx_frees_of_a_decided_part_forgotten"))
    log.redo_free.insert(log.redo_free.end(), log.freed_then.begin(), log.freed_then.end());
  return Status::ok;
}

Status apply(pm::PoolFile& file, heap::Heap& heap, const LaneLog& log, Report* report) {
  for (pm::LogLine* line : log.withdrawn) {
    if (!TENUTO_PLANT("tx_decision_kept_by_recovery")) pm::clear_log_line(*line);
  }
  for (const PoolOffset block : log.redo_free) {
    TENUTO_TRY(heap.recover_free(block, report));
  }
  for (auto line = log.undo.rbegin(); line != log.undo.rend(); ++line) {
    const EntryHead head{(*line)->word[0]};
    if (head.kind() == EntryKind::alloc) {
      if (TENUTO_PLANT("tx_allocation_not_undone")) continue;
      TENUTO_TRY(heap.recover_free(head.offset(), report));
    } else {
      restore_entry(file, **line);
      flush_bytes(file.at<std::byte>(head.offset()), head.length());
    }
  }
  return Status::ok;
}

void retire(const LaneLog& log) {
  TxLine& line = tx_line(*log.lane);
  const LaneId id = log.lane->id;
  const std::uint64_t s = log.open || log.decided ? log.committed + 1 : log.committed;
  if (!TENUTO_PLANT("tx_recovery_keeps_frees_done")) {
    store_ordered(line.frees_done,
                  SealedWord{SealedWord::make(s, salt_of(id, WordPlace::frees_done))});
  }
  publish(line.committed, SealedWord{SealedWord::make(s, salt_of(id, WordPlace::committed))});
}

}  // namespace

Status Engine::recover(Report* report, std::uint64_t* rolled_back, InDoubt in_doubt) {
  const pm::MetadataOpen rights;
  std::vector<LaneLog> logs(lanes_.all().size());
  for (std::size_t i = 0; i < logs.size(); ++i) {
    TENUTO_TRY(read_lane(file_, *lanes_.all()[i], logs[i], report));
  }
  for (LaneLog& log : logs) {
    if (log.prepared != nullptr) TENUTO_TRY(decide(file_, log, in_doubt, report));
  }
  std::uint64_t undone = 0;
  bool all_done = true;
  for (const LaneLog& log : logs) {
    if (log.decisions) TENUTO_TRY(heap_.own_log_frame(log.decisions, report));
    for (const FrameChain& chain : log.frames) {
      for (const PoolOffset frame : chain) TENUTO_TRY(heap_.own_log_frame(frame, report));
    }
    if (TENUTO_PLANT("tx_lane_retired_before_undo") && log.open) retire(log);
    TENUTO_TRY(apply(file_, heap_, log, report));
    undone += log.open;
    all_done = all_done && log.done();
  }
  if (!all_done) {
    fence("undone bytes and bits", "lane retired");
    for (const LaneLog& log : logs) {
      if (!log.done()) retire(log);
    }
    fence("lane retired", "pool used");
  }
  for (LaneLog& log : logs) {
    if (!log.decisions && log.frames[0].empty() && log.frames[1].empty()) continue;
    TENUTO_ASSERT(txns_[log.lane->id.value].load(std::memory_order_relaxed) == nullptr);
    Txn& txn = make(*log.lane);
    for (std::size_t area = 0; area < kAreas; ++area) {
      txn.adopt_frames(area, std::move(log.frames[area]));
    }
    if (log.decisions) txn.adopt_decisions(log.decisions);
  }
  OpenEngines::add(*this);
  if (rolled_back != nullptr) *rolled_back = undone;
  return Status::ok;
}

std::uint64_t undo_what_is_left(pm::PoolFile& file, const std::vector<pm::Lane>& lanes,
                                std::vector<Report>& notes) {
  std::uint64_t undone = 0;
  for (const pm::Lane& lane : lanes) {
    LaneLog log;
    if (read_lane(file, lane, log, nullptr, &notes) != Status::ok) continue;
    for (auto line = log.undo.rbegin(); line != log.undo.rend(); ++line) {
      if (EntryHead{(*line)->word[0]}.kind() == EntryKind::undo) restore_entry(file, **line);
    }
    undone += log.open;
    if (log.prepared == nullptr) continue;
    notes.push_back({"a transaction over several pools was in doubt, and is undone",
                     file.where(file.offset_of(log.prepared), name_of(lane)),
                     {},
                     "pool " + id_text(name_in(*log.prepared).pool_id) + " decides it"});
  }
  return undone;
}

// The lanes' own table may grow meanwhile; the head page only gets more.
const TxLine* Engine::find_line(std::uint64_t lane) const {
  const std::uint64_t segment = lane / pm::kLanesPerSegment;
  if (segment >= pm::kLaneSegmentsMax) return nullptr;
  PoolOffset at{pm::kLanesOffset};
  if (segment != 0) {
    at = {__atomic_load_n(&file_.head().lane_segments[segment], __ATOMIC_ACQUIRE)};
    if (!file_.in_range(at, pm::kLaneSegmentBytes)) return nullptr;
  }
  const std::uint64_t first = at.value + lane % pm::kLanesPerSegment * pm::kLaneBytes;
  return file_.at<TxLine>({first + pm::kLaneTxLine * kLineBytes});
}

bool Engine::ended(const TxnName& mine) const {
  const pm::MetadataOpen rights;
  const TxLine* const line = find_line(mine.lane);
  return line != nullptr &&
         SealedWord{__atomic_load_n(&line->committed.raw, __ATOMIC_ACQUIRE)}.number() >=
             mine.sequence;
}

std::vector<std::uint64_t> Engine::committed_by_lane() const {
  const pm::MetadataOpen rights;
  std::vector<std::uint64_t> committed;
  committed.reserve(lanes_.all().size());
  for (const auto& lane : lanes_.all()) committed.push_back(tx_line(*lane).committed.number());
  return committed;
}

// The line that it looks for is stable: its part has not ended. Others may change meanwhile.
Verdict Engine::verdict(const TxnName& mine, const TxnName& part) const {
  const pm::MetadataOpen rights;
  if (!ended(mine)) return Verdict::not_reached;
  const SealedWord link{__atomic_load_n(&find_line(mine.lane)->decisions.raw, __ATOMIC_ACQUIRE)};
  const PoolOffset frame{link.number()};
  if (!frame || !file_.in_range(frame, kLogFrameBytes)) return Verdict::aborted;
  for (std::size_t i = 1; i <= kLogFrameLines; ++i) {
    const pm::LogLine& shared = file_.at<pm::LogLine>(frame)[i];
    pm::LogLine line;
    line.seal = __atomic_load_n(&shared.seal, __ATOMIC_ACQUIRE);
    if (pm::log_sequence(line) != mine.sequence) continue;
    for (std::size_t w = 0; w < std::size(line.word); ++w) {
      line.word[w] = __atomic_load_n(&shared.word[w], __ATOMIC_RELAXED);
    }
    if (pm::log_line_state(line) == pm::LogLineState::sealed && name_in(line) == part) {
      return Verdict::committed;
    }
  }
  return Verdict::aborted;
}

Status Engine::validate(Report* report) const {
  const pm::MetadataOpen rights;
  for (const auto& lane : lanes_.all()) {
    LaneLog log;
    TENUTO_TRY(read_lane(file_, *lane, log, report));
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::tx
