// The kill test of the main job. A process loads real records and then runs YCSB A on them, until
// SIGKILL ends it at a random point. Another process writes its acknowledgements to a side file
// (ack_channel.h). After each kill a third process opens the store again, looks for every
// acknowledged write, and validates the whole store. Some opens are also killed inside recovery.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/main_job/package_records.h"

namespace bench {

struct KillOptions {
  std::string dir;  // an empty directory for the store and the side file
  std::uint64_t records = 0;
  unsigned kills = 10;
  double seconds = 15;  // of writing, over all kills
  unsigned threads = 2;
  std::uint64_t seed = 42;
};

// Plain memory: the checking process fills it for its parent.
struct KillOutcome {
  unsigned number = 0;   // from 1
  bool in_load = false;  // the writer was still inserting
  double ran_seconds = 0;
  std::uint64_t acknowledged = 0;    // writes since the last kill
  std::uint64_t reads = 0;           // each checked by the writer
  std::uint64_t records_there = 0;   // in the store
  std::uint64_t kept_in_flight = 0;  // unacknowledged writes that were found, whole
  unsigned killed_openings = 0;      // SIGKILLs inside recovery before this open
  double open_ms = 0;                // the whole open, recovery included
  double recovery_ms = 0;            // the pool's part
  double rebuild_ms = 0;             // the index's part
  double validate_ms = 0;
  std::uint64_t leaked_frames = 0;  // found and given back by recovery
  std::uint64_t rolled_back = 0;
  std::uint64_t lost = 0;     // acknowledged writes that are missing or replaced by older ones
  std::uint64_t torn = 0;     // values that are not whole, or not of their key
  std::uint64_t foreign = 0;  // records or versions that were never written
  char problem[400] = {};     // empty: sound

  bool sound() const { return problem[0] == '\0'; }
};

struct KillReport {
  std::vector<KillOutcome> kills;
  std::uint64_t acknowledged = 0;
  std::uint64_t file_bytes = 0;
  std::string error;  // why the test itself failed
  bool sound() const;
};

// Calls `tell` after each kill is checked.
KillReport run_kill_trial(const PackageRecords& records, const KillOptions& options,
                          const std::function<void(const KillOutcome&)>& tell);

}  // namespace bench
