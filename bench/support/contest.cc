// Runs the rounds of a contest and collects its figures; see contest.h.
#include "bench/support/contest.h"

#include <algorithm>

#include "bench/support/clock.h"

namespace bench {
namespace {

void add_per_op(std::vector<double>& to, double sum, double ops) {
  if (sum >= 0 && ops > 0) to.push_back(sum / ops);
}

void add_time(std::vector<double>& to, double ms) {
  if (ms >= 0) to.push_back(ms);
}

std::uint64_t writes_of(const PhaseResult& p) {
  std::uint64_t writes = 0;
  for (const OpKind kind : {OpKind::update, OpKind::insert, OpKind::rmw, OpKind::erase}) {
    writes += p.by_kind[static_cast<std::size_t>(kind)].total();
  }
  return writes;
}

void gather_io(const PhaseResult& p, CaseFigures& f) {
  add_per_op(f.cpu_us_per_op, p.io.cpu_seconds * 1e6, static_cast<double>(p.ops));
  const auto ops = static_cast<double>(p.ops);
  add_per_op(f.instructions_per_op, p.hardware.instructions, ops);
  add_per_op(f.cycles_per_op, p.hardware.cycles, ops);
  add_per_op(f.cache_misses_per_op, p.hardware.cache_misses, ops);
  add_per_op(f.tlb_misses_per_op, p.hardware.tlb_misses, ops);
  const auto writes = static_cast<double>(writes_of(p));
  add_per_op(f.sync_calls_per_write, p.io.sync_calls, writes);
  add_per_op(f.device_flushes_per_write, p.io.device_flushes, writes);
  add_per_op(f.storage_bytes_per_write, p.io.storage_bytes, writes);
  add_per_op(f.device_bytes_per_write, p.io.device_bytes, writes);
  add_per_op(f.commits_per_write, p.journal.commits, writes);
  add_per_op(f.journal_lines_per_write, p.journal.lines, writes);
  add_per_op(f.journal_payload_per_write, p.journal.payload_bytes, writes);
  add_per_op(f.journal_written_per_write, p.journal.written_bytes, writes);
  add_per_op(f.checkpoint_bytes_per_write, p.journal.checkpoint_bytes, writes);
}

void gather(const TurnResult& turn, const Course& course, std::size_t contestant,
            ContestFigures& into) {
  for (std::size_t i = course.prepare; i < course.phases.size(); ++i) {
    const PhaseResult& p = turn.phases[i];
    const bool cut_short = course.kill && i + 1 == course.phases.size();
    if (!p.ran) continue;
    CaseFigures& f = into.figures[{contestant, course.phases[i].workload}];
    const auto ops = static_cast<double>(p.ops);
    f.ops = p.ops;
    f.medium = turn.medium;
    f.note = turn.note;
    f.file_bytes.push_back(p.file_bytes);
    if (i + 1 == course.phases.size()) {
      add_time(f.open_killed_ms, turn.open_killed.ms);
      add_time(f.first_get_killed_ms, turn.open_killed.first_get_ms);
      add_time(f.first_write_killed_ms, turn.open_killed.first_write_ms);
      add_time(f.open_ms, turn.open.ms);
      add_time(f.first_get_ms, turn.open.first_get_ms);
      add_time(f.first_write_ms, turn.open.first_write_ms);
      add_time(f.close_ms, turn.close_ms);
      add_time(f.lost_ms, turn.lost_ms);
      add_time(f.lost_ops, turn.lost_ops);
    }
    if (cut_short) continue;
    f.ops_per_second.push_back(ops / p.seconds);
    add_per_op(f.scanned_per_op, p.scanned > 0 ? static_cast<double>(p.scanned) : -1, ops);
    add_per_op(f.lines_per_op, p.counted.lines_flushed, ops);
    add_per_op(f.fences_per_op, p.counted.fences, ops);
    add_per_op(f.reflushes_per_op, p.counted.reflushes, ops);
    const bool counted = p.counted.lines_flushed >= 0;
    add_per_op(f.bytes_written_per_op, counted ? 64 * p.counted.lines_flushed : p.write_call_bytes,
               ops);
    gather_io(p, f);
    f.memory_bytes.push_back(p.anonymous_bytes);
    for (std::size_t k = 0; k < kOpKinds; ++k) {
      f.by_kind[k].merge(p.by_kind[k]);
      f.all.merge(p.by_kind[k]);
    }
  }
}

// Any failure makes a run worthless, so each is listed. A wrong answer counts like a crash.
void gather_failures(const TurnResult& turn, const Course& course, const std::string& label,
                     unsigned round, ContestFigures& into) {
  const std::string round_text = ", round " + std::to_string(round + 1) + ": ";
  for (std::size_t i = 0; i < course.phases.size(); ++i) {
    const PhaseResult& p = turn.phases[i];
    if (p.failures == 0) continue;
    into.failures.push_back(label + ", " + workload_name(course.phases[i].workload) + round_text +
                            std::to_string(p.failures) + " wrong, first: " + p.first_failure);
  }
  if (!turn.finished) {
    into.failures.push_back(label + round_text + "turn not finished: " + turn.error);
  }
}

void add_new_cases(const Course& course, ContestFigures& into) {
  for (std::size_t i = course.prepare; i < course.phases.size(); ++i) {
    const Workload w = course.phases[i].workload;
    if (std::find(into.cases.begin(), into.cases.end(), w) == into.cases.end()) {
      into.cases.push_back(w);
    }
  }
}

}  // namespace

const CaseFigures* ContestFigures::find(std::size_t contestant, Workload workload) const {
  const auto at = figures.find({contestant, workload});
  return at == figures.end() ? nullptr : &at->second;
}

std::optional<Spread> ContestFigures::ratio_to(std::size_t other, Workload workload) const {
  const CaseFigures* mine = find(0, workload);
  const CaseFigures* theirs = find(other, workload);
  if (mine == nullptr || theirs == nullptr || other == 0) return std::nullopt;
  return ratio_of(mine->ops_per_second, theirs->ops_per_second);
}

void play(const std::vector<Contestant>& contestants, const Course& course,
          const ContestOptions& options, Scratch& scratch, ContestFigures& into) {
  into.contestants = contestants;
  add_new_cases(course, into);
  SharedTurn turn;
  const std::uint64_t begun = ticks();
  for (unsigned round = 0; round < options.rounds && !interrupted(); ++round) {
    const double spent = seconds_of(ticks() - begun);
    const bool late = options.seconds_max > 0 && spent + spent / round > options.seconds_max;
    if (round > 0 && late) return;
    for (std::size_t i = 0; i < contestants.size() && !interrupted(); ++i) {
      if (contestants[i].kind->is_volatile && (course.kill || options.engine.sync)) continue;
      EngineOptions engine = options.engine;
      engine.dir = scratch.path();
      engine.medium = contestants[i].medium;
      engine.journal_writes = contestants[i].journal_writes;
      take_turn(*contestants[i].kind, engine, course, options.turn_seconds_max, turn);
      scratch.clear();
      if (interrupted()) return;
      gather(turn->result, course, i, into);
      gather_failures(turn->result, course, contestants[i].label, round, into);
      if (!options.progress) continue;
      for (std::size_t p = course.prepare; p < course.phases.size(); ++p) {
        const PhaseResult& done = turn->result.phases[p];
        if (!done.ran) continue;
        options.progress(contestants[i], round, course.phases[p].workload,
                         done.seconds > 0 ? static_cast<double>(done.ops) / done.seconds : 0);
      }
    }
  }
}

}  // namespace bench
