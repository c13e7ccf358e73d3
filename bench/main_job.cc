// The main job, behind tools/run. It loads real records and kills the store again and again, and
// each time checks that nothing acknowledged was lost. It then compares the speed with RocksDB and
// LMDB on the same records.
// Exit code 0: every check passed; 1: a check failed; 2: usage; 130: Ctrl-C.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>

#include "bench/main_job/package_records.h"
#include "bench/support/contest.h"
#include "bench/support/report.h"
#include "crash_kill.h"

namespace {

using namespace bench;
using tenuto::tool::KillLook;
using tenuto::tool::KillMix;
using tenuto::tool::KillOptions;
using tenuto::tool::KillReport;
using tenuto::tool::KillTotals;

struct Options {
  std::uint64_t records = 0;  // 0: the whole index
  unsigned kills = 10;
  double seconds = 15;
  std::uint64_t ops = 100'000;
  unsigned rounds = 3;
  std::uint64_t seed = 42;
  std::string dir = "/dev/shm";
  std::string sample = TENUTO_SAMPLE_PATH;
  std::string json = "tenuto-run.json";
  bool quick = false;
};

constexpr std::uint64_t kSampleRecords = 50'000;  // the sample's stanzas are repeated to make these
constexpr std::uint64_t kScanShare = 10;          // workload E runs a tenth of the operations
constexpr unsigned kTurnSecondsMax = 300;
constexpr unsigned kThreadSettings[] = {1, 2};
constexpr std::uint32_t kKillThreads = 2;
constexpr double kKillSecondsMax = 3600;                // a record's version has 32 bits
constexpr std::uint32_t kKillLogOperations = 1u << 20;  // of a thread between two kills

void declare(CLI::App& app, Options& o) {
  app.add_option("--records", o.records, "records (0: every stanza of the index)");
  app.add_option("--kills", o.kills, "SIGKILLs of the writer")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--seconds", o.seconds, "writing time, all kills together")
      ->check(CLI::Range(0.1, kKillSecondsMax))
      ->capture_default_str();
  app.add_option("--ops", o.ops, "operations of a workload in the comparison")
      ->check(CLI::Range(10, 1'000'000))
      ->capture_default_str();
  app.add_option("--rounds", o.rounds, "rounds of the comparison; 0 leaves it out")
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of all random choices")->capture_default_str();
  app.add_option("--dir", o.dir, "where the scratch directory is made")->capture_default_str();
  app.add_option("--sample", o.sample, "package index to use when the machine has none")
      ->capture_default_str();
  app.add_option("--json", o.json, "file for all numbers")->capture_default_str();
  app.add_flag("--quick", o.quick, "few records and kills: seconds, for CI");
}

// The records as the kill test sees them.
class KillPackages final : public tenuto::tool::KillRecords {
 public:
  KillPackages(const PackageRecords& packages, std::uint64_t records)
      : packages_(packages), records_(static_cast<std::uint32_t>(records)) {}

  std::uint32_t count() const override { return records_; }
  bool named(std::uint32_t) const override { return false; }
  std::string key(std::uint32_t record) const override {
    std::string key(packages_.key_bytes_max(), '\0');
    key.resize(packages_.make_key(record, key.data()));
    return key;
  }
  void value(std::uint32_t record, std::uint64_t version, std::string& out) const override {
    out.resize(packages_.value_bytes_max());
    const auto v = static_cast<std::uint32_t>(version);
    out.resize(packages_.make_value(record, key(record), v, out.data()));
  }
  std::uint64_t version(std::string_view key, std::string_view value) const override {
    std::uint32_t version = 0;
    return packages_.check_value(key, value, version) ? version : 0;
  }

 private:
  const PackageRecords& packages_;
  const std::uint32_t records_;
};

void print_look(const KillLook& k, std::uint64_t records) {
  fmt::print("  {:>5}  {:>6.2f} s {:<9} {:>11} {:>9} {:>9.2f} {:>9.2f} {:>11.1f}  all there, sound",
             k.totals.kills, k.worked_seconds, k.records < records ? "in load" : "ycsb a", k.writes,
             k.records, k.open_ms, k.recovery_ms, k.look_ms);
  if (k.kept_writes > 0) fmt::print(", {} unacknowledged kept whole", k.kept_writes);
  if (k.kills > 1) fmt::print(", after {} kills", k.kills);
  fmt::print("\n");
  std::fflush(stdout);
}

std::string json_of(const KillLook& k, std::uint64_t records) {
  JsonLine line;
  line.integer("kills", k.totals.kills).text("during", k.records < records ? "load" : "a");
  line.number("worked_seconds", k.worked_seconds).integer("acknowledged", k.writes);
  line.integer("records", k.records).integer("kept_in_flight", k.kept_writes);
  line.number("open_ms", k.open_ms).number("recovery_ms", k.recovery_ms);
  line.number("rebuild_ms", k.rebuild_ms).number("look_ms", k.look_ms);
  return line.str();
}

std::string join(const std::vector<std::string>& objects) {
  std::string list = "[";
  for (const std::string& o : objects) list += (list.size() > 1 ? ",\n    " : "\n    ") + o;
  return list + "\n  ]";
}

class MainJob {
 public:
  explicit MainJob(const Options& options) : o_(options) {}

