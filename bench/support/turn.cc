// One turn of a store in child processes; see turn.h.
#include "bench/support/turn.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "bench/support/clock.h"
#include "bench/support/process.h"
#include "tenuto/pool_options.h"

namespace bench {
namespace {

// A buffered journal promises the default sync_every_ms, counted from commit to commit. On a busy
// machine its thread may wait for a processor, which does not break the promise.
constexpr double kLossMsMax = 500;

int fail_turn(TurnResult& r, const char* what, const std::string& why) {
  std::snprintf(r.error, sizeof r.error, "%s: %s", what, why.c_str());
  return 1;
}

// A buffered medium `journal` may lose the most recent writes, never one from the middle.
bool may_lose_last_writes(const TurnResult& r, const EngineOptions& options) {
  return std::strcmp(r.medium, tenuto::medium_name(tenuto::Medium::journal)) == 0 && !options.sync;
}

std::string first_key(const Records& records) {
  std::string key(records.key_bytes_max(), '\0');
  key.resize(records.make_key(0, key.data()));
  return key;
}

// Opens the engine and reads one existing record. A user waits for both, so both are timed. Then it
// writes a record whose key no other has, and erases it: what an open leaves to the first write
// shows there.
bool timed_open(Engine& engine, const EngineKind& kind, const EngineOptions& options,
                const Records& records, OpenTime& to) {
  const std::string key = first_key(records);
  const std::string other(records.key_bytes_max(), '\xff');
  const std::string small(8, 'w');
  const std::uint64_t start = ticks();
  if (!engine.open(options)) return false;
  const std::uint64_t opened = ticks();
  const std::unique_ptr<Session> session = engine.session();
  std::string_view value;
  if (session->read(key, value)) session->release();
  to.first_get_ms = milliseconds_since(opened);
  to.ms = milliseconds_since(start);
  if (!kind.writes_after_reopen) return true;
  const std::uint64_t got = ticks();
  if (!session->write(other, small)) return false;
  to.first_write_ms = milliseconds_since(got);
  return session->erase(other);
}

void run_phase(Engine& engine, const EngineKind& kind, const Course& course, const Phase& phase,
               const EngineOptions& options, std::uint64_t own_bytes, PhaseResult& result) {
  const EngineCounters before = engine.counters();
  const JournalCounters journal_before = engine.journal_counters();
  const IoMeter meter(options.dir);
  const HardwareMeter hardware;
  const std::uint64_t written = write_call_bytes();
  drive(engine, *course.records, phase, !kind.holds_data, result);
  const std::uint64_t written_after = write_call_bytes();
  result.hardware = hardware.since_start();
  result.io = meter.since_start();
  result.counted = difference(engine.counters(), before);
  result.journal = difference(engine.journal_counters(), journal_before);
  if (kind.file_writes_are_all) {
    result.write_call_bytes = static_cast<double>(written_after - written);
  }
  const std::uint64_t now = anonymous_bytes();
  result.anonymous_bytes = now > own_bytes ? static_cast<double>(now - own_bytes) : 0;
  result.file_bytes = static_cast<double>(directory_size(options.dir).allocated);
}

// Closes the store and opens it again: mappings, caches and indexes are as after any open.
bool reopen(const EngineKind& kind, const EngineOptions& options, std::unique_ptr<Engine>& engine) {
  if (!engine->close()) return false;
  engine = kind.make();
  return engine->open(options);
}

// No phase begins after a sweep, since a sweep makes later scans faster: only e_warm shall have it.
int whole_turn(const EngineKind& kind, const EngineOptions& options, const Course& course,
               TurnResult& out) {
  std::unique_ptr<Engine> engine = kind.make();
  Expected expected(course.threads);
  const std::uint64_t own_bytes = anonymous_bytes();
  if (!engine->open(options)) return fail_turn(out, "open", engine->error());
  std::snprintf(out.medium, sizeof out.medium, "%s", engine->medium().c_str());
  PhaseResult* last = nullptr;
  const auto sweep_all = [&] {
    if (last != nullptr && kind.holds_data) sweep(*engine, *course.records, expected, *last);
  };
  for (std::size_t i = 0; i < course.phases.size() && i < kPhasesMax; ++i) {
    const Phase& phase = course.phases[i];
    const bool reopens = phase.workload == Workload::e_cold && !kind.is_volatile;
    if (reopens && !reopen(kind, options, engine)) {
      return fail_turn(out, "reopen", engine->error());
    }
    if (phase.workload == Workload::e_warm) sweep_all();
    last = &out.phases[i];
    run_phase(*engine, kind, course, phase, options, own_bytes, *last);
    expected.apply(phase);
    if (options.compacted && phase.workload == Workload::load && !engine->compact()) {
      return fail_turn(out, "compact", engine->error());
    }
  }
  sweep_all();
  std::snprintf(out.note, sizeof out.note, "%s", engine->note().c_str());
  const std::uint64_t closing = ticks();
  if (!engine->close()) return fail_turn(out, "close", engine->error());
  out.finished = kind.is_volatile;
  if (kind.is_volatile) return 0;
  out.close_ms = milliseconds_since(closing);
  const std::unique_ptr<Engine> again = kind.make();
  if (!timed_open(*again, kind, options, *course.records, out.open)) {
    return fail_turn(out, "open after a clean close", again->error());
  }
  if (!again->close()) return fail_turn(out, "second close", again->error());
  out.finished = true;
  return 0;
}

// The process to be killed. It reports in `cue` how many operations are acknowledged.
int run_until_killed(const EngineKind& kind, const EngineOptions& options, const Course& course,
                     TurnResult& out, Cue& cue) {
  const std::unique_ptr<Engine> engine = kind.make();
  if (!engine->open(options)) return fail_turn(out, "open", engine->error());
  std::snprintf(out.medium, sizeof out.medium, "%s", engine->medium().c_str());
  for (std::size_t i = 0; i + 1 < course.phases.size(); ++i) {
    drive(*engine, *course.records, course.phases[i], !kind.holds_data, out.phases[i]);
  }
  cue.ready.store(true, std::memory_order_release);
  drive(*engine, *course.records, course.phases.back(), !kind.holds_data,
        out.phases[course.phases.size() - 1], &cue.acknowledged);
  while (true) ::pause();  // finished before the kill: everything is acknowledged
}

std::int64_t writes_until(const Phase& phase, std::uint32_t latest) {
  const std::vector<Op>& ops = phase.streams.front().ops;
  return std::count_if(ops.begin(), ops.end(), [&](const Op& op) { return op.version <= latest; });
}

int open_after_kill(const EngineKind& kind, const EngineOptions& options, const Course& course,
                    std::uint64_t done, TurnResult& out) {
  const std::unique_ptr<Engine> engine = kind.make();
  if (!timed_open(*engine, kind, options, *course.records, out.open_killed)) {
    return fail_turn(out, "open after SIGKILL", engine->error());
  }
  Expected expected(course.threads);
  if (may_lose_last_writes(out, options)) {
    // The latest version found marks the end of the prefix; the sweep checks that it is a prefix.
    const std::uint32_t latest = latest_version(*engine, *course.records);
    for (const Phase& phase : course.phases) expected.apply_until(phase, latest);
    out.kept = writes_until(course.phases.back(), latest);
  } else {
    for (std::size_t i = 0; i + 1 < course.phases.size(); ++i) expected.apply(course.phases[i]);
    expected.apply_prefix(course.phases.back(), done);
  }
  PhaseResult& last = out.phases[course.phases.size() - 1];
  if (kind.holds_data) sweep(*engine, *course.records, expected, last);
  last.ops = done;
  last.ran = true;
  last.file_bytes = static_cast<double>(directory_size(options.dir).allocated);
  if (!engine->validate()) return fail_turn(out, "validate after SIGKILL", engine->error());
  const std::uint64_t closing = ticks();
  if (!engine->close()) return fail_turn(out, "close", engine->error());
  out.close_ms = milliseconds_since(closing);
  const std::unique_ptr<Engine> again = kind.make();
  if (!timed_open(*again, kind, options, *course.records, out.open) || !again->close()) {
    return fail_turn(out, "open after a clean close", again->error());
  }
  out.finished = true;
  return 0;
}

// Samples the progress of a process until it kills it.
class Watch {
 public:
  // Returns false if the process ended by itself.
  bool run_and_kill(pid_t victim, const Cue& cue, unsigned milliseconds) {
    const auto look = [&] {
      seen_.push_back({ticks(), cue.acknowledged.load(std::memory_order_acquire)});
    };
    const std::uint64_t start = ticks();
    do {
      look();
      if (!child_runs_for(victim, 1)) return false;
    } while (milliseconds_since(start) < milliseconds);
    ::kill(victim, SIGKILL);
    killed_ = ticks();
    return true;
  }
  // The age of the first lost write at the kill, when `kept` operations of the last phase were
  // found. It counts from the last sample in which that write was not acknowledged. If writes of
  // earlier phases are lost too, this is a lower bound.
  double lost_ms(std::uint64_t kept) const {
    std::uint64_t since = seen_.front().at;
    for (const Look& l : seen_) {
      if (l.acknowledged <= kept) since = l.at;
    }
    return seconds_of(killed_ - since) * 1e3;
  }

