// The suites; see suite.h. A part is a setting of its own with the tables drawn from it.
#include "bench/kv/suite.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "bench/kv/table.h"
#include "bench/support/peers.h"

namespace bench {
namespace {

struct Shape {
  std::size_t key_bytes;
  std::size_t value_bytes;
};

struct Part {
  std::string title;
  std::vector<std::string> engines;  // "tenuto/line": with a medium
  std::vector<Workload> workloads;
  std::vector<Table> tables;
  double weight = 1;  // its share of the time
  std::vector<Shape> shapes = {{16, 100}};
  std::vector<unsigned> threads = {1, 2};
  std::vector<double> records = {1};  // shares of SuiteOptions::records
  std::uint64_t records_max = ~std::uint64_t{0};
  std::uint64_t ops = 0;  // 0: half as many as records
  unsigned rounds_max = ~0u;
  Distribution distribution = Distribution::zipfian;
  bool sync = false;
  bool compacted = false;
  bool on_disk = false;
};

using W = Workload;

constexpr Shape kBeyondMemory = {16, 1000};

const std::vector<W> kMixes = {W::load, W::a, W::b, W::c, W::d, W::f, W::e_cold, W::e_warm};
const std::vector<W> kFewMixes = {W::load, W::a, W::c, W::e_cold, W::e_warm};
const std::vector<std::string> kOnDisk = {"tenuto/journal", "lmdb", "rocksdb"};

Table speeds(const std::vector<W>& workloads) {
  return {"Thousands of operations a second, median (least..most)", {{"", workloads, speed_cell}}};
}
Table ratios(const std::vector<W>& workloads) {
  return {"Speed of the first over the others, round by round, median (least..most)",
          {{"", workloads, ratio_cell}}};
}
Table tails() {
  return {"Microseconds, 50 % / 99 % / 99.9 % / the longest of all rounds",
          {{"insert of load", {W::load}, inserts_cell},
           {"get of A", {W::a}, reads_cell},
           {"update of A", {W::a}, updates_cell},
           {"get of C", {W::c}, reads_cell},
           {"scan, cold", {W::e_cold}, scans_cell},
           {"scan, warm", {W::e_warm}, scans_cell}}};
}
Table sizes() {
  return {"Bytes a record after the load; files with keys and values",
          {{"private memory", {W::load}, memory_cell}, {"files", {W::load}, file_cell}}};
}
Table opens() {
  return {"Milliseconds, median (least..most); an open includes its first get",
          {{"open after a clean close", {W::open}, open_cell},
           {"its first get", {W::open}, first_get_cell},
           {"its first write", {W::open}, first_write_cell},
           {"open after SIGKILL", {W::open}, open_killed_cell},
           {"its first get", {W::open}, first_get_killed_cell},
           {"its first write", {W::open}, first_write_killed_cell},
           {"close of that", {W::open}, close_cell},
           {"age of the first lost write", {W::open}, lost_cell}}};
}

std::vector<Part> readme_parts() {
  std::vector<Part> parts;
  parts.push_back({.title = "In memory",
                   .engines = {"tenuto/line", "tenuto/cache", "lmdb", "lmdb-large", "rocksdb"},
                   .workloads = kMixes,
                   .tables = {speeds(kMixes), ratios(kMixes), tails(), sizes()},
                   .weight = 36});
  const std::vector<W> scans = {W::e_cold, W::e_warm};
  const auto compacted = [&](const char* title, std::vector<std::string> engines, bool on_disk) {
    parts.push_back({.title = title,
                     .engines = std::move(engines),
                     .workloads = scans,
                     .tables = {speeds(scans), ratios(scans)},
                     .weight = 6,
                     .compacted = true,
                     .on_disk = on_disk});
  };
  compacted("Compacted, in memory",
            {"tenuto/line", "tenuto/cache", "lmdb", "lmdb-large", "rocksdb"}, false);
  compacted("Compacted, on a disk", kOnDisk, true);
  parts.push_back({.title = "Rows of other sizes",
                   .engines = {"tenuto/line", "tenuto/cache", "lmdb"},
                   .workloads = kFewMixes,
                   .tables = {speeds(kFewMixes), ratios(kFewMixes), tails()},
                   .weight = 13,
                   .shapes = {{16, 1000}, {23, 187}},
                   .records = {.5}});
  const std::vector<W> groups = {W::update, W::update_x100, W::c, W::get_x16};
  parts.push_back({.title = "Groups",
                   .engines = {"tenuto/line", "tenuto/cache", "lmdb", "rocksdb"},
                   .workloads = groups,
                   .tables = {speeds(groups),
                              ratios(groups),
                              {"Speed in groups over one by one",
                               {{"100 updates in a batch", {W::update_x100}, group_gain_cell},
                                {"16 gets in a call", {W::get_x16}, group_gain_cell}}}},
                   .weight = 9});
  parts.push_back({.title = "Other stores, and maps that keep nothing",
                   .engines = {"tenuto/line", "leveldb", "wiredtiger", "sqlite", "volatile-btree",
                               "volatile-map", "volatile-tbb"},
                   .workloads = kFewMixes,
                   .tables = {speeds(kFewMixes), ratios(kFewMixes), tails(), sizes()},
                   .weight = 17,
                   .records = {.5},
                   .rounds_max = 3});
  parts.push_back({.title = "Opening",
                   .engines = {"tenuto/line", "tenuto/cache", "lmdb", "rocksdb"},
                   .workloads = {W::open},
                   .tables = {opens()},
                   .weight = 14,
                   .threads = {1}});
  parts.push_back({.title = "On a disk, buffered",
                   .engines = kOnDisk,
                   .workloads = kFewMixes,
                   .tables = {speeds(kFewMixes), ratios(kFewMixes), tails(), sizes()},
                   .weight = 8,
                   .records = {.5},
                   .on_disk = true});
  parts.push_back({.title = "On a disk, synced",
                   .engines = kOnDisk,
                   .workloads = kFewMixes,
                   .tables = {speeds(kFewMixes), ratios(kFewMixes), tails()},
                   .weight = 5,
                   .records_max = 4000,
                   .ops = 2000,
                   .rounds_max = 3,
                   .sync = true,
                   .on_disk = true});
  parts.push_back(
      {.title = "On a disk, each insert durable",
       .engines = {"tenuto/journal", "bare", "rocksdb", "leveldb", "wiredtiger", "sqlite", "lmdb"},
       .workloads = {W::sync_insert},
       .tables = {speeds({W::sync_insert}),
                  {"Sync calls an insert", {{"", {W::sync_insert}, syncs_cell}}},
                  {"Merged lines / payload / bytes written to the journal an insert",
                   {{"", {W::sync_insert}, journal_cell}}}},
       .weight = 4,
       .threads = {1, 2, 8, 32},
       .ops = 2000,
       .rounds_max = 3,
       .sync = true,
       .on_disk = true});
  parts.push_back(
      {.title = "Tenuto's tree above other allocators",
       .engines = {"tenuto/line", "fptree-tenuto/line", "fptree-tenuto-v/line", "fptree-pmdk/line"},
       .workloads = {W::insert_delete},
       .tables = {speeds({W::insert_delete}), ratios({W::insert_delete})},
       .weight = 2,
       .shapes = {{8, 120}},
       .records = {.25},
       .rounds_max = 3});
  const std::vector<W> counted = {W::load, W::a, W::d, W::f, W::insert_delete};
  parts.push_back({.title = "Lines and fences",
                   .engines = {"tenuto/model"},
                   .workloads = counted,
                   .tables = {{"Lines flushed / fences an operation; exact, the same everywhere",
                               {{"", counted, lines_cell}}}},
                   .weight = 1,
                   .shapes = {{8, 8}, {16, 100}, {23, 187}, {16, 1000}},
                   .threads = {1},
                   .records_max = 100'000,
                   .rounds_max = 1});
  return parts;
}

// How figures grow with the store. --records is the smallest.
std::vector<Part> size_parts() {
  const std::vector<W> workloads = {W::load, W::a, W::c};
  return {{.title = "Size",
           .engines = {"tenuto/line", "lmdb"},
           .workloads = workloads,
           .tables = {speeds(workloads), ratios(workloads), tails(), sizes()},
           .threads = {1},
           .records = {1, 10, 50},
           .ops = 1'000'000,
           .rounds_max = 1}};
}

// A store that does not fit in memory. --memory is how much there is.
std::vector<Part> memory_parts() {
  const std::vector<W> workloads = {W::load, W::a, W::c, W::e};
  const auto part = [&](const char* title, Distribution d, std::vector<std::string> engines) {
    return Part{.title = title,
                .engines = std::move(engines),
                .workloads = workloads,
                .tables = {speeds(workloads), ratios(workloads), tails(), sizes()},
                .shapes = {kBeyondMemory},
                .threads = {1},
                .ops = 20'000,
                .rounds_max = 1,
                .distribution = d,
                .on_disk = true};
  };
  return {part("Larger than memory, zipfian", Distribution::zipfian,
               {"tenuto/journal", "tenuto/cache", "lmdb", "rocksdb"}),
          part("Larger than memory, uniform", Distribution::uniform, {"tenuto/journal", "lmdb"})};
}

std::optional<std::vector<Part>> find_parts(std::string_view name) {
  if (name == "readme") return readme_parts();
  if (name == "size") return size_parts();
  if (name == "memory") return memory_parts();
  return std::nullopt;
}

std::vector<Contestant> contestants_of(const Part& part) {
  std::vector<Contestant> all;
  for (const std::string& label : part.engines) {
    const std::size_t slash = label.find('/');
    const EngineKind* kind = find_engine(label.substr(0, slash));
    if (kind == nullptr) continue;  // its package is not there, see peers_left_out
    all.push_back({kind, slash == std::string::npos ? "" : label.substr(slash + 1), label});
  }
  return all;
}

std::vector<Point> points_of(const Part& part, const SuiteOptions& o) {
  std::vector<Point> points;
  for (const double share : part.records) {
    for (const Shape& shape : part.shapes) {
      for (const unsigned threads : part.threads) {
        Point& p = points.emplace_back();
        p.contestants = contestants_of(part);
        p.workloads = part.workloads;
        p.compacted = part.compacted;
        p.dir = part.on_disk ? o.disk : o.dir;
        p.records = std::min(part.records_max,
                             static_cast<std::uint64_t>(share * static_cast<double>(o.records)));
        p.records = std::max<std::uint64_t>(p.records, 100);
        p.ops = part.ops != 0 && !o.quick ? part.ops : p.records / 2;
        p.threads = threads;
        p.key_bytes = shape.key_bytes;
        p.value_bytes = shape.value_bytes;
        p.distribution = part.distribution;
        p.sync = part.sync;
        p.rounds = std::min(o.rounds, part.rounds_max);
        p.opens = o.opens;
        p.kill_after_ms = o.quick ? 20 : p.kill_after_ms;
        p.seed = o.seed;
      }
    }
  }
  return points;
}

// Shares a time among parts. What one leaves is the next one's.
class Budget {
 public:
  Budget(double seconds, const std::vector<Part>& parts) : seconds_(seconds) {
    for (const Part& p : parts) weights_ += p.weight;
  }
  // What the next piece may take, of so much weight; 0: no limit.
  double next(double weight) {
    used_ += weight;
    if (seconds_ <= 0) return 0;
    constexpr double kLeast = 1e-3;
    return std::max(kLeast, seconds_ * used_ / weights_ - elapsed());
  }

