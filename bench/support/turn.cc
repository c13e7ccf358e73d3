// One turn of a store in child processes; see turn.h.
#include "bench/support/turn.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "bench/support/clock.h"
#include "bench/support/process.h"

namespace bench {
namespace {

int fail_turn(TurnResult& r, const char* what, const std::string& why) {
  std::snprintf(r.error, sizeof r.error, "%s: %s", what, why.c_str());
  return 1;
}

// The engine `null` answers anything, without end.
bool holds_data(const EngineKind& kind) { return std::strcmp(kind.name, "null") != 0; }

// Opens and reads one record that is there; the time of both is what a user waits.
bool timed_open(Engine& engine, const EngineOptions& options, std::string_view key, double& ms) {
  const std::uint64_t start = ticks();
  if (!engine.open(options)) return false;
  const std::unique_ptr<Session> session = engine.session();
  std::string_view value;
  if (session->read(key, value)) session->release();
  ms = milliseconds_since(start);
  return true;
}

std::string first_key(const Records& records) {
  std::string key(records.key_bytes_max(), '\0');
  key.resize(records.make_key(0, key.data()));
  return key;
}

void run_phase(Engine& engine, const EngineKind& kind, const Course& course, const Phase& phase,
               Expected& expected, const EngineOptions& options, std::uint64_t own_bytes,
               PhaseResult& result) {
  const bool trusting = !holds_data(kind);
  const EngineCounters before = engine.counters();
  const std::uint64_t written = write_call_bytes();
  drive(engine, *course.records, phase, trusting, result);
  const std::uint64_t written_after = write_call_bytes();
  result.counted = difference(engine.counters(), before);
  if (kind.file_writes_are_all) {
    result.write_call_bytes = static_cast<double>(written_after - written);
  }
  const std::uint64_t now = anonymous_bytes();
  result.anonymous_bytes = now > own_bytes ? static_cast<double>(now - own_bytes) : 0;
  result.file_bytes = static_cast<double>(directory_size(options.dir).allocated);
  expected.apply(phase);
  if (!trusting && phase.workload != Workload::c) {
    sweep(engine, *course.records, expected, result);
  }
}

int whole_turn(const EngineKind& kind, const EngineOptions& options, const Course& course,
               TurnResult& out) {
  const std::unique_ptr<Engine> engine = kind.make();
  Expected expected(course.threads);
  const std::uint64_t own_bytes = anonymous_bytes();
  if (!engine->open(options)) return fail_turn(out, "open", engine->error());
  std::snprintf(out.medium, sizeof out.medium, "%s", engine->medium().c_str());
  for (std::size_t i = 0; i < course.phases.size() && i < kPhasesMax; ++i) {
    run_phase(*engine, kind, course, course.phases[i], expected, options, own_bytes, out.phases[i]);
  }
  const std::uint64_t closing = ticks();
  if (!engine->close()) return fail_turn(out, "close", engine->error());
  out.close_ms = milliseconds_since(closing);
  const std::unique_ptr<Engine> again = kind.make();
  if (!timed_open(*again, options, first_key(*course.records), out.open_ms)) {
    return fail_turn(out, "open after a clean close", again->error());
  }
  if (!again->close()) return fail_turn(out, "second close", again->error());
  out.finished = true;
  return 0;
}

// The victim: runs until it is killed and says in `cue` what was acknowledged.
int run_until_killed(const EngineKind& kind, const EngineOptions& options, const Course& course,
                     TurnResult& out, Cue& cue) {
  const std::unique_ptr<Engine> engine = kind.make();
  if (!engine->open(options)) return fail_turn(out, "open", engine->error());
  std::snprintf(out.medium, sizeof out.medium, "%s", engine->medium().c_str());
  for (std::size_t i = 0; i + 1 < course.phases.size(); ++i) {
    drive(*engine, *course.records, course.phases[i], !holds_data(kind), out.phases[i]);
  }
  cue.ready.store(true, std::memory_order_release);
  drive(*engine, *course.records, course.phases.back(), !holds_data(kind),
        out.phases[course.phases.size() - 1], &cue.acknowledged);
  while (true) ::pause();  // faster than the kill: everything is acknowledged
}

int open_after_kill(const EngineKind& kind, const EngineOptions& options, const Course& course,
                    std::uint64_t done, TurnResult& out) {
  const std::unique_ptr<Engine> engine = kind.make();
  if (!timed_open(*engine, options, first_key(*course.records), out.open_killed_ms)) {
    return fail_turn(out, "open after SIGKILL", engine->error());
  }
  Expected expected(course.threads);
  for (std::size_t i = 0; i + 1 < course.phases.size(); ++i) expected.apply(course.phases[i]);
  expected.apply_prefix(course.phases.back(), done);
  PhaseResult& last = out.phases[course.phases.size() - 1];
  if (holds_data(kind)) sweep(*engine, *course.records, expected, last);
  last.ops = done;
  last.ran = true;
  last.file_bytes = static_cast<double>(directory_size(options.dir).allocated);
  if (!engine->validate()) return fail_turn(out, "validate after SIGKILL", engine->error());
  const std::uint64_t closing = ticks();
  if (!engine->close()) return fail_turn(out, "close", engine->error());
  out.close_ms = milliseconds_since(closing);
  const std::unique_ptr<Engine> again = kind.make();
  if (!timed_open(*again, options, first_key(*course.records), out.open_ms) || !again->close()) {
    return fail_turn(out, "open after a clean close", again->error());
  }
  out.finished = true;
  return 0;
}

}  // namespace

void take_turn(const EngineKind& kind, const EngineOptions& options, const Course& course,
               unsigned seconds_max, SharedTurn& shared) {
  shared.reset();
  TurnResult& result = shared->result;
  const Cue& cue = shared->cue;
  ns_per_tick();  // calibrated here once, not in every child
  std::string why;
  pid_t child = -1;
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
    runs = runs && child_runs_for(victim, course.kill_after_ms);
    if (runs) ::kill(victim, SIGKILL);
    wait_child(victim, seconds_max, why);
    if (!runs) {
      fail_turn(result, "before the SIGKILL", why);
      return;
    }
    const std::uint64_t done = cue.acknowledged.load(std::memory_order_acquire);
    child = start_child([&] { return open_after_kill(kind, options, course, done, result); });
  }
  if (child < 0) {
    fail_turn(result, "fork", std::strerror(errno));
  } else if (!wait_child(child, seconds_max, why) && result.error[0] == '\0') {
    fail_turn(result, "the turn", why);
  }
}

}  // namespace bench