 private:
  struct Look {
    std::uint64_t at;
    std::uint64_t acknowledged;
  };
  std::vector<Look> seen_;
  std::uint64_t killed_ = 0;
};

// Records how much a buffered journal lost, and fails the turn if that exceeds its promise.
void judge_loss(const Watch& watch, std::uint64_t done, TurnResult& r) {
  if (r.kept < 0 || !r.finished) return;
  const auto kept = static_cast<std::uint64_t>(r.kept);
  r.lost_ops = done > kept ? static_cast<double>(done - kept) : 0;
  r.lost_ms = done > kept ? watch.lost_ms(kept) : 0;
  if (r.lost_ms <= kLossMsMax) return;
  r.finished = false;
  fail_turn(r, "after SIGKILL",
            "the last " + std::to_string(static_cast<long>(r.lost_ms)) + " ms of writes are lost");
}

}  // namespace

void take_turn(const EngineKind& kind, const EngineOptions& options, const Course& course,
               unsigned seconds_max, SharedTurn& shared) {
  shared.reset();
  TurnResult& result = shared->result;
  const Cue& cue = shared->cue;
  ns_per_tick();  // calibrates once here instead of in every child
  std::string why;
  pid_t child = -1;
  Watch watch;
  std::uint64_t done = 0;
  if (!course.kill) {
    child = start_child([&] { return whole_turn(kind, options, course, result); });
  } else {
    const pid_t victim =
        start_child([&] { return run_until_killed(kind, options, course, result, shared->cue); });
    const auto ready = [&] { return cue.ready.load(std::memory_order_acquire); };
    bool runs = victim > 0;
    for (unsigned waited = 0; runs && !ready() && waited < seconds_max * 1000; waited += 5) {
      runs = child_runs_for(victim, 5);
    }
    runs = runs && watch.run_and_kill(victim, cue, course.kill_after_ms);
    wait_child(victim, seconds_max, why);
    if (!runs) {
      fail_turn(result, "before the SIGKILL", why);
      return;
    }
    done = cue.acknowledged.load(std::memory_order_acquire);
    child = start_child([&] { return open_after_kill(kind, options, course, done, result); });
  }
  if (child < 0) {
    fail_turn(result, "fork", std::strerror(errno));
  } else if (!wait_child(child, seconds_max, why) && result.error[0] == '\0') {
    fail_turn(result, "the turn", why);
  }
  if (course.kill) judge_loss(watch, done, result);
}

}  // namespace bench
