// kv_bench: YCSB's load, its workloads A..F and a few more in one program, on tenuto, RocksDB,
// LMDB, LevelDB and WiredTiger. bench/README.md describes the measurements; --list and --help
// describe the options.
#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <algorithm>

#include "bench/kv/run.h"
#include "bench/kv/suite.h"
#include "bench/support/io_meter.h"
#include "bench/support/memory_group.h"
#include "bench/support/peers.h"

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
  Point base;  // what all points share
  std::string json;
  std::string suite, part;
  std::string disk = "/var/tmp";
  double seconds = 0;
  std::uint64_t memory_mib = 0;
  bool quick = false, list = false;
};

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
  app.add_option("--records", o.base.records, "records loaded")->capture_default_str();
  app.add_option(
      "--ops", o.base.ops,
      "operations of a workload (0: as many as records; e: a tenth; e-cold has its own)");
  app.add_option("--rounds", o.base.rounds, "rounds, interleaved")->capture_default_str();
  app.add_option("--opens", o.base.opens, "rounds of the workload open")->capture_default_str();
  app.add_option("--seed", o.base.seed, "of all random choices")->capture_default_str();
  app.add_option("--dir", o.base.dir, "where the scratch directory is made")->capture_default_str();
  app.add_option("--json", o.json, "write one JSON object a line and case to FILE, or - (stdout)");
  app.add_option("--suite", o.suite, "print all tables of a document: " + suite_names());
  app.add_option("--part", o.part, "of a suite, only the parts whose titles contain this");
  app.add_option("--disk", o.disk, "where a suite's stores on a disk are")->capture_default_str();
  app.add_option("--seconds", o.seconds,
                 "a suite ends rounds early to take no longer (0: no limit)");
  app.add_option("--memory", o.memory_mib,
                 "MiB that the program may have, page cache included: a control group (root)");
  app.add_flag("--ordered", o.base.ordered, "keys rise with the record number (default: hashed)");
  app.add_flag("--compacted", o.base.compacted,
               "compact after the load, untimed: tenuto in key order, RocksDB, LevelDB");
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
      "  e-cold         e on a store of its own, right after an open; a hundredth of the records\n"
      "  e-warm         the same after a walk through all records\n"
      "  insert-delete  after a load of its own: 50 % insert, 50 % delete, uniform\n"
      "  sync-insert    into an empty store, each insert durable (sync) when acknowledged\n"
      "  update         update only\n"
      "  update-x100    the same in batches of 100\n"
      "  get-x16        c with 16 keys a call\n"
      "  open           after a load and updates: open after SIGKILL and after a clean close\n"
      "engines\n");
  for (const EngineKind& kind : engine_kinds()) {
    fmt::print("  {:<14} {}\n", kind.name, kind.settings(EngineOptions{}));
  }
  fmt::print("{}", peers_left_out());
}

bool parse_workloads(const Options& o, Point& to, std::string& wrong) {
  for (const std::string& name : o.workloads) {
    const std::optional<Workload> w = find_workload(name);
    if (!w) {
      wrong = "no workload is called " + name;
      return false;
    }
    to.workloads.push_back(*w);
  }
  return true;
}

// Adds a point for each combination of the lists; `base` has what they share.
bool parse_points(const Options& o, const Point& base, std::vector<Point>& points,
                  std::string& wrong) {
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
            Point& p = points.emplace_back(base);
            p.sync = durability == "sync";
            p.distribution = *d;
            p.threads = threads;
            p.key_bytes = key;
            p.value_bytes = value;
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

void print_point(std::FILE* out, const Point& p, const Played& played) {
  print_settings(out, played.setting, p.contestants);
  if (has(p, Workload::sync_insert) && !p.sync) {
    Setting durable = played.setting;
    durable.engine.sync = true;
    fmt::print(out, "in sync-insert:\n");
    print_settings(out, durable, p.contestants);
  }
  print_tables(out, played.setting, played.figures);
  std::fflush(out);
}

int play_all(const Options& o, const std::vector<Point>& points) {
  Run run(o.json);
  for (const Point& p : points) {
    const std::optional<Played> played = run.play(p);
    if (!played) break;
    print_point(run.human(), p, *played);
  }
  return run.finish();
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
  Point& base = o.base;
  if (o.quick) {
    base.records = std::min<std::uint64_t>(base.records, 20'000);
    base.rounds = 1;
    base.opens = 1;
    base.kill_after_ms = 20;
  }
  MemoryGroup group;
  std::string wrong;
  constexpr std::uint64_t kMemoryMibLeast = 64;  // the program's own, and a little more
  if (o.memory_mib != 0 && o.memory_mib < kMemoryMibLeast)
    return usage_error(fmt::format("--memory starts at {}", kMemoryMibLeast));
  if (o.memory_mib != 0 && !group.enter(o.memory_mib << 20, wrong))
    return usage_error("--memory: " + wrong);
  if (!o.suite.empty()) {
    if (!has_suite(o.suite)) return usage_error("no suite is called " + o.suite);
    if (o.suite == "memory" && !o.quick) {
      if (o.memory_mib == 0) return usage_error("suite memory needs --memory");
      base.records = records_beyond(o.memory_mib << 20);
    }
    return play_suite(o.suite, {.records = base.records,
                                .rounds = base.rounds,
                                .opens = base.opens,
                                .seconds = o.seconds,
                                .seed = base.seed,
                                .dir = base.dir,
                                .disk = o.disk,
                                .json = o.json,
                                .part = o.part,
                                .quick = o.quick});
  }
  if (!parse_workloads(o, base, wrong)) return usage_error(wrong);
  base.contestants = contestants_of(o, wrong);
  if (base.contestants.empty())
    return usage_error("no engine or way of writing is called " + wrong);
  std::vector<Point> points;
  if (!parse_points(o, base, points, wrong)) return usage_error(wrong);
  if (base.records < 1 || base.rounds < 1 || base.opens < 1) {
    return usage_error("--records, --rounds and --opens start at 1");
  }
  if (sequences(base) > kSequenceMax) {
    return usage_error("too many records and operations for one run");
  }
  return play_all(o, points);
}
