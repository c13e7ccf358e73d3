// The parent of the kill test and the check after each kill; see kill_trial.h.
#include "bench/main_job/kill_trial.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "bench/main_job/kill_writer.h"
#include "bench/support/clock.h"
#include "bench/support/process.h"
#include "bench/support/turn.h"
#include "bench/support/workload.h"
#include "tenuto/kv.h"

namespace bench {
namespace {

using tenuto::Status;
using tenuto::Store;

constexpr unsigned kChildSecondsMax = 120;
constexpr unsigned kKillsPerRecoveryKill = 3;
constexpr unsigned kKillsPerOpeningKill = 5;
constexpr double kEarlyKillMsMax = 150;
constexpr unsigned kRunMsMin = 5;  // a writer's shortest life

void set_problem(KillOutcome& out, const char* what, const std::string& why) {
  std::snprintf(out.problem, sizeof out.problem, "%s: %s", what, why.c_str());
}

double milliseconds_since(std::uint64_t start) { return seconds_of(ticks() - start) * 1e3; }

// Everything shared with the children, in one mapping.
class Shared {
 public:
  explicit Shared(std::uint64_t records)
      : bytes_(sizeof(AckChannel) + sizeof(KillOutcome) + records * sizeof(std::uint32_t)) {
    void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return;
    channel_ = new (at) AckChannel;
    check_ = new (static_cast<void*>(channel_ + 1)) KillOutcome;
    known_ = {reinterpret_cast<std::uint32_t*>(check_ + 1), records};
  }
  ~Shared() {
    if (channel_ != nullptr) ::munmap(static_cast<void*>(channel_), bytes_);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  bool mapped() const { return channel_ != nullptr; }
  AckChannel& channel() { return *channel_; }
  KillOutcome& check() { return *check_; }
  KnownVersions known() const { return known_; }

 private:
  std::size_t bytes_;
  AckChannel* channel_ = nullptr;
  KillOutcome* check_ = nullptr;
  KnownVersions known_;
};

// The required and the allowed contents of the store, from the side file alone.
struct Truth {
  std::vector<std::uint32_t> last;     // acknowledged or settled version, 0: none
  std::vector<std::uint32_t> pending;  // in flight at the last kill, 0: none
};

bool read_truth(const std::string& path, std::uint64_t records, Truth& truth) {
  std::vector<AckLine> lines;
  if (!read_lines(path, lines)) return false;
  truth.last.assign(records, 0);
  truth.pending.assign(records, 0);
  for (const AckLine& line : lines) {
    if (line.entry.record >= records) return false;
    truth.pending[line.entry.record] = line.kind == AckKind::in_flight ? line.entry.version : 0;
    if (line.kind != AckKind::in_flight) truth.last[line.entry.record] = line.entry.version;
  }
  return true;
}

void compare(const Store& store, const PackageRecords& records, const Truth& truth,
             KillOutcome& out, std::vector<AckLine>& settled) {
  std::vector<bool> seen(truth.last.size());
  tenuto::Iterator at = store.iterator();
  for (at.seek_first(); at.valid(); at.next()) {
    ++out.records_there;
    const std::optional<std::uint64_t> record = records.record_of(at.key());
    std::uint32_t version = 0;
    if (!record || *record >= seen.size() || seen[*record]) {
      ++out.foreign;
      continue;
    }
    seen[*record] = true;
    const std::uint32_t last = truth.last[*record];
    const std::uint32_t pending = truth.pending[*record];
    if (!records.check_value(at.key(), at.value(), version)) {
      ++out.torn;
    } else if (version == pending && pending != last) {
      ++out.kept_in_flight;
      settled.push_back(
          {AckKind::settled, out.number, {static_cast<std::uint32_t>(*record), version}});
    } else if (version != last) {
      ++(last == 0 || sequence_of(version) > sequence_of(last) ? out.foreign : out.lost);
    } else if (pending != 0) {
      settled.push_back(
          {AckKind::settled, out.number, {static_cast<std::uint32_t>(*record), version}});
    }
  }
  if (at.status() != Status::ok) ++out.torn;
  for (std::size_t r = 0; r < seen.size(); ++r) {
    if (!seen[r] && truth.last[r] != 0) ++out.lost;
  }
}

// Runs in its own process: a recovery that crashes or hangs is a finding and does not end the test.
int check_store(const PackageRecords& records, const KillOptions& options,
                const std::string& side_file, Shared& shared) {
  KillOutcome& out = shared.check();
  const auto problem = [&](const char* what, const std::string& why) {
    set_problem(out, what, why);
    return 1;
  };
  tenuto::Report report;
  const std::uint64_t opening = ticks();
  tenuto::Result<Store> store = Store::open(store_path(options), {}, &report);
  out.open_ms = milliseconds_since(opening);
  if (!store) return problem(tenuto::status_name(store.error()), report.text());
  const tenuto::PoolInfo info = store->pool().info();
  out.recovery_ms = info.recovery_ms;
  out.rebuild_ms = store->stats().rebuild_ms;
  out.leaked_frames = info.leaked_frames;
  out.rolled_back = info.rolled_back;

  Truth truth;
  if (!read_truth(side_file, options.records, truth)) return problem("side file", "unreadable");
  std::vector<AckLine> settled;
  compare(*store, records, truth, out, settled);
  for (const AckLine& line : settled) {
    shared.known().version[line.entry.record] = line.entry.version;
  }
  const std::uint64_t validating = ticks();
  const Status s = store->validate(&report);
  out.validate_ms = milliseconds_since(validating);
  if (s != Status::ok) return problem("validate", report.text());
  if (store->close() != Status::ok) return problem("close", "failed");
  if (!append_lines(side_file, settled)) return problem("side file", "cannot be written");
  return out.lost + out.torn + out.foreign == 0
             ? 0
             : problem("check", "acknowledged data is not there");
}

class Trial {
 public:
  Trial(const PackageRecords& records, const KillOptions& options)
      : records_(records),
        options_(options),
        side_file_(options.dir + "/acknowledged.log"),
        shared_(options.records),
        rng_(options.seed) {}

