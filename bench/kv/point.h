// One point of kv_bench: what is stored and how, who takes part, and the workloads that all of them
// run. It is played in courses, each of which begins with an empty store.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/support/contest.h"
#include "bench/support/process.h"
#include "bench/support/report.h"
#include "bench/support/workload.h"

namespace bench {

struct Point {
  std::vector<Contestant> contestants;
  std::vector<Workload> workloads;  // in any order; a course has YCSB's
  std::string dir = "/dev/shm";     // where the scratch directory is made
  std::uint64_t records = 1'000'000;
  std::uint64_t ops = 0;  // 0: each workload's own number
  unsigned threads = 1;
  std::size_t key_bytes = 16;
  std::size_t value_bytes = 100;
  bool ordered = false;
  bool compacted = false;  // EngineOptions::compacted
  bool sync = false;
  Distribution distribution = Distribution::zipfian;
  unsigned rounds = 5;
  unsigned opens = 8;            // rounds of the workload `open`
  unsigned kill_after_ms = 300;  // the workload `open`
  std::uint64_t seed = 42;
  double seconds_max = 0;  // rounds end early where they must, see ContestOptions. 0: no limit
};

bool has(const Point& point, Workload workload);
// What a store of this point needs at most on its file system.
std::uint64_t space_bytes(const Point& point);
// How many sequence numbers of versions all courses need; kSequenceMax is the limit.
std::uint64_t sequences(const Point& point);

// What all tables of the point state; `dir` is where its stores will be.
Setting setting_of(const Point& point, const std::string& dir);
// Plays all courses; stops early when interrupted. Progress goes to stderr.
void play_point(const Point& point, const Setting& setting, Scratch& scratch,
                ContestFigures& figures);

}  // namespace bench
