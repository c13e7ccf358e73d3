// kv_bench: YCSB's load, its workloads A..F and a few more in one program, on tenuto, RocksDB,
// LMDB, LevelDB and WiredTiger. bench/README.md describes the measurements; --list and --help
// describe the options.
#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "bench/support/contest.h"
#include "bench/support/peers.h"
#include "bench/support/report.h"

namespace {

using namespace bench;

struct Options {
  std::vector<std::string> engines = engines_of({"tenuto", "rocksdb", "lmdb", "leveldb"});
  std::vector<std::string> workloads = {"load", "a", "b", "c", "d", "e", "f"};
  std::vector<std::string> distributions = {"zipfian"};
  std::vector<std::string> durabilities = {"buffered"};
  std::vector<std::string> media = {"auto"};
  std::vector<std::string> journal_writes = {"direct"};
  std::vector<unsigned> threads = {1};
  std::vector<std::size_t> key_bytes = {16};
  std::vector<std::size_t> value_bytes = {100};
  std::uint64_t records = 1'000'000;
  std::uint64_t ops = 0;  // 0: as many as records
  unsigned rounds = 5;
  std::uint64_t seed = 42;
  std::string dir = "/dev/shm";
  std::string json;
  bool ordered = false, quick = false, list = false;
};

constexpr std::uint64_t kScanShare = 10;           // workload e runs a tenth of the operations
constexpr std::uint64_t kSyncOpsDefault = 20'000;  // a disk does some thousands a second
constexpr unsigned kTurnSecondsMax = 900;
constexpr std::uint64_t kSpaceFactor = 4;

int usage_error(const std::string& what) {
  fmt::print(stderr, "kv_bench: {} (see --help and --list)\n", what);
  return 2;
}

void declare(CLI::App& app, Options& o) {
  const auto list_of = [&](const char* name, auto& to, const char* help) {
    app.add_option(name, to, help)->delimiter(',')->capture_default_str();
  };
  list_of("--engine", o.engines, "engines; ratios are the first one's over each other's");
  list_of("--workload", o.workloads, "workloads (--list)");
  list_of("--distribution", o.distributions, "zipfian, uniform, latest (d is always latest)");
  list_of("--durability", o.durabilities, "buffered (survives kill -9) or sync (a power cut)");
  list_of("--medium", o.media, "tenuto's media: auto, line, cache, model, journal");
  list_of("--journal-writes", o.journal_writes,
          "how its journal is written: direct, dsync, fdatasync");
  list_of("--threads", o.threads, "numbers of threads");
  list_of("--key", o.key_bytes, "key sizes: 8 (integers) or 16..255");
  list_of("--value", o.value_bytes, "value sizes: 8..1048576");
  app.add_option("--records", o.records, "records loaded")->capture_default_str();
  app.add_option("--ops", o.ops, "operations of a workload (0: as many as records; e: a tenth)");
  app.add_option("--rounds", o.rounds, "rounds, interleaved")->capture_default_str();
  app.add_option("--seed", o.seed, "of all random choices")->capture_default_str();
  app.add_option("--dir", o.dir, "where the scratch directory is made")->capture_default_str();
  app.add_option("--json", o.json, "write one JSON object a line and case to FILE, or - (stdout)");
  app.add_flag("--ordered", o.ordered, "keys rise with the record number (default: hashed)");
  app.add_flag("--quick", o.quick, "small sizes, one round: seconds, for CI");
  app.add_flag("--list", o.list, "print workloads and engines");
}

void print_list() {
  fmt::print(
      "workloads\n"
      "  load           insert the records\n"
      "  a              50 % read, 50 % update\n"
      "  b              95 % read, 5 % update\n"
      "  c              read only\n"
      "  d              95 % read, the latest most; 5 % insert\n"
      "  e              95 % scan of 1..100 records, 5 % insert\n"
      "  f              50 % read, 50 % read-modify-write\n"
      "  insert-delete  after a load of its own: 50 % insert, 50 % delete, uniform\n"
      "  sync-insert    into an empty store, each insert durable (sync) when acknowledged\n"
      "  open           after a load and updates: open after SIGKILL and after a clean close\n"
      "engines\n");
  for (const EngineKind& kind : engine_kinds()) {
    fmt::print("  {:<14} {}\n", kind.name, kind.settings(EngineOptions{}));
  }
  fmt::print("{}", peers_left_out());
}

// The work of one setting, split into courses. Each course starts with an empty store.
struct Program {
  bool load = false;
  std::vector<Workload> on_loaded;  // a b c f d e, YCSB's order: d and e insert, so e is last
  bool insert_delete = false;
  bool sync_insert = false;
  bool open = false;
};

bool parse_workloads(const Options& o, Program& to, std::string& unknown) {
  constexpr Workload kYcsbOrder[] = {Workload::a, Workload::b, Workload::c,
                                     Workload::f, Workload::d, Workload::e};
  std::vector<Workload> asked;
  for (const std::string& name : o.workloads) {
    const std::optional<Workload> w = find_workload(name);
    if (!w) {
      unknown = name;
      return false;
    }
    asked.push_back(*w);
  }
  const auto has = [&](Workload w) {
    return std::find(asked.begin(), asked.end(), w) != asked.end();
  };
  for (const Workload w : kYcsbOrder) {
    if (has(w)) to.on_loaded.push_back(w);
  }
  to.load = has(Workload::load) || !to.on_loaded.empty();
  to.insert_delete = has(Workload::insert_delete);
  to.sync_insert = has(Workload::sync_insert);
  to.open = has(Workload::open);
  return true;
}

// One combination of values from all lists.
struct Point {
  bool sync = false;
  Distribution distribution = Distribution::zipfian;
  unsigned threads = 1;
  std::size_t key_bytes = 16;
  std::size_t value_bytes = 100;
};

class Run {
 public:
  Run(const Options& options, const Program& program, std::vector<Contestant> contestants)
      : o_(options), program_(program), contestants_(std::move(contestants)) {
    catch_interrupts();
  }