  KillReport run(const std::function<void(const KillOutcome&)>& tell) {
    if (!shared_.mapped() || !append_lines(side_file_, {})) {
      report_.error = std::strerror(errno);
      return std::move(report_);
    }
    for (unsigned kill = 1; kill <= options_.kills && !interrupted(); ++kill) {
      KillOutcome out;
      out.number = kill;
      if (!write_and_kill(out) || !check(out)) {
        if (out.sound()) break;
      }
      report_.acknowledged += out.acknowledged;
      tell(out);
      report_.kills.push_back(out);
      if (!out.sound()) break;
    }
    report_.file_bytes = directory_size(options_.dir).allocated;
    return std::move(report_);
  }

 private:
  // A random run time for the writer. The first two are short, so that kills also hit the load.
  unsigned life_ms(unsigned kill) {
    const double mean = options_.seconds * 1000 / options_.kills;
    const double most = kill <= 2 ? kEarlyKillMsMax : mean * 2;
    return kRunMsMin + static_cast<unsigned>(rng_.below(static_cast<std::uint64_t>(most) + 1));
  }

  // The run time counts from the open of the store. Every fifth one counts from the start of the
  // process, so that kills also hit creation and open. Returns false if the writer ended by itself.
  bool outlives_its_opening(pid_t writer, unsigned kill) {
    if (kill % kKillsPerOpeningKill == 2) return true;
    for (unsigned waited = 0; waited < kChildSecondsMax * 1000; ++waited) {
      if (shared_.channel().writer_open.load(std::memory_order_acquire)) return true;
      if (!child_runs_for(writer, 1)) return false;
    }
    return true;
  }

  std::uint64_t total(std::uint64_t AckRing::*counter) {
    std::uint64_t sum = 0;
    for (unsigned t = 0; t < options_.threads; ++t) sum += shared_.channel().rings[t].*counter;
    return sum;
  }
  std::uint64_t acknowledged() {
    std::uint64_t sum = 0;
    for (unsigned t = 0; t < options_.threads; ++t) {
      sum += shared_.channel().rings[t].acknowledged.load(std::memory_order_acquire);
    }
    return sum;
  }

