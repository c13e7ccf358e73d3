// The courses of a point; see point.h.
#include "bench/kv/point.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>

#include "bench/support/clock.h"

namespace bench {
namespace {

constexpr std::uint64_t kScanShare = 10;  // workload e runs a tenth of the operations
// e-cold must not come back to what it warmed: its scans read half as many records as there are.
constexpr std::uint64_t kColdShare = 100;
constexpr std::uint64_t kSyncOpsDefault = 20'000;  // a disk does some thousands a second
constexpr unsigned kTurnSecondsMax = 900;
constexpr std::uint64_t kSpaceFactor = 4;  // stores that compact take several times their data
// YCSB's order on one store: d and e insert, so e is last.
constexpr Workload kOnLoaded[] = {Workload::a,       Workload::b,      Workload::c,
                                  Workload::f,       Workload::update, Workload::update_x100,
                                  Workload::get_x16, Workload::d,      Workload::e};

std::uint64_t ops(const Point& p) { return p.ops == 0 ? p.records : p.ops; }

std::uint64_t ops_of(const Point& p, Workload w) {
  if (w == Workload::e_cold) return std::max<std::uint64_t>(1, p.records / kColdShare);
  if (p.ops != 0) return p.ops;
  if (w == Workload::e || w == Workload::e_warm) {
    return std::max<std::uint64_t>(1, p.records / kScanShare);
  }
  if (w == Workload::sync_insert) return std::min(p.records, kSyncOpsDefault);
  return p.records;
}

std::uint64_t data_bytes(const Point& p) {
  return (p.records + ops(p) / 4) * (p.key_bytes + p.value_bytes);
}

// Plays the courses of one point, one after the other.
class Player {
 public:
  Player(const Point& point, const Setting& setting, Scratch& scratch, ContestFigures& figures)
      : p_(point),
        setting_(setting),
        scratch_(scratch),
        figures_(figures),
        records_(point.key_bytes, point.value_bytes, point.ordered) {}

  void play_all() {
    std::vector<Workload> on_loaded;
    std::copy_if(std::begin(kOnLoaded), std::end(kOnLoaded), std::back_inserter(on_loaded),
                 [&](Workload w) { return has(p_, w); });
    const bool loads = has(p_, Workload::load) || !on_loaded.empty();
    const bool scans = has(p_, Workload::e_cold) || has(p_, Workload::e_warm);
    courses_left_ = loads + scans + has(p_, Workload::insert_delete) +
                    has(p_, Workload::sync_insert) + has(p_, Workload::open);
    if (loads) {
      Course course = loaded_course(p_.threads);
      course.prepare = 0;
      for (const Workload w : on_loaded) add(course, w, ops_of(p_, w));
      contest(course, setting_.engine);
    }
    if (scans) {
      Course course = loaded_course(p_.threads);
      for (const Workload w : {Workload::e_cold, Workload::e_warm}) {
        if (has(p_, w)) add(course, w, ops_of(p_, w));
      }
      contest(course, setting_.engine);
    }
    if (has(p_, Workload::insert_delete)) {
      Course course = loaded_course(p_.threads);
      add(course, Workload::insert_delete, ops(p_));
      contest(course, setting_.engine);
    }
    if (has(p_, Workload::sync_insert)) {
      Course course = begin_course(p_.threads);
      add(course, Workload::sync_insert, ops_of(p_, Workload::sync_insert));
      EngineOptions durable = setting_.engine;
      durable.sync = true;
      contest(course, durable);
    }
    if (has(p_, Workload::open)) {
      Course course = loaded_course(1);
      add(course, Workload::open, 4 * ops(p_));
      course.kill = true;
      course.kill_after_ms = p_.kill_after_ms;
      contest(course, setting_.engine, p_.opens);
    }
  }

 private:
  Course begin_course(unsigned threads) {
    Course course;
    course.records = &records_;
    course.threads = threads;
    planner_.emplace(records_, threads, p_.seed);
    return course;
  }
  // A course whose load only prepares.
  Course loaded_course(unsigned threads) {
    Course course = begin_course(threads);
    course.phases.push_back(planner_->load(p_.records));
    course.prepare = 1;
    return course;
  }
  void add(Course& course, Workload w, std::uint64_t count) {
    course.phases.push_back(planner_->next(w, count, p_.distribution));
  }

  void contest(const Course& course, const EngineOptions& engine) {
    contest(course, engine, p_.rounds);
  }
  void contest(const Course& course, const EngineOptions& engine, unsigned rounds) {
    if (interrupted()) return;
    ContestOptions how;
    how.rounds = rounds;
    if (p_.seconds_max > 0) {
      const double left = p_.seconds_max - seconds_of(ticks() - begun_);
      how.seconds_max = std::max(1e-3, left / courses_left_--);
    }
    how.turn_seconds_max = kTurnSecondsMax;
    how.engine = engine;
    how.progress = [rounds](const Contestant& c, unsigned round, Workload w, double speed) {
      fmt::print(stderr, "  round {}/{}  {:<12} {:<14}", round + 1, rounds, c.label,
                 workload_name(w));
      if (speed > 0) fmt::print(stderr, " {:>10.1f} kops/s", speed / 1e3);
      fmt::print(stderr, "\n");
    };
    play(p_.contestants, course, how, scratch_, figures_);
  }

  const Point& p_;
  const Setting& setting_;
  Scratch& scratch_;
  ContestFigures& figures_;
  const YcsbRecords records_;
  std::optional<Planner> planner_;  // of the course being made
  const std::uint64_t begun_ = ticks();
  int courses_left_ = 0;  // they share the time
};

}  // namespace

bool has(const Point& p, Workload w) {
  return std::find(p.workloads.begin(), p.workloads.end(), w) != p.workloads.end();
}

std::uint64_t space_bytes(const Point& p) { return kSpaceFactor * data_bytes(p); }

std::uint64_t sequences(const Point& p) {
  return p.records + p.workloads.size() * ops(p) + 4 * ops(p);
}

Setting setting_of(const Point& p, const std::string& dir) {
  Setting setting;
  setting.records = p.records;
  setting.threads = p.threads;
  setting.key_bytes = p.key_bytes;
  setting.value_bytes = p.value_bytes;
  setting.ordered = p.ordered;
  setting.distribution = p.distribution;
  setting.rounds = p.rounds;
  setting.opens = p.opens;
  setting.seed = p.seed;
  setting.file_system = file_system_name(dir);
  setting.device = device_text(dir);
  setting.engine.sync = p.sync;
  setting.engine.integer_keys = YcsbRecords(p.key_bytes, p.value_bytes, p.ordered).integer_keys();
  setting.engine.compacted = p.compacted;
  setting.engine.threads = p.threads;
  setting.engine.value_bytes = p.value_bytes;
  setting.engine.data_bytes = data_bytes(p);
  setting.engine.memory_bytes = memory_limit_bytes();
  return setting;
}

void play_point(const Point& point, const Setting& setting, Scratch& scratch,
                ContestFigures& figures) {
  Player(point, setting, scratch, figures).play_all();
}

}  // namespace bench