  int run(const std::vector<Point>& points) {
    if (!scratch_.create(o_.dir, "tenuto-bench")) {
      fmt::print(stderr, "kv_bench: cannot make a directory in {}: {}\n", o_.dir,
                 std::strerror(errno));
      return 8;
    }
    fmt::print(human(), "kv_bench on {}, {} GB memory free, {} on {}, {}\n", processor_name(),
               free_memory_bytes() >> 30, scratch_.path(), file_system_name(scratch_.path()),
               device_text(scratch_.path()));
    for (const Point& p : points) {
      if (!fits(p)) return finish("no memory", 4);
      play_point(p);
      if (interrupted()) return finish("interrupted", 130);
      if (o_.json != "-" && !write_json()) return 1;
    }
    return finish("complete", failures_.empty() ? 0 : 1);
  }

 private:
  std::FILE* human() const { return o_.json == "-" ? stderr : stdout; }

  // A tmpfs keeps its files in memory, and stores that compact take several times their data.
  bool fits(const Point& p) const {
    const std::uint64_t needed = kSpaceFactor * data_bytes(p);
    if (file_system_name(scratch_.path()) != "tmpfs" || needed < free_memory_bytes()) return true;
    fmt::print(stderr, "kv_bench: about {} MB would not fit into memory; use --dir on a disk\n",
               needed >> 20);
    return false;
  }
  std::uint64_t data_bytes(const Point& p) const {
    return (o_.records + ops() / 4) * (p.key_bytes + p.value_bytes);
  }