  int run() {
    if (!load_records()) return 1;
    if (!scratch_.create(o_.dir, "tenuto-run")) {
      fmt::print(stderr, "main_job: cannot make a directory in {}: {}\n", o_.dir,
                 std::strerror(errno));
      return 1;
    }
    const bool held = kill_test();
    scratch_.clear();
    if (interrupted()) return 130;
    // After a loss the speed does not matter.
    const bool compared = held && (o_.rounds == 0 || compare());
    if (interrupted()) return 130;
    const bool written = write_json();
    if (held && compared) {
      fmt::print("\nNothing acknowledged was lost in {} kills.\n", report_.totals.kills);
    }
    return held && compared && written ? 0 : 1;
  }

 private:
  bool load_records() {
    fmt::print("1. Real records\n");
    if (!packages_.load(o_.sample)) {
      fmt::print(stderr, "main_job: no Debian package index here and no sample at {}\n", o_.sample);
      return false;
    }
    const bool small = packages_.stanzas() < kSampleRecords;
    records_ = o_.records != 0 ? o_.records : small ? kSampleRecords : packages_.stanzas();
    fmt::print("   {}: {} stanzas, {:.1f} MB.\n", packages_.source(), packages_.stanzas(),
               static_cast<double>(packages_.stanza_bytes()) / 1e6);
    fmt::print(
        "   One record a stanza: {} records, keys like package/version/architecture (about "
        "{:.0f} bytes),\n   values of about {:.0f} bytes, each sealed with a version and a "
        "hash.\n\n",
        records_, packages_.key_bytes_mean(), packages_.value_bytes_mean());
    std::fflush(stdout);
    return true;
  }

  bool kill_test() {
    const KillPackages packages(packages_, records_);
    KillOptions how;
    how.directory = scratch_.path();
    how.kills = o_.kills;
    how.seed = o_.seed;
    how.threads = {kKillThreads};
    how.engines = tenuto::tool::kEngineKv;
    how.mixes = {KillMix::ycsb_a};
    how.records = &packages;
    how.log_operations = kKillLogOperations;
    how.work_us_max = how.long_work_us_max =
        static_cast<std::uint64_t>(2e6 * o_.seconds / o_.kills);
    how.pool_bytes_max = 64 * (how.pool_bytes + packages_.stanza_bytes() * copies());
    how.kills_a_pool = o_.kills;
    how.keep_images = false;
    fmt::print(
        "2. Kill test on {} ({})\n"
        "   Two threads load the records and then run YCSB A (half reads, half updates). Each "
        "operation is\n   noted before it starts and after it returns, in memory that outlives the "
        "writer. SIGKILL ends the\n   writer at a random moment, sometimes in its recovery. A new "
        "process opens the store again and reads\n   all of it. The process that is never killed "
        "looks for every acknowledged write: one order must\n   explain all that was seen. The "
        "whole "
        "store is checked, too: order, checksums, and that the heap\n   neither leaks nor "
        "overlaps.\n\n",
        scratch_.path(), file_system_name(scratch_.path()));
    fmt::print("  {:>5}  {:>8} {:<9} {:>11} {:>9} {:>9} {:>9} {:>11}  {}\n", "kills", "after",
               "during", "acked", "records", "open ms", "recovery", "check ms", "result");
    std::fflush(stdout);
    report_ = kill_loop(
        how, [](const KillTotals&, std::size_t) { return !interrupted(); },
        [this](const KillLook& look) {
          print_look(look, records_);
          looks_.push_back(look);
          file_bytes_ = directory_size(scratch_.path()).allocated;
        });
    if (interrupted()) return false;
    if (report_.error) fmt::print("   the test could not go on: {}\n", report_.error.text());
    for (const auto& f : report_.findings) {
      fmt::print("FAILED at kill {}: {}\n  saved: {}\n", f.kill, f.text, f.folder);
    }
    std::vector<double> opens;
    for (const KillLook& k : looks_) opens.push_back(k.open_ms);
    if (!opens.empty()) {
      const Spread s = spread_of(opens);
      fmt::print(
          "\n   {} kills ({} in recovery), {} acknowledged writes: {}. Open after a kill: median "
          "{:.2f} ms, max {:.2f} ms.\n",
          report_.totals.kills, report_.totals.in_recovery, report_.totals.writes,
          sound() ? "nothing lost, nothing torn" : "FAILED", s.median, s.max);
    }
    std::fflush(stdout);
    return sound();
  }

  bool sound() const { return !report_.error && report_.findings.empty() && !looks_.empty(); }
  std::uint64_t copies() const { return (records_ - 1) / packages_.stanzas() + 1; }