  bool write_and_kill(KillOutcome& out) {
    AckChannel& channel = shared_.channel();
    channel.writer_open.store(false, std::memory_order_relaxed);
    channel.writer_gone.store(false, std::memory_order_release);
    channel.writers_loading.store(options_.threads, std::memory_order_relaxed);
    const std::uint64_t acknowledged_before = acknowledged();
    const std::uint64_t reads_before = total(&AckRing::reads);
    const std::uint64_t start = ticks();
    const pid_t carrier = start_child([&] {
      return carry_acknowledgements(channel, options_.threads, out.number, side_file_) ? 0 : 1;
    });
    const pid_t writer = start_child(
        [&] { return run_writer(records_, options_, out.number, channel, shared_.known()); });
    if (carrier < 0 || writer < 0) return stop("fork", std::strerror(errno));
    const bool ran =
        outlives_its_opening(writer, out.number) && child_runs_for(writer, life_ms(out.number));
    ::kill(writer, SIGKILL);
    std::string how;
    wait_child(writer, kChildSecondsMax, how);
    out.ran_seconds = seconds_of(ticks() - start);
    channel.writer_gone.store(true, std::memory_order_release);
    std::string why;
    if (!wait_child(carrier, kChildSecondsMax, why)) return stop("acknowledgements", why);
    if (interrupted()) return stop("stopped", "interrupted");
    out.acknowledged = acknowledged() - acknowledged_before;
    out.reads = total(&AckRing::reads) - reads_before;
    out.in_load = channel.writers_loading.load(std::memory_order_relaxed) > 0;
    if (!ran) {
      set_problem(out, "the writer stopped by itself",
                  channel.error[0] != '\0' ? channel.error : how);
      return false;
    }
    return true;
  }

  // Kills an open somewhere in its recovery, after every third kill.
  void kill_inside_recovery(KillOutcome& out) {
    if (out.number % kKillsPerRecoveryKill != 0) return;
    const double longest = std::max(2.0, 1.5 * last_open_ms_);
    const auto wait_us = rng_.below(static_cast<std::uint64_t>(longest * 1000));
    const pid_t opener = start_child([&] {
      const tenuto::Result<Store> store = Store::open(store_path(options_));
      ::raise(SIGKILL);  // the open finished before the kill
      return store ? 0 : 1;
    });
    if (opener < 0) return;
    ::usleep(static_cast<useconds_t>(wait_us));
    ::kill(opener, SIGKILL);
    std::string why;
    wait_child(opener, kChildSecondsMax, why);
    ++out.killed_openings;
  }

  bool check(KillOutcome& out) {
    kill_inside_recovery(out);
    shared_.check() = out;
    const pid_t checker =
        start_child([&] { return check_store(records_, options_, side_file_, shared_); });
    std::string why;
    const bool sound = checker > 0 && wait_child(checker, kChildSecondsMax, why);
    out = shared_.check();
    last_open_ms_ = out.open_ms;
    if (interrupted()) return stop("stopped", "interrupted");
    if (!sound && out.sound()) set_problem(out, "the check", why);
    return sound;
  }

  bool stop(const char* what, const std::string& why) {
    report_.error = std::string(what) + ": " + why;
    return false;
  }

  const PackageRecords& records_;
  const KillOptions& options_;
  std::string side_file_;
  Shared shared_;
  Rng rng_;
  double last_open_ms_ = 0;
  KillReport report_;
};

}  // namespace

bool KillReport::sound() const {
  return error.empty() && !kills.empty() &&
         std::all_of(kills.begin(), kills.end(), [](const KillOutcome& k) { return k.sound(); });
}

KillReport run_kill_trial(const PackageRecords& records, const KillOptions& options,
                          const std::function<void(const KillOutcome&)>& tell) {
  return Trial(records, options).run(tell);
}

}  // namespace bench