  void play_point(const Point& p) {
    const YcsbRecords records(p.key_bytes, p.value_bytes, o_.ordered);
    Setting setting;
    setting.records = o_.records;
    setting.threads = p.threads;
    setting.key_bytes = p.key_bytes;
    setting.value_bytes = p.value_bytes;
    setting.ordered = o_.ordered;
    setting.distribution = p.distribution;
    setting.rounds = o_.rounds;
    setting.seed = o_.seed;
    setting.file_system = file_system_name(scratch_.path());
    setting.device = device_text(scratch_.path());
    setting.engine.sync = p.sync;
    setting.engine.integer_keys = records.integer_keys();
    setting.engine.threads = p.threads;
    setting.engine.value_bytes = p.value_bytes;
    setting.engine.data_bytes = data_bytes(p);
    print_settings(human(), setting, contestants_);
    if (program_.sync_insert && !p.sync) {
      Setting durable = setting;
      durable.engine.sync = true;
      fmt::print(human(), "in sync-insert:\n");
      print_settings(human(), durable, contestants_);
    }

    ContestFigures figures;
    if (program_.load) {
      Course course = begin_course(records, p.threads);
      Planner planner(records, p.threads, o_.seed);
      course.phases.push_back(planner.load(o_.records));
      for (const Workload w : program_.on_loaded) {
        course.phases.push_back(planner.next(w, ops_of(w), p.distribution));
      }
      contest(course, setting.engine, figures);
    }
    if (program_.insert_delete) {
      Course course = begin_course(records, p.threads);
      Planner planner(records, p.threads, o_.seed);
      course.phases.push_back(planner.load(o_.records));
      course.prepare = 1;
      course.phases.push_back(planner.next(Workload::insert_delete, ops(), p.distribution));
      contest(course, setting.engine, figures);
    }
    if (program_.sync_insert) {
      Course course = begin_course(records, p.threads);
      Planner planner(records, p.threads, o_.seed);
      course.phases.push_back(
          planner.next(Workload::sync_insert, ops_of(Workload::sync_insert), p.distribution));
      EngineOptions durable = setting.engine;
      durable.sync = true;
      contest(course, durable, figures);
    }
    if (program_.open) {
      Course course = begin_course(records, 1);
      Planner planner(records, 1, o_.seed);
      course.phases.push_back(planner.load(o_.records));
      course.phases.push_back(planner.next(Workload::open, 4 * ops(), p.distribution));
      course.prepare = 1;
      course.kill = true;
      course.kill_after_ms = o_.quick ? 20 : 300;
      contest(course, setting.engine, figures);
    }
    if (!interrupted()) print_tables(human(), setting, figures);
    std::fflush(human());
    for (std::string& line : json_lines(setting, figures)) json_.push_back(std::move(line));
    failures_.insert(failures_.end(), figures.failures.begin(), figures.failures.end());
  }

  static Course begin_course(const Records& records, unsigned threads) {
    Course course;
    course.records = &records;
    course.threads = threads;
    return course;
  }

  void contest(const Course& course, const EngineOptions& engine, ContestFigures& figures) {
    if (interrupted()) return;
    ContestOptions how;
    how.rounds = o_.rounds;
    how.turn_seconds_max = kTurnSecondsMax;
    how.engine = engine;
    how.progress = [this](const Contestant& c, unsigned round, Workload w, double speed) {
      fmt::print(stderr, "  round {}/{}  {:<12} {:<14}", round + 1, o_.rounds, c.label,
                 workload_name(w));
      if (speed > 0) fmt::print(stderr, " {:>10.1f} kops/s", speed / 1e3);
      fmt::print(stderr, "\n");
    };
    play(contestants_, course, how, scratch_, figures);
  }

  std::uint64_t ops() const { return o_.ops == 0 ? o_.records : o_.ops; }
  std::uint64_t ops_of(Workload w) const {
    if (o_.ops != 0) return o_.ops;
    if (w == Workload::e) return std::max<std::uint64_t>(1, o_.records / kScanShare);
    if (w == Workload::sync_insert) return std::min(o_.records, kSyncOpsDefault);
    return o_.records;
  }