  bool compare() {
    fmt::print(
        "\n3. The same records beside RocksDB and LMDB: load, then A (half reads, half "
        "updates), C (reads),\n   E (short scans). Engines take turns, {} rounds; every "
        "answer is checked.\n\n",
        o_.rounds);
    std::vector<Contestant> contestants;
    for (const std::string& name : engines_of({"tenuto", "rocksdb", "lmdb"})) {
      contestants.push_back({find_engine(name), "auto", name});
    }
    bool sound = true;
    for (const unsigned threads : kThreadSettings) {
      Setting setting;
      setting.bench = "main";
      setting.records = records_;
      setting.threads = threads;
      setting.key_bytes = static_cast<std::size_t>(packages_.key_bytes_mean());
      setting.value_bytes = static_cast<std::size_t>(packages_.value_bytes_mean());
      setting.rounds = o_.rounds;
      setting.seed = o_.seed;
      setting.file_system = file_system_name(scratch_.path());
      setting.engine.threads = threads;
      setting.engine.value_bytes = setting.value_bytes;
      setting.engine.data_bytes = 2 * records_ * (setting.key_bytes + setting.value_bytes);
      if (threads == kThreadSettings[0]) print_settings(stdout, setting, contestants);
      ContestFigures figures;
      contest(contestants, setting, figures);
      if (interrupted()) return false;
      print_tables(stdout, setting, figures);
      for (const std::string& f : figures.failures) fmt::print("FAILED {}\n", f);
      std::fflush(stdout);
      for (std::string& line : json_lines(setting, figures)) figures_.push_back(std::move(line));
      sound = sound && figures.failures.empty();
    }
    return sound;
  }

  void contest(const std::vector<Contestant>& contestants, const Setting& setting,
               ContestFigures& figures) {
    Course course;
    course.records = &packages_;
    course.threads = setting.threads;
    Planner planner(packages_, setting.threads, o_.seed);
    course.phases.push_back(planner.load(records_));
    course.phases.push_back(planner.next(Workload::a, o_.ops, Distribution::zipfian));
    course.phases.push_back(planner.next(Workload::c, o_.ops, Distribution::zipfian));
    course.phases.push_back(planner.next(Workload::e, o_.ops / kScanShare, Distribution::zipfian));
    ContestOptions how;
    how.rounds = o_.rounds;
    how.turn_seconds_max = kTurnSecondsMax;
    how.engine = setting.engine;
    how.progress = [&](const Contestant& c, unsigned round, Workload w, double speed) {
      fmt::print(stderr, "   {} thread{}, round {}/{}: {:<8} {:<5} {:>8.0f} kops/s\n",
                 setting.threads, setting.threads == 1 ? "" : "s", round + 1, o_.rounds, c.label,
                 workload_name(w), speed / 1e3);
    };
    play(contestants, course, how, scratch_, figures);
  }

  bool write_json() const {
    std::vector<std::string> kills;
    for (const KillLook& k : looks_) kills.push_back(json_of(k, records_));
    JsonLine trial;
    trial.integer("kills", report_.totals.kills).integer("in_recovery", report_.totals.in_recovery);
    trial.integer("acknowledged", report_.totals.writes).flag("sound", sound());
    trial.integer("rolled_back", report_.totals.rolled_back);
    trial.integer("leaked_frames", report_.totals.leaked_frames);
    trial.integer("file_bytes", file_bytes_).raw("looks", join(kills));
    JsonLine all;
    all.text("program", "main_job").text("processor", processor_name());
    all.text("records_from", packages_.source()).integer("records", records_);
    all.integer("record_bytes", packages_.stanza_bytes()).integer("seed", o_.seed);
    all.raw("kill_test", trial.str()).raw("figures", join(figures_));
    std::FILE* file = std::fopen(o_.json.c_str(), "w");
    bool written = file != nullptr && std::fprintf(file, "%s\n", all.str().c_str()) > 0;
    if (file != nullptr) written = std::fclose(file) == 0 && written;
    fmt::print("\n{} {}.\n", written ? "All numbers are in" : "Cannot write", o_.json);
    return written;
  }

  const Options& o_;
  PackageRecords packages_;
  std::uint64_t records_ = 0;
  Scratch scratch_;
  KillReport report_;
  std::vector<KillLook> looks_;
  std::uint64_t file_bytes_ = 0;
  std::vector<std::string> figures_;
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Real records, kills, and a comparison: see bench/README.md");
  declare(app, o);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (o.quick) {
    o.records = o.records != 0 ? std::min<std::uint64_t>(o.records, 2000) : 2000;
    o.kills = std::min(o.kills, 4u);
    o.seconds = std::min(o.seconds, 1.0);
    o.ops = std::min<std::uint64_t>(o.ops, 5000);
    o.rounds = std::min(o.rounds, 1u);
  }
  bench::catch_interrupts();
  MainJob job(o);
  return job.run();
}