 private:
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  }
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  double seconds_;
  double weights_ = 0;
  double used_ = 0;
};

void print_part(std::FILE* out, const Part& part, const std::vector<Played>& played) {
  if (played.empty()) return;
  fmt::print(out, "### {}\n\n{}", part.title, setting_text(played));
  for (const Table& table : part.tables) fmt::print(out, "{}", table_text(table, played));
  std::fflush(out);
}

}  // namespace

bool has_suite(std::string_view name) { return find_parts(name).has_value(); }
std::string suite_names() { return "readme, size, memory"; }

std::uint64_t records_beyond(std::uint64_t memory_bytes) {
  return 5 * memory_bytes / (kBeyondMemory.key_bytes + kBeyondMemory.value_bytes);
}

int play_suite(std::string_view name, const SuiteOptions& options) {
  Run run(options.json);
  std::vector<Part> parts = *find_parts(name);
  std::erase_if(parts, [&](const Part& p) { return p.title.find(options.part) == p.title.npos; });
  Budget budget(options.seconds, parts);
  fmt::print(stderr, "{}", peers_left_out());
  bool whole = true;
  for (std::size_t i = 0; i < parts.size() && whole; ++i) {
    std::vector<Point> points = points_of(parts[i], options);
    std::vector<Played> played;
    for (Point& p : points) {
      p.seconds_max = budget.next(parts[i].weight / static_cast<double>(points.size()));
      fmt::print(stderr, "{}: {} + {} bytes, {} thread(s)\n", parts[i].title, p.key_bytes,
                 p.value_bytes, p.threads);
      std::optional<Played> one = run.play(p);
      whole = one.has_value();
      if (!whole) break;
      played.push_back(std::move(*one));
    }
    print_part(run.human(), parts[i], played);
  }
  return run.finish();
}

}  // namespace bench