  // The last line tells a whole run from one that was killed, and carries the wrong answers.
  int finish(const char* how, int code) {
    std::string failed;
    for (const std::string& f : failures_) {
      fmt::print(stderr, "FAILED {}\n", f);
      failed += (failed.empty() ? "" : ",") + json_text(f);
    }
    JsonLine last;
    last.text("bench", "kv").text("end", how).raw("failed", "[" + failed + "]");
    json_.push_back(last.str());
    return write_json() || code != 0 ? code : 1;
  }

  // All lines so far, after each point: what a killed run has measured is there.
  bool write_json() const {
    if (o_.json.empty()) return true;
    const bool written = write_lines(o_.json, json_);
    if (!written) fmt::print(stderr, "kv_bench: cannot write {}\n", o_.json);
    return written;
  }

  const Options& o_;
  const Program& program_;
  std::vector<Contestant> contestants_;
  Scratch scratch_;
  std::vector<std::string> json_;
  std::vector<std::string> failures_;
};

bool parse_points(const Options& o, std::vector<Point>& points, std::string& wrong) {
  for (const std::string& durability : o.durabilities) {
    if (durability != "buffered" && durability != "sync") {
      wrong = "no durability is called " + durability;
      return false;
    }
    for (const std::size_t key : o.key_bytes) {
      for (const std::size_t value : o.value_bytes) {
        if (!YcsbRecords::supports(key, value)) {
          wrong = fmt::format("no keys of {} with values of {} bytes", key, value);
          return false;
        }
        for (const std::string& name : o.distributions) {
          const std::optional<Distribution> d = find_distribution(name);
          if (!d) {
            wrong = "no distribution is called " + name;
            return false;
          }
          for (const unsigned threads : o.threads) {
            if (threads == 0 || threads > kThreadsMax) {
              wrong = fmt::format("threads must be 1..{}", kThreadsMax);
              return false;
            }
            points.push_back({durability == "sync", *d, threads, key, value});
          }
        }
      }
    }
  }
  return true;
}

std::vector<Contestant> contestants_of(const Options& o, std::string& unknown) {
  std::vector<Contestant> all;
  for (const std::string& writes : o.journal_writes) {
    if (journal_writes_of(writes)) continue;
    unknown = writes;
    return {};
  }
  for (const std::string& name : o.engines) {
    const EngineKind* kind = find_engine(name);
    if (kind == nullptr) {
      unknown = name;
      return {};
    }
    if (!kind->has_media) {
      all.push_back({kind, "", name});
      continue;
    }
    for (const std::string& medium : o.media) {
      const std::string label = o.media.size() > 1 ? name + "/" + medium : name;
      if (medium != "journal" || o.journal_writes.size() == 1) {
        all.push_back({kind, medium, label, o.journal_writes.front()});
        continue;
      }
      for (const std::string& writes : o.journal_writes) {
        all.push_back({kind, medium, label + "/" + writes, writes});
      }
    }
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("YCSB on tenuto and its peers, in one program, with interleaved rounds");
  declare(app, o);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (o.list) {
    print_list();
    return 0;
  }
  if (o.quick) {
    o.records = std::min<std::uint64_t>(o.records, 20'000);
    o.rounds = 1;
  }
  std::string wrong;
  Program program;
  if (!parse_workloads(o, program, wrong)) return usage_error("no workload is called " + wrong);
  std::vector<Contestant> contestants = contestants_of(o, wrong);
  if (contestants.empty()) return usage_error("no engine or way of writing is called " + wrong);
  std::vector<Point> points;
  if (!parse_points(o, points, wrong)) return usage_error(wrong);
  const std::uint64_t ops = o.ops == 0 ? o.records : o.ops;
  if (o.records < 1 || o.rounds < 1) return usage_error("--records and --rounds start at 1");
  if (o.records + program.on_loaded.size() * ops + 4 * ops > kSequenceMax) {
    return usage_error("too many records and operations for one run");
  }
  Run run(o, program, std::move(contestants));
  return run.run(points);
}
