// The kill test of the main job: a process loads real records and then runs YCSB A on them until
// SIGKILL ends it at a random moment; its acknowledgements reach a side file through another
// process (ack_channel.h). Each time the store is opened again, in a process of its own, every
// acknowledged write is looked for, and the store checks itself from end to end. Some of the
// openings are killed too, inside recovery.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/main_job/package_records.h"

namespace bench {

struct KillOptions {
  std::string dir;  // exists, empty; store and side file go here
  std::uint64_t records = 0;
  unsigned kills = 10;
  double seconds = 15;  // of writing, all kills together
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
  std::uint64_t records_there = 0;   // all in the store
  std::uint64_t kept_in_flight = 0;  // writes that had happened without acknowledgement
  unsigned killed_openings = 0;      // SIGKILLs inside recovery before this opening
  double open_ms = 0;                // the whole open, recovery included
  double recovery_ms = 0;            // the pool's part
  double rebuild_ms = 0;             // the index's part
  double validate_ms = 0;
  std::uint64_t leaked_frames = 0;  // found and given back by recovery
  std::uint64_t rolled_back = 0;
  std::uint64_t lost = 0;     // acknowledged and not there, or older than acknowledged
  std::uint64_t torn = 0;     // not a whole value of its key
  std::uint64_t foreign = 0;  // there, and nobody wrote it
  char problem[400] = {};     // empty: sound

  bool sound() const { return problem[0] == '\0'; }
};

struct KillReport {
  std::vector<KillOutcome> kills;
  std::uint64_t acknowledged = 0;
  std::uint64_t file_bytes = 0;
  std::string error;  // the test itself could not go on
  bool sound() const;
};

// `tell` hears of each kill when it is checked.
KillReport run_kill_trial(const PackageRecords& records, const KillOptions& options,
                          const std::function<void(const KillOutcome&)>& tell);

}  // namespace bench
